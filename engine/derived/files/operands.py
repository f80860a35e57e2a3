"""Words of a command that are files: those that look like one, and those that an option names.

Knows nothing of programs, of calls or of how paths are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.shell.files.file_calls import Use, Uses
from engine.shell.options import Given

_PATH: Final = re.compile(
    r"(?:~|\.{1,2}|\$\{?\w+\}?|%\w+%|[A-Za-z]:)?[/\\][^\s'\"()<>|;&]*|~\w*|\.[A-Za-z][\w.-]+|file:\S+"
)
_RELATIVE: Final = re.compile(r"[\w.@+-]+(?:/[\w.@+*?-]*)+")
SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_REFERRED: Final = re.compile(r"(?:[\w.\[\]-]{1,256}=)?[@<]([^;]+)")
"""What `-d @file` and `-F x=@file;type=y` refer to."""


def looks_like_path(word: str) -> bool:
    if len(word) > 4_096 or SCHEME.match(word):
        return False
    return _PATH.fullmatch(word) is not None or _RELATIVE.fullmatch(word) is not None


def each_of(use: Use, words: Iterable[str]) -> Uses:
    return ((use, word) for word in words)


def marked(items: Sequence[Given]) -> Uses:
    """The files that options name."""
    for option in items:
        if "<" in option.marks or ("^" in option.marks and looks_like_path(option.value)):
            yield "reads", option.value
        elif ">" in option.marks:
            yield "writes", option.value
        elif "@" in option.marks and (found := _REFERRED.match(option.value)):
            yield "reads", found[1].strip('"')
