"""The literals that any text matched by a pattern must contain, found from the pattern's own form.

`required(pattern)` answers with clauses: of each clause at least one member occurs in `text.casefold()` of
every text the pattern matches. `(?i)rm\\s+(-rf|-fr) /(etc|usr)` gives

    {"rm"}   {"-rf /etc", "-rf /usr", "-fr /etc", "-fr /usr"}

INVARIANT: a clause may be missing, but never wrong: of a pattern that `re2_syntax` does not surely understand
there are none.

Everything is casefolded, whatever the flags, so flags need no care: folding works character by character,
and every character that RE2 takes for another under `(?i)` folds to the same text
(`tests/engine/fields/test_required_literals.py` asks RE2 about every one of them).

Knows nothing of policies or of the index.
"""

from __future__ import annotations

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


@lru_cache(maxsize=4096)
def required(pattern: str) -> tuple[Clause, ...]:
    """Clauses that hold for `text.casefold()` of every text in which RE2 finds the pattern."""
    part = parse(pattern)
    return () if part is None else _known(part).required


def _known(part: PatternPart) -> _Known:
    match part:
        case Characters(text):
            return _Known(frozenset({text.casefold()}))
        case CharacterClass(members=members):
            folded = frozenset(char.casefold() for char in members or ())
            return _Known(folded) if 0 < len(folded) <= MOST_IN_CLASS else _ANYTHING
        case Repetition():
            return _repeated(part)
        case Concatenation(parts):
            return _sequence(map(_known, parts))
        case Alternation(branches):
            return _either([_known(branch) for branch in branches])


def _repeated(repetition: Repetition) -> _Known:
    part, least, most = _known(repetition.part), repetition.least, repetition.most
    if (least, most) == (0, 1) and part.exact is not None:
        return _Known(part.exact | _NOTHING)
    if least == 0:
        return _ANYTHING
    if least == most and part.exact is not None and len(part.exact) == 1:
        (only,) = part.exact
        if len(only) * least <= LONGEST:
            return _Known(frozenset({only * least}))
    return _Known(None, part.required)


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


def _sequence(parts: Iterable[_Known]) -> _Known:
    """Neighbouring parts, joined into runs as long as they stay few and short."""
    run, whole = _NOTHING, True
    clauses: list[Clause] = []
    for part in parts:
        if part.exact is not None:
            joined = _joined(run, part.exact)
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


def _joined(run: Clause, following: Clause) -> Clause | None:
    """Each text of the one before each of the other; None where that would be too many or too long."""
    if len(run) * len(following) > max(MOST_COMBINED, len(run), len(following)):
        return None
    joined = frozenset(left + right for left in run for right in following)
    return joined if max(map(len, joined), default=0) <= LONGEST else None
