"""The agent hosts, by name; a file of one host is loaded when it is asked for. And in which folder the tools
of a host run, which hosts tell beside the arguments of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from itertools import chain, count
from typing import Any, Final

from api.hosts.report import Host, payload_of, tool_name

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


def tool_and_payload(
    said: Mapping[str, Any], tool: str, arguments: str, mcp: re.Pattern[str], folder: str = ""
) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of a call, from the members of these names, with the folder that it runs in,
    unless it is a tool of MCP, whose names begin like `mcp`. Raises Unreadable."""
    name, payload = tool_name(said, tool), payload_of(said, arguments)
    return name, payload if mcp.match(name) else in_folder(payload, said, folder)


_BEGINNING_THERE: Final = ("command", "file_path", "path", "paths", "absolute_path", "notebook_path")
_BESIDE: Final = ("workdir", "working_directory", "working_dir", "base_directory", "base_dir")
"""Names for what an agent calls its folder, of which the first that it has not taken itself counts."""
_ABSOLUTE: Final = ("/", "~", "\\", "file:")


def in_folder(payload: dict[str, Any], said: Mapping[str, Any], argument: str = "") -> dict[str, Any]:
    """The arguments of a host's own tool, with the folder that it runs in as `cwd` where a command or a
    relative path begins there: what a call does depends on it, and hosts tell it beside the arguments, except
    in the one called `argument`. INVARIANT: no other one, which the tool may leave aside, takes its place."""
    cwd = said.get("cwd")
    begins = any(name in payload and not _is_absolute(name, payload[name]) for name in _BEGINNING_THERE)
    if not begins or not isinstance(cwd, str) or not cwd:
        return payload
    own, chosen = payload.get("cwd"), payload.get(argument)
    if isinstance(chosen, str) and chosen:
        cwd = chosen if _is_absolute(argument, chosen) else f"{cwd.rstrip('/')}/{chosen}"
    if not own or own == cwd:
        return {**payload, "cwd": cwd}
    names = chain(_BESIDE, map("cwd_{}".format, count(2)))
    return {**payload, "cwd": cwd, next(name for name in names if name not in payload): own}


def _is_absolute(name: str, value: Any) -> bool:
    """Whether a path is one from wherever it is seen; commands are not."""
    paths = value if isinstance(value, list) else [value]
    return name != "command" and all(
        isinstance(each, str) and (each.startswith(_ABSOLUTE) or each[1:2] == ":") for each in paths
    )
