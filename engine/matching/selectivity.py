"""The access paths by which a policy can be found, and which is best: learnt from the policies themselves.

A hint of a condition becomes one or more access paths. The cost of one says how much work it is expected to
leave: how likely a call is to have it, and how many others are found along with it. What many policies name,
calls will have too; short literals, and literals that occur within others, are common words.

INVARIANT: an access path leads to its policy for every call that fulfils its hint.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import sqrt
from typing import Any, Final

import msgspec

from engine.fields.computed import DERIVED
from engine.fields.hints import Hint, Literals, OneOf, Regex, Threshold
from engine.fields.paths import Path
from engine.fields.required_literals import needs_capital, required, required_in_spaced
from engine.matching.multi_search import found_inside

SELECTIVE: Final = 3
"""Characters from which on a literal tells enough that its pattern needs no place in a set."""

PHRASED: Final = 8
"""Characters from which on a literal tells enough that nobody asks what words stand beside it."""

MOST_CLAUSES: Final = 4
"""Access paths made of one pattern; the longest literals are kept."""


class AccessPath(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One kind of lookup that finds an item, from one of its hints. Two are never the same.

    `kind` is `equal`, `words`, `start`, `end`, `phrase`, `shape`, `capital` (these have keys), `above`,
    `below` (these have a bound) or `present`. A phrase has one blank for any white space; `capital` is a
    shape that needs one.
    """

    kind: str
    path: Path
    keys: frozenset[str] = frozenset()
    bound: float = 0.0
    where: str = ""
    """What it has in common with others of its kind at the same path."""
    types: frozenset[type] | None = None
    """It finds its item by any value of another type too (`typed` of `fields.hints`)."""


TEXTS: Final = frozenset({str})
NUMBERS: Final = frozenset({int, float})


def _keyed(kind: str, path: Path, keys: frozenset[str], typed: bool = False) -> AccessPath:
    return AccessPath(kind, path, keys, 0.0, f"{kind} {path.text}", TEXTS if typed else None)


def access_paths(hint: Hint) -> tuple[AccessPath, ...]:
    """How to find what has this hint; empty if it cannot be looked up."""
    present = AccessPath("present", hint.path)
    if isinstance(hint, OneOf):
        return (_keyed("equal", hint.path, hint.keys),)
    if isinstance(hint, Literals):
        searchable = _searchable(hint.any_of)
        return (_keyed(hint.place or "words", hint.path, hint.any_of, hint.typed) if searchable else present,)
    if isinstance(hint, Regex):
        clauses = sorted(filter(_searchable, required(hint.pattern)), key=_shortest, reverse=True)[
            :MOST_CLAUSES
        ]
        words = tuple(_keyed("words", hint.path, clause, hint.typed) for clause in clauses)
        if not clauses or _shortest(clauses[0]) < PHRASED:
            words += tuple(
                _keyed("phrase", hint.path, clause, hint.typed) for clause in _phrases(hint.pattern)
            )
        if clauses and _shortest(clauses[0]) >= SELECTIVE:
            return words
        shape = "capital" if needs_capital(hint.pattern) else "shape"
        return (*words, _keyed(shape, hint.path, frozenset({hint.pattern}), hint.typed), present)
    if isinstance(hint, Threshold):
        kind = "above" if hint.above else "below"
        return (AccessPath(kind, hint.path, bound=hint.bound, types=NUMBERS if hint.typed else None),)
    return (present,)


def _phrases(pattern: str) -> tuple[frozenset[str], ...]:
    """The best clause of several words with white space between them, if there is one."""
    if r"\s" not in pattern:
        return ()
    clauses = [each for each in required_in_spaced(pattern) if _searchable(each)]
    phrases = [each for each in clauses if all(" " in literal.strip() for literal in each)]
    return tuple(sorted(phrases, key=_shortest, reverse=True)[:1])


def _shortest(clause: frozenset[str]) -> int:
    return min(map(len, clause))


def _searchable(literals: frozenset[str]) -> bool:
    if "" in literals:
        return False
    try:
        for literal in literals:
            literal.encode()
    except UnicodeEncodeError:
        return False
    return True


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """An item to be put into the tree: the access paths that are left, and how many
    copies of it there are."""

    item: Any
    access_paths: tuple[AccessPath, ...]
    copies: int = 1


# ---- which is best ---------------------------------------------------------------------------------

_BY_LENGTH: Final = (
    *(1.0, 0.8, 0.4, 0.15, 0.05, 0.02, 0.01, 0.01, 0.01, 0.01),
    *(0.005, 0.004, 0.003, 0.002, 0.001, 0.0005, 0.0002, 0.0001, 5e-5, 2e-5, 1e-5),
)
"""How likely a literal of so many characters is taken to occur in a text. Beyond a dozen it is a phrase, an
address or has a number in it, and rarer than a call of one tool among hundreds."""

_LONG: Final = len(_BY_LENGTH)
_RAREST: Final = _BY_LENGTH[-1]

_OTHER_COSTS: Final[Mapping[str, float]] = {
    "capital": 0.3,
    "shape": 0.3,
    "above": 0.4,
    "below": 0.4,
    "present": 0.6,
}

PHRASE_COST: Final = 0.02
"""What bringing a text into the form of phrases adds: less than finding a common word in a large set."""

DERIVED_COST: Final = 1.0
"""What reading a derived path adds to the cost of an access path: more than any other has by
itself."""

ENOUGH: Final = 8
"""Keys at a path below which their shares say little."""

LEARN_FROM: Final = 256
"""With so many items in a node, literals that are parts of other literals count as common words."""


def costs(usable: Sequence[Sequence[AccessPath]]) -> dict[AccessPath, float]:
    """How much work each access path is expected to leave, learnt from the items themselves: what many of
    them name, calls will have too."""
    counted = Counter(chain.from_iterable(usable))
    named = _named(counted)
    totals = {where: max(sum(times.values()), ENOUGH) for where, times in named.items()}
    inside: Mapping[str, int] = {}
    if len(usable) >= LEARN_FROM:
        literals = [each.keys for each in counted if each.kind in ("words", "start", "end")]
        inside = found_inside(set(chain.from_iterable(literals)))
    found: dict[AccessPath, float] = {}
    for access in counted:  # hundreds of thousands, in one loop
        kind, keys = access.kind, access.keys
        if kind == "equal":
            times = named[access.where]
            cost = 0.1 * sum([times[key] for key in keys]) / totals[access.where]
        elif keys and kind not in _OTHER_COSTS:
            times = named[access.where]
            cost = PHRASE_COST if kind == "phrase" else 0.0
            for key in keys:
                likely = _BY_LENGTH[length] if (length := len(key)) < _LONG else _RAREST
                cost += likely * sqrt(times[key] + inside.get(key, 0))
        else:
            cost = _OTHER_COSTS[kind]
        if access.path.root == DERIVED:
            cost += DERIVED_COST  # so that it is worked out only for calls that fulfil the rest
        found[access] = cost
    return found


def _named(counted: Mapping[AccessPath, int]) -> Mapping[str, Mapping[str, int]]:
    """How many name each key, among those that look for the same at the same path."""
    named: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for access, times in counted.items():
        if keys := access.keys:
            here = named[access.where]
            for key in keys:
                here[key] += times
    return named
