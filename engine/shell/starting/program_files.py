"""Files that programs take what they run from, besides shells: rules of `make`, scripts of `sed`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.shell.options import given, values_of
from engine.shell.starting import makefiles
from engine.shell.starting.option_commands import client, run_by_sed
from engine.shell.starting.started import Started

_MAKE: Final = frozenset({"make", "gmake"})
_CLIENTS: Final = frozenset({"psql", "sqlite3", "mysql", "mariadb"})
_RULES: Final = ("GNUmakefile", "makefile", "Makefile")


def named(name: str, words: Sequence[str]) -> list[str]:
    """The files that a program takes what it runs from."""
    if name == "sed":
        return values_of(list(given("sed", words)), "file")
    if name in _CLIENTS:
        return values_of(list(given(name, words)), "file")
    if name in _MAKE:
        items = list(given("make", words))
        folder = "".join(f"{each.rstrip('/')}/" for each in values_of(items, "directory")[-1:])
        return [f"{folder}{file}" for file in values_of(items, "file") or _RULES]
    return []


def run_by_text(name: str, words: Sequence[str], text: str) -> list[Started]:
    """What the text of such a file runs."""
    if name == "sed":
        return run_by_sed(text)
    if name in _MAKE:
        return [Started("script", each) for each in makefiles.recipes(text, words) if each.strip()]
    return client((), text)
