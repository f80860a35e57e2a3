"""The agent hosts, by name; a file of one host is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from api.hosts.report import Host

NAMES: Final = ("claude-code", "codex", "cursor", "gemini-cli", "copilot")


def host(name: str) -> Host:
    """The host of a name of `NAMES`."""
    found: Host = import_module(f"api.hosts.{name.replace('-', '_')}").HOST
    return found
