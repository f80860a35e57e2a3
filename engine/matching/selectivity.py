"""The access paths by which a policy can be found, and which is best: learnt from the policies themselves.

A hint of a condition becomes one or more access paths. The cost of one says how much work it is expected to
leave: how likely a call is to have it, and how many others are found along with it. What many policies name,
calls will have too; short literals, and literals that occur within others, are common words.

INVARIANT: an access path leads to its policy for every call that fulfils its hint.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from engine.fields.computed import DERIVED
from engine.fields.hints import Hint, Literals, OneOf, Regex, Threshold
from engine.fields.paths import Path
from engine.fields.required_literals import required, required_in_spaced
from engine.matching.multi_search import LiteralSearch

SELECTIVE: Final = 3
"""Characters from which on a literal tells enough that its pattern needs no place in a set."""

PHRASED: Final = 8
"""Characters from which on a literal tells enough that nobody asks what words stand beside it."""

MOST_CLAUSES: Final = 4
"""Access paths made of one pattern; the longest literals are kept."""


class AccessPath(msgspec.Struct, frozen=True, eq=False):
    """One kind of lookup that finds an item, from one of its hints. Two are never the same.

    `kind` is `equal`, `words`, `phrase`, `shape` (these have keys), `above`, `below` (these have a bound) or
    `present`. A phrase has one blank for any white space.
    """

    kind: str
    path: Path
    keys: frozenset[str] = frozenset()
    bound: float = 0.0
    names: tuple[str, ...] = ()
    """What it has in common with others of its kind that look for the same at the same path: one a key."""
    types: frozenset[type] | None = None
    """It finds its item by any value of another type too (`typed` of `fields.hints`)."""


TEXTS: Final = frozenset({str})
NUMBERS: Final = frozenset({int, float})


def _keyed(kind: str, path: Path, keys: frozenset[str], typed: bool = False) -> AccessPath:
    names = tuple([f"{kind} {path.text} {key}" for key in keys])
    return AccessPath(kind, path, keys, 0.0, names, TEXTS if typed else None)


def access_paths(hint: Hint) -> tuple[AccessPath, ...]:
    """How to find what has this hint; empty if it cannot be looked up."""
    present = AccessPath("present", hint.path)
    if isinstance(hint, OneOf):
        return (_keyed("equal", hint.path, hint.keys),)
    if isinstance(hint, Literals):
        searchable = _searchable(hint.any_of)
        return (_keyed("words", hint.path, hint.any_of, hint.typed) if searchable else present,)
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
        return (*words, _keyed("shape", hint.path, frozenset({hint.pattern}), hint.typed), present)
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
    try:
        return all(literal.encode() for literal in literals)
    except UnicodeEncodeError:
        return False


class IndexEntry(NamedTuple):
    """An item to be put into the tree: the access paths that are left, and how many
    copies of it there are."""

    number: int
    access_paths: tuple[AccessPath, ...]
    copies: int = 1


# ---- which is best ---------------------------------------------------------------------------------

_BY_LENGTH: Final = (
    *(1.0, 0.8, 0.4, 0.15, 0.05, 0.02, 0.01, 0.01, 0.01, 0.01),
    *(0.005, 0.004, 0.003, 0.002, 0.001, 0.0005, 0.0002, 0.0001, 5e-5, 2e-5, 1e-5),
)
"""How likely a literal of so many characters is taken to occur in a text. Beyond a dozen it is a phrase, an
address or has a number in it, and rarer than a call of one tool among hundreds."""

_OTHER_COSTS: Final[Mapping[str, float]] = {"shape": 0.3, "above": 0.4, "below": 0.4, "present": 0.6}

PHRASE_COST: Final = 0.02
"""What bringing a text into the form of phrases adds: less than finding a common word in a large set."""

DERIVED_COST: Final = 1.0
"""What reading a derived path adds to the cost of an access path: more than any other has by
itself."""

ENOUGH: Final = 8
"""Keys at a path below which their shares say little."""

LEARN_FROM: Final = 256
"""With so many items in a node, literals that are parts of other literals count as common words."""


class Costs(dict[AccessPath, float]):
    """How much work each access path is expected to leave, learnt from the items themselves: what many of
    them name, calls will have too. Worked out when it is asked for."""

    def __init__(self, entries: Sequence[IndexEntry]) -> None:
        self._named = named = dict[str, int]()
        self._at_path: Counter[str] = Counter()
        words: set[str] = set()
        for access, times in Counter(chain.from_iterable([entry.access_paths for entry in entries])).items():
            for name in access.names:
                named[name] = named.get(name, 0) + times
            if access.kind == "equal":
                self._at_path[access.path.text] += times * len(access.keys)
            elif access.kind == "words":
                words |= access.keys
        self._inside = _inside(words) if len(entries) >= LEARN_FROM else {}

    def __missing__(self, access: AccessPath) -> float:
        cost = self._of(access)
        if access.path.root == DERIVED:
            cost += DERIVED_COST  # so that it is worked out only for calls that fulfil the rest
        self[access] = cost
        return cost

    def _of(self, access: AccessPath) -> float:
        named = self._named
        if access.kind == "equal":
            total = max(self._at_path[access.path.text], ENOUGH)
            return 0.1 * sum([named[name] for name in access.names]) / total
        if access.kind in ("words", "phrase"):
            found = PHRASE_COST if access.kind == "phrase" else 0.0
            for key, name in zip(access.keys, access.names, strict=True):
                likely = _BY_LENGTH[min(len(key), len(_BY_LENGTH) - 1)]
                found += likely * math.sqrt(named[name] + self._inside.get(key, 0))
            return found
        return _OTHER_COSTS[access.kind]


def _inside(literals: set[str]) -> Mapping[str, int]:
    """How many other literals each literal occurs in."""
    counted: Counter[str] = Counter()
    words = LiteralSearch({literal: literal for literal in literals}) if literals else None
    if words is not None:
        for literal in literals:
            counted.update(words.find(literal))
    return {literal: times - 1 for literal, times in counted.items() if times > 1}
