"""A path without `.`, `..` and double slashes, as far as its text tells.

Decides what `..` behind a home or a variable means: `~/../bob` is the home of another, and what lies above
`$X` nobody knows, so `$X/../y` stays. Nothing of a disk is known.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Final

_HOME: Final = "/home/~"
_BEGINS_ELSEWHERE: Final = re.compile(r"(?:~[\w.-]*|[$%`][^/]*)(?=/)")


def settled(path: str) -> str:
    """The path in its shortest form."""
    if path.startswith("~+"):  # the folder at hand
        return normpath(f"./{path[2:]}")
    begin = _BEGINS_ELSEWHERE.match(path)
    if begin is None:
        return normpath(path)
    rest = normpath(path[begin.end() :].lstrip("/") or ".")
    if rest == ".":
        return begin[0]
    if not begin[0].startswith("~") or not rest.startswith(".."):
        return f"{begin[0]}/{rest}"
    above = normpath(f"{_HOME}/{rest}")
    return "~" + above.removeprefix(_HOME) if f"{above}/".startswith(f"{_HOME}/") else above
