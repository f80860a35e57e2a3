"""Files that programs take what they run from, besides shells: scripts of `sed`, SQL of clients. Pure.

Not the rules of `make`: which of them it goes by depends on what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.shell.options import given, values_of
from engine.shell.starting.option_commands import CLIENTS, client, run_by_sed
from engine.shell.starting.started import Started

BEGIN_OF_CLIENTS: Final = tuple(f"{name} " for name in CLIENTS)
"""How commands begin that read files of SQL."""
_INCLUDED: Final = re.compile(
    r"(?:^|(?<=[\s;]))(?:\\(?:ir?|include(?:_relative)?|\.)|source|\.read)[ \t]++'?([^\s;'\"|]++)",
    re.IGNORECASE,
)
MOST_INCLUDED: Final = 16


def named(name: str, words: Sequence[str]) -> list[str]:
    """The files that a program takes what it runs from."""
    if name == "sed":
        return values_of(list(given("sed", words)), "file")
    if name in CLIENTS:
        return [*values_of(list(given(name, words)), "file"), *included(words)]
    return []


def included(texts: Iterable[str]) -> list[str]:
    """The files that clients of databases are told to read by words of their own: `\\i f`, `source f`."""
    return [found[1] for text in texts for found in _INCLUDED.finditer(text)][:MOST_INCLUDED]


def run_by_text(name: str, text: str) -> list[Started]:
    """What the text of such a file runs."""
    return run_by_sed(text) if name == "sed" else client((), text)
