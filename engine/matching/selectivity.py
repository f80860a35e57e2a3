"""The access paths by which a policy can be found, and which is best: learnt from the policies themselves.

A hint of a condition becomes one or more access paths. The cost of one says how much work it is expected to
leave: how likely a call is to have it, and how many others are found along with it. What many policies name,
calls will have too; short literals, and literals that occur within others, are common words.

INVARIANT: an access path leads to its policy for every call that fulfils its hint.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.fields.computed import DERIVED
from engine.fields.hints import Hint, Literals, OneOf, Regex, Threshold
from engine.fields.paths import Path
from engine.fields.required_literals import required
from engine.matching.multi_search import LiteralSearch

SELECTIVE: Final = 3
"""Characters from which on a literal tells enough that its pattern needs no place in a set."""

MOST_CLAUSES: Final = 4
"""Access paths made of one pattern; the longest literals are kept."""


class AccessPath(NamedTuple):
    """One kind of lookup that finds an item, from one of its hints.

    `kind` is `equal`, `words`, `shape` (these have keys), `above`, `below` (these have a bound) or `present`.
    """

    kind: str
    path: Path
    keys: frozenset[str] = frozenset()
    bound: float = 0.0


def access_paths(hint: Hint) -> tuple[AccessPath, ...]:
    """How to find what has this hint; empty if it cannot be looked up."""
    present = AccessPath("present", hint.path)
    if isinstance(hint, OneOf):
        return (AccessPath("equal", hint.path, hint.keys),)
    if isinstance(hint, Literals):
        return (AccessPath("words", hint.path, hint.any_of) if _searchable(hint.any_of) else present,)
    if isinstance(hint, Regex):
        clauses = sorted(filter(_searchable, required(hint.pattern)), key=_shortest, reverse=True)[
            :MOST_CLAUSES
        ]
        words = tuple(AccessPath("words", hint.path, clause) for clause in clauses)
        if clauses and _shortest(clauses[0]) >= SELECTIVE:
            return words
        return (*words, AccessPath("shape", hint.path, frozenset({hint.pattern})), present)
    if isinstance(hint, Threshold):
        return (AccessPath("above" if hint.above else "below", hint.path, bound=hint.bound),)
    return (present,)


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

DERIVED_COST: Final = 1.0
"""What reading a derived path adds to the cost of an access path: more than any other has by
itself."""

ENOUGH: Final = 8
"""Keys at a path below which their shares say little."""

LEARN_FROM: Final = 256
"""With so many items in a node, literals that are parts of other literals count as common words."""


def costs(entries: Sequence[IndexEntry]) -> Callable[[AccessPath], float]:
    """How much work an access path is expected to leave, learnt from the items themselves: what many of them
    name, calls will have too."""
    named: Counter[tuple[str, str, str]] = Counter()
    at_path: Counter[str] = Counter()
    seen = Counter(map(id, (access for entry in entries for access in entry.access_paths if access.keys)))
    by_id = {id(access): access for entry in entries for access in entry.access_paths if access.keys}
    for identity, times in seen.items():
        access = by_id[identity]
        for key in access.keys:
            named[access.kind, access.path.text, key] += times
        if access.kind == "equal":
            at_path[access.path.text] += times * len(access.keys)
    inside = _inside({key for kind, _, key in named if kind == "words"}) if len(entries) >= LEARN_FROM else {}
    known: dict[int, float] = {}

    def cost(access: AccessPath) -> float:
        found = known.get(id(access))
        if found is None:
            path = access.path.text
            if access.kind == "equal":
                total = max(at_path[path], ENOUGH)
                found = 0.1 * sum(named["equal", path, key] for key in access.keys) / total
            elif access.kind == "words":
                found = sum(
                    _BY_LENGTH[min(len(key), len(_BY_LENGTH) - 1)]
                    * math.sqrt(named["words", path, key] + inside.get(key, 0))
                    for key in access.keys
                )
            else:
                found = _OTHER_COSTS[access.kind]
            if access.path.root == DERIVED:
                found += DERIVED_COST  # so that it is worked out only for calls that fulfil the rest
            known[id(access)] = found
        return found

    return cost


def _inside(literals: set[str]) -> Mapping[str, int]:
    """How many other literals each literal occurs in."""
    counted: Counter[str] = Counter()
    words = LiteralSearch({literal: literal for literal in literals}) if literals else None
    if words is not None:
        for literal in literals:
            counted.update(words.find(literal))
    return {literal: times - 1 for literal, times in counted.items() if times > 1}
