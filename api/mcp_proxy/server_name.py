"""What a server is called where policies, records and pins name it: by whoever starts it, never by itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final
from urllib.parse import urlsplit

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_STARTERS: Final = frozenset(
    {
        "npx",
        "npm",
        "pnpm",
        "yarn",
        "x",
        "dlx",
        "exec",
        "bunx",
        "bun",
        "deno",
        "node",
        "uvx",
        "uv",
        "pipx",
        "python",
        "python3",
        "tool",
        "run",
        "env",
        "docker",
        "podman",
    }
)
"""Words of a command that start something else, which is the server."""
_WITHOUT: Final = re.compile(r"(?<=.)@[^@/]*\Z|\.(?:[cm]?js|ts|py|exe)\Z")
"""The version of a package, the ending of a file."""


def checked_name(name: str) -> str:
    """The name, where it can be one; it is a file's name, too."""
    if not _NAME.fullmatch(name) or "__" in name:
        raise ValueError(f"`{name}` is no name of a server; write letters, digits, `-`, `.` and single `_`")
    return name


def default_name(command: Sequence[str], url: str | None) -> str:
    """From the address, or from the first word of the command that starts nothing else. Raises ValueError
    where none can be made of it."""
    if url is not None:
        return _plain(_host(url))
    words = [each for each in command if not each.startswith("-") and "=" not in each]
    found = next((each for each in words if PurePath(each).name not in _STARTERS), command[0])
    return _plain(PurePath(_WITHOUT.sub("", found)).name)


def _host(url: str) -> str:
    with contextlib.suppress(ValueError):
        if host := urlsplit(url).hostname:
            return host
    raise ValueError(f"`{url}` is no address of a server; write one such as https://mcp.example/mcp")


def _plain(text: str) -> str:
    found = re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:64].strip("-.")
    if not found:
        raise ValueError(f"no name of a server can be made of `{text}`; give --server-name NAME")
    return found
