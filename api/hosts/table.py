"""The agent hosts, by name; a file of one host is loaded when it is asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

from api.hosts.report import Host

NAMES: Final = ("claude-code", "codex", "cursor", "gemini-cli", "copilot")

MCP_TOOL: Final = {
    "claude-code": re.compile("mcp__"),  # and all hosts of its shape
    "gemini-cli": re.compile("mcp_"),
    "copilot": re.compile(".*-", re.DOTALL),  # between server and tool
}
"""How the names of tools of MCP begin, where a host tells the folder that its own tools run in."""


def host(name: str) -> Host:
    """The host of a name of `NAMES`."""
    found: Host = import_module(f"api.hosts.{name.replace('-', '_')}").HOST
    return found
