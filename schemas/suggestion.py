"""Which of the known words somebody meant: the did-you-mean of every error text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 100
"""Characters of a word that are compared; comparing takes time in their square."""


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most like this one, however it is cased and hyphenated; None if none is."""
    from difflib import get_close_matches

    folded = {as_compared(name): name for name in known}
    close = get_close_matches(as_compared(word[:LONGEST]), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean ...?` to end a sentence with; empty if no known word is like this one."""
    near = closest(word, known, cutoff)
    return f"; did you mean `{near}`?" if near else ""


def as_compared(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
