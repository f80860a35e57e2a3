"""The words that xargs and parallel take from their input. Knows nothing of what is done with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from engine.shell.expansion import TooMuch, unescape

MOST_GIVEN: Final = 1_000
"""Words that a command takes from its input."""

_NULLS: Final = re.compile(r"-[^\W0]*+0\w*+|--null")


def words_given(options: Sequence[str], stdin: str | None) -> list[str]:
    """The words of an input, parted by blanks unless the options name another mark.
    INVARIANT: where there are more than are taken, the text is unreadable."""
    mark = next(_marks(options), None)
    text = stdin or ""
    if mark is None:
        text = text.replace("\0", " ")
    given = text.split(mark, MOST_GIVEN)
    if len(given) > MOST_GIVEN:
        raise TooMuch
    return [word for each in given if (word := each.strip(None if mark == "\0" else "\n"))]


def _marks(options: Sequence[str]) -> Iterator[str]:
    for option, following in pairwise((*options, "")):
        if _NULLS.fullmatch(option):
            yield "\0"
        elif option in ("-d", "--delimiter"):
            yield unescape(following, null="\0") or "\0"
        elif option.startswith(("-d", "--delimiter=")):
            yield unescape(option.removeprefix("--delimiter=").removeprefix("-d"), null="\0") or "\0"
