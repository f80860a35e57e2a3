"""Which of the files below its folders `find` comes to act on, by its expression.

Read as find reads it: `-o` and `,` part alternatives, `!` leaves all others, and what stands behind an action
narrows it no more. What cannot be told apart is all of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALL: Final = ""
SOME: Final = "/**/?*"
"""Not all of them, and nobody knows which."""

_NAMES: Final = frozenset(["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename"])
_TESTS: Final = re.compile(
    r"-i?regex|-[amc](?:time|min)|-newer(?:[aBcmt]{2})?|-size|-user|-group|-perm|-links|-inum|-uid|-gid"
)
"""Each with a value; they leave some out."""
STARTING: Final = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
_ACTING: Final = STARTING | {"-delete", "-print", "-print0", "-printf", "-ls"}
"""Printed is what another program may delete."""
_OR: Final = frozenset(["-o", "-or", ","])
_NOT: Final = frozenset(["!", "-not"])
_MOST_GROUPS: Final = 64


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which files a part of the expression lets through, and whether it acts on them."""

    below: tuple[str, ...] = (ALL,)
    acts: bool = False


def acted_on(words: Sequence[str]) -> list[str]:
    """What follows each folder: `/**/NAME` of files by a name, `SOME`, or `ALL`."""
    if words.count("(") > _MOST_GROUPS:
        return [ALL]
    reader = _Reader(words)
    found = reader.alternatives()
    return list(found.below) if reader.is_at_end else [ALL]


def outside(words: Sequence[str]) -> list[str]:
    """The expression without the commands that it starts."""
    found: list[str] = []
    is_inside = False
    for word in words:
        if not is_inside:
            found.append(word)
        is_inside = word in STARTING or (is_inside and word not in (";", "+"))
    return found


def started_with(words: Sequence[str]) -> list[list[str]]:
    """The commands that the expression starts, in words."""
    found: list[list[str]] = []
    is_inside = False
    for word in words:
        if is_inside and word not in (";", "+"):
            found[-1].append(word)
            continue
        is_inside = word in STARTING
        if is_inside:
            found.append([])
    return found


class _Reader:
    """Goes through the words once."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._words)

    def alternatives(self) -> _Chosen:
        """Terms joined by `-o`. Files that reach an action count; where there is no action, all that are
        found do, since `find` prints them."""
        found = [self._together()]
        while self._next() in _OR:
            self._at += 1
            found.append(self._together())
        acts = any(each.acts for each in found)
        below = dict.fromkeys(path for each in found if each.acts or not acts for path in each.below)
        return _Chosen((ALL,) if ALL in below else tuple(below), acts)

    def _together(self) -> _Chosen:
        """Tests side by side, up to the end of the alternative."""
        below: tuple[str, ...] = (ALL,)
        acts = False
        while not self.is_at_end and self._next() not in _OR and self._next() != ")":
            part = self._part()
            if not acts and (below == (ALL,) or (below == (SOME,) and part.below != (ALL,))):
                below = part.below
            acts = acts or part.acts
        return _Chosen(below, acts)

    def _part(self) -> _Chosen:
        is_other = False
        while self._next() in _NOT:
            is_other = True
            self._at += 1
        found = self._one()
        return _Chosen(acts=found.acts) if is_other else found

    def _one(self) -> _Chosen:
        word = self._take()
        if word == "(":
            found = self.alternatives()
            self._at += self._next() == ")"
            return found
        if word in STARTING:
            while not self.is_at_end and self._take() not in (";", "+"):
                pass
            return _Chosen(acts=True)
        if word in _NAMES:
            name = self._take()
            return _Chosen((ALL,) if set(name) <= {"*", "?"} and "*" in name else (f"/**/{name}",))
        if _TESTS.fullmatch(word):
            self._take()
            return _Chosen((SOME,))
        return _Chosen((SOME,) if word == "-empty" else (ALL,), word in _ACTING)

    def _next(self) -> str:
        return "" if self.is_at_end else self._words[self._at]

    def _take(self) -> str:
        word = self._next()
        self._at += 1
        return word
