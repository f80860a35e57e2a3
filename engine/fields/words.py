"""Names as words: how the names of tools and the keys of arguments are read, however they are written."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LONGEST_NAME: Final = 256
"""Of a longer name the beginning is read."""

WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+|\*")
_EMAIL: Final = re.compile(r"\be mail")


def words_of(name: str) -> str:
    """The words of a name, in lower case, parted by blanks: `toAddresses` and `to-addresses` are one."""
    return _words_of(name[:LONGEST_NAME])


@lru_cache(maxsize=16_384)
def _words_of(name: str) -> str:
    return _EMAIL.sub("email", " ".join(WORD.findall(name)).lower())


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set, for tables."""
    return frozenset(text.split())
