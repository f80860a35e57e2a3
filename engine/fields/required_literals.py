"""The literals that any text matched by a pattern must contain, found from the pattern's own form.

`required(pattern)` answers with clauses: of each clause at least one member occurs in `text.casefold()` of
every text the pattern matches. `(?i)rm\\s+(-rf|-fr) /(etc|usr)` gives

    {"rm"}   {"-rf /etc", "-rf /usr", "-fr /etc", "-fr /usr"}

INVARIANT: a clause may be missing, but never wrong: of a pattern that `re2_syntax` does not surely understand
there are none.

Everything is casefolded, whatever the flags, so flags need no care: folding works character by character,
and every character that RE2 takes for another under `(?i)` folds to the same text
(`tests/engine/fields/test_required_literals.py` asks RE2 about every one of them).

`required_in_spaced` says it of `spaced(text)`, in which every run of white space is one blank, so that words
with `\\s+` between them are one literal.

Knows nothing of policies or of the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from engine.fields.re2_syntax import (
    Alternation,
    CharacterClass,
    Characters,
    Concatenation,
    PatternPart,
    Repetition,
    parse,
)

Clause = frozenset[str]

MOST_COMBINED: Final = 64
"""Most strings made by combining neighbours: `(a|b)(c|d)` makes four."""
MOST_ALTERNATIVES: Final = 2048
MOST_IN_CLASS: Final = 10
LONGEST: Final = 200

_NOTHING: Final[Clause] = frozenset({""})
_WHITE: Final = re.compile(r"\s+")
"""What `str.split` takes for white space, which is more than RE2 does."""
_RUNS: Final = tuple("\n\t\r\v\f\x1c\x1d\x1e\x1f")
"""White space of ASCII that is no blank."""

_FOLDING: Final = re.compile(r"\(\?[a-zA-Z-]*i")
"""Where a pattern may say that case does not count."""
_CAPITALS: Final = re.compile(r"\[(?:[A-Z](?:-[A-Z])?)+\]")


class _Known(msgspec.Struct, frozen=True):
    """What is known of one part: the exact (folded) texts it can match, if few; else clauses it requires."""

    exact: Clause | None
    clauses: tuple[Clause, ...] = ()

    @property
    def required(self) -> tuple[Clause, ...]:
        if self.exact is None:
            return self.clauses
        return () if "" in self.exact or not self.exact else (self.exact,)


_ANYTHING: Final = _Known(None)
_EMPTY: Final = _Known(_NOTHING)
"""What anchors match."""


@lru_cache(maxsize=4096)
def required(pattern: str) -> tuple[Clause, ...]:
    """Clauses that hold for `text.casefold()` of every text in which RE2 finds the pattern."""
    part = parse(pattern)
    return () if part is None else _AS_WRITTEN.known(part).required


def required_in_spaced(pattern: str) -> tuple[Clause, ...]:
    """Clauses that hold for `spaced(text)` of every text in which RE2 finds the pattern."""
    part = parse(pattern)
    return () if part is None else _SPACED.known(part).required


def needs_capital(pattern: str) -> bool:
    """Whether every text in which RE2 finds the pattern has a character that casefolding changes."""
    part = None if _FOLDING.search(pattern) else parse(pattern)
    return part is not None and _has_capital(part)


def _has_capital(part: PatternPart) -> bool:
    match part:
        case Characters(text):
            return text.casefold() != text
        case CharacterClass(text, members):
            return _CAPITALS.fullmatch(text) is not None or all(c.casefold() != c for c in members or " ")
        case Repetition(inner, least):
            return least > 0 and _has_capital(inner)
        case Concatenation(parts):
            return any(map(_has_capital, parts))
        case Alternation(branches):
            return all(map(_has_capital, branches))


def spaced(text: str) -> str:
    """A text casefolded, with one blank for each run of white space, and at both ends."""
    return forms(text)[0]


@lru_cache(maxsize=8)
def forms(text: str) -> tuple[str, ...]:
    """A text as `spaced` has it; and casefolded as it is, where not all of that is in the other."""
    folded = text.casefold()
    words = _single_spaced(folded)
    other = f" {words} " if words else " "
    return (other,) if words == folded else (other, folded)


def _single_spaced(folded: str) -> str:
    if folded.isascii():
        words = folded.strip(" ")
        if words.rfind("  ") < 0:  # three times as fast as `in`
            for run in _RUNS:
                if run in words:
                    break
            else:  # the usual text, which is in this form already: its words need not be taken apart
                return words
    return " ".join(folded.split())


class _Reader:
    """Reads clauses off the tree of a pattern, from casefolded pieces of text. `blank` is what a run of white
    space is, where that is one text; then all other white space in a piece is one blank, too."""

    def __init__(self, blank: Clause | None) -> None:
        self._blank = blank

    def known(self, part: PatternPart) -> _Known:
        if type(part) is Characters:
            return _Known(frozenset((self._form(part.text),))) if part.text else _EMPTY
        if type(part) is CharacterClass:
            if self._blank is not None and part.text == r"\s":
                return _Known(self._blank)
            folded = frozenset([self._form(char) for char in part.members or ()])
            return _Known(folded) if 0 < len(folded) <= MOST_IN_CLASS else _ANYTHING
        if type(part) is Repetition:
            return self._repeated(part)
        if type(part) is Concatenation:
            return self._sequence(part.parts)
        assert isinstance(part, Alternation)
        return _either([self.known(branch) for branch in part.branches])

    def _form(self, text: str) -> str:
        folded = text.casefold()
        return folded if self._blank is None else _WHITE.sub(" ", folded)

    def _repeated(self, repetition: Repetition) -> _Known:
        part, least, most = self.known(repetition.part), repetition.least, repetition.most
        if part.exact is not None and part.exact == self._blank:
            return _Known(part.exact if least else part.exact | _NOTHING)
        if (least, most) == (0, 1) and part.exact is not None:
            return _Known(part.exact | _NOTHING)
        if least == 0:
            return _ANYTHING
        if least == most and part.exact is not None and len(part.exact) == 1:
            (only,) = part.exact
            if len(only) * least <= LONGEST:
                return _Known(frozenset({self._form(only * least)}))
        return _Known(None, part.required)

    def _sequence(self, parts: Iterable[PatternPart]) -> _Known:
        """Neighbouring parts, joined into runs as long as they stay few and short."""
        run, whole = _NOTHING, True
        clauses: list[Clause] = []
        for each in parts:
            part = self.known(each)
            if part is _EMPTY:
                continue
            if part.exact is not None:
                joined = self._joined(run, part.exact)
                if joined is not None:
                    run = joined
                    continue
            whole = False
            if run and "" not in run:
                clauses.append(run)
            clauses += part.clauses
            run = _NOTHING if part.exact is None else part.exact
        if whole:
            return _Known(run)
        if run and "" not in run:
            clauses.append(run)
        return _Known(None, tuple(clauses))

    def _joined(self, run: Clause, following: Clause) -> Clause | None:
        """Each text of the one before each of the other; None where that would be too many or too long."""
        if len(run) * len(following) > max(MOST_COMBINED, len(run), len(following)):
            return None
        if self._blank is None:
            joined = frozenset([left + right for left in run for right in following])
        else:  # both have one blank for white space, and so has what they make
            joined = frozenset([_seamless(left, right) for left in run for right in following])
        return joined if max(map(len, joined), default=0) <= LONGEST else None


def _seamless(left: str, right: str) -> str:
    return left + right[1:] if left[-1:] == " " == right[:1] else left + right


_AS_WRITTEN: Final = _Reader(None)
_SPACED: Final = _Reader(frozenset({" "}))


def _best(clauses: tuple[Clause, ...]) -> Clause | None:
    """The clause least likely to hold by chance: its shortest member is long, then its members are few."""
    return max(clauses, key=lambda clause: (min(map(len, clause)), -len(clause)), default=None)


def _either(branches: list[_Known]) -> _Known:
    exact = [branch.exact for branch in branches]
    if None not in exact:
        union = frozenset().union(*(members for members in exact if members is not None))
        if len(union) <= MOST_ALTERNATIVES:
            return _Known(union)
    members: set[str] = set()
    for branch in branches:
        best = _best(branch.required)
        if best is None:
            return _ANYTHING
        members |= best
    return _Known(None, (frozenset(members),) if len(members) <= MOST_ALTERNATIVES else ())
