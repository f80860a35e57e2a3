"""The agent hosts, by name; a file of one host is loaded when it is asked for."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Final

from api.hosts.report import CALL, Host, Unreadable

NAMES: Final = ("claude-code", "codex", "cursor", "gemini-cli", "copilot")


def host(name: str) -> Host:
    """The host of a name of `NAMES`."""
    found: Host = import_module(f"api.hosts.{name.replace('-', '_')}").HOST
    return found


def is_call(name: str, raw: bytes) -> bool:
    """Whether an input that is not taken asks about a call, as far as the most lenient reader can tell, or
    may do so, since its members cannot be read either."""
    try:
        said = json.loads(raw.decode("utf-8-sig", "replace"), parse_int=str)  # a long number is no reason
        return name in NAMES and isinstance(said, dict) and host(name).read(said).kind == CALL
    except (RecursionError, Unreadable):
        return name in NAMES
    except ValueError:
        return False
