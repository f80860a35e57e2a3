"""Which files `ls` and `find` list for another program, that reads them: `ls -d a/* | xargs cat`, `cat $(find
a -type f)`.

Knows nothing of what other programs do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from engine.shell.files.find_expression import SOME, acted_on
from engine.shell.options import given, operands_of

LISTING: Final = frozenset(["find", "ls", "fd", "fdfind"])
"""Programs whose list tells by itself what becomes of the files in it."""
MOST_LISTED: Final = 32
_SUBSTITUTED: Final = re.compile(r"\$\(\s*((?:find|ls)(?:\s+[^\s|;&$`()<>\\]+)*)\s*\)")
_QUOTES: Final = str.maketrans("", "", "'\"")


def listed(stages: Iterable[Sequence[str]]) -> list[str]:
    """The files that some commands list, each in words: all of them, or those of a name; where nobody knows
    which of them, none."""
    return list(islice((file for stage in stages for file in _listed(stage)), MOST_LISTED))


def _listed(words: Sequence[str]) -> Iterator[str]:
    if words[0] == "ls":
        yield from operands_of(list(given("ls", words[1:]))) or ["*"]
    elif words[0] == "find":
        folders, expression = parted(words[1:])
        yield from (f"{folder}{each}" for each in acted_on(expression) if each != SOME for folder in folders)


def substituted(word: str) -> list[str]:
    """The files that stand for a word, where that is the list of a simple command, or the end of one that is
    parted at its blanks."""
    if "(" not in word:
        return [word.rstrip(")")]
    found = _SUBSTITUTED.fullmatch(word)
    return listed([found[1].translate(_QUOTES).split(None, MOST_LISTED)]) if found else []


def parted(words: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """The folders of `find`, and its expression."""
    folders: list[str] = []
    for at, word in enumerate(words):
        if word[:1] in ("-", "(", "!", ","):
            if folders or not re.fullmatch(r"-[HLP]|-O\d|-D\w*", word):
                return folders or ["."], words[at:]
            continue
        folders.append(word)
    return folders or ["."], ()
