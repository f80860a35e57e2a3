r"""Which policies can match a call at all: a tree of lookups that narrows a hundred thousand to a few.

The idea. Each condition carries hints: what must be so for it to be anything but FALSE. A policy needs all
its conditions, so any one hint of any condition will do to find it by. It is filed under the one that fewest
calls should fulfil - a literal that hardly any other policy has, an account number, a tool name - and a
bucket that is still too full is split again by another hint of its members. That recursion is the tree.

    P1  toolName equals wire      AND inputPayload.amount greater_than 10000
    P2  toolName equals wire      AND inputPayload.to matches (?i)@evil\.(com|org)
    P3  inputPayload.cmd contains "rm -rf"
    P4  inputPayload.cmd matches  [0-9]{16}
    P5  toolName not_equals wire

    Node
    ├─ toolName            Equal     "wire" ──> Node (if P1, P2 and others are many)
    │                                           ├─ inputPayload.amount  Above    10000 ──> P1
    │                                           └─ inputPayload.to      Written  "@evil.com" ──> P2
    │                                                                            "@evil.org" ──> P2
    ├─ inputPayload.cmd    Written   "rm -rf" ──> P3
    │                      Shaped    [0-9]{16} ──> P4
    └─ always              P5

A call walks in: at each door whose path it has, its values pick buckets out of a hash map, its text picks
them through one automaton, its number by bisection. Doors of payload paths are found by the payload's own
keys, so a path that the call lacks costs nothing. What a door opens goes on a list of work, levels of the
tree among it, until nothing is left to open. What comes out are candidates; predicates decide.

INVARIANT: too many candidates are allowed, too few never: every policy that `scan` reports is among them.
Each step keeps it: a hint is necessary (`fields.Hint`), any hint that cannot be looked up exactly is
widened or dropped, and a policy whose hints are all dropped is in `always`.

Which hint is best is learnt in `ways`, what a path of a call opens is in `doors`, what it shows in `facts`.
Items are opaque here: anything, with its hints. Knows nothing of verdicts or actions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from engine.fields.facts import MISSING, Facts
from engine.fields.hints import Hint
from engine.fields.paths import Path
from engine.matching.lookups import (
    MANY_KEYS,
    Above,
    Below,
    Beneath,
    Bucket,
    Door,
    Equal,
    Shaped,
    There,
    Written,
)
from engine.matching.selectivity import Filed, Way, rates, ways
from engine.model import Json

Item = TypeVar("Item")

FULL: Final = 4
"""A bucket with more members is split, if its members have hints left."""

MOST_COPIES: Final = 4096
"""How often one policy may be filed below the first level; an `in` list files it under each of its values."""

MOST_WAYS: Final = 32
"""Ways kept of one policy; also how deep the tree can grow."""


class Node:
    """One level of the tree: the doors, and what no door leads to."""

    __slots__ = ("_always", "_by_key", "_by_root")

    def __init__(self, filed: Sequence[Filed]) -> None:
        rate = rates(filed)
        rooms: defaultdict[Path, list[tuple[Way, Filed]]] = defaultdict(list)
        always: list[int] = []
        for entry in filed:
            open_ways = [
                way for way in entry.ways if entry.copies == 1 or entry.copies * len(way.keys) <= MOST_COPIES
            ]
            if not open_ways:
                always.append(entry.number)
                continue
            best = min(open_ways, key=rate)
            rest = tuple(way for way in entry.ways if way is not best)
            rooms[best.path].append((best, Filed(entry.number, rest, entry.copies * max(1, len(best.keys)))))
        by_key: defaultdict[str, list[Door]] = defaultdict(list)
        by_root: list[tuple[str, Door]] = []
        for path, inside in rooms.items():
            for door in _doors(path, inside):
                if path.root != "inputPayload" or not path.segments:
                    by_root.append((path.root, Beneath(door) if path.segments else door))
                else:
                    by_key[path.segments[0]].append(Beneath(door) if path.segments[1:] else door)
        self._always = tuple(always)
        self._by_root = tuple(by_root)
        self._by_key = {key: tuple(doors) for key, doors in by_key.items()}

    def open(self, facts: Facts, work: list[Bucket]) -> None:
        """Add to the work every bucket that the call may concern."""
        document, by_key = facts.document, self._by_key
        if self._always:
            work.append(self._always)
        for root, door in self._by_root:
            door.open(document.get(root, MISSING), facts, work)
        if by_key:
            for key, value in _members(document.get("inputPayload"), by_key):
                doors = by_key.get(key)
                if doors is not None:
                    for door in doors:
                        door.open(value, facts, work)


def _members(payload: Json, known: Mapping[str, object]) -> Iterable[tuple[str, Json]]:
    """The members of the payload, or only those whose keys are known, if it has many. Only an object is
    entered by its keys; through anything else try every door."""
    if payload.__class__ is not dict:
        return [(key, MISSING) for key in known]
    members: Iterable[tuple[str, Json]] = payload.items()
    if len(payload) > MANY_KEYS:
        members = [(key, payload[key]) for key in known.keys() & payload.keys()]
    return members


def _doors(path: Path, filed: Sequence[tuple[Way, Filed]]) -> Iterator[Door]:
    """All that one path decides in one node."""
    keyed: dict[str, defaultdict[str, list[Filed]]] = {
        "equal": defaultdict(list),
        "words": defaultdict(list),
        "shape": defaultdict(list),
    }
    above: list[tuple[float, Filed]] = []
    below: list[tuple[float, Filed]] = []
    present: list[Filed] = []
    for way, entry in filed:
        if way.keys:
            for key in way.keys:
                keyed[way.kind][key].append(entry)
        elif way.kind == "above":
            above.append((way.bound, entry))
        elif way.kind == "below":
            below.append((-way.bound, entry))
        else:
            present.append(entry)
    equal, words, shapes = (
        {key: _bucket(bucket) for key, bucket in buckets.items()} for buckets in keyed.values()
    )
    if equal:
        yield Equal(path, equal)
    if words:
        yield Written(path, words)
    if shapes:
        yield Shaped(path, shapes)
    if above:
        yield Above(path, above, _bucket)
    if below:
        yield Below(path, below, _bucket)
    if present:
        yield There(path, _bucket(present))


def _bucket(filed: Sequence[Filed]) -> Bucket:
    if len(filed) > FULL and any(entry.ways for entry in filed):
        return Node(filed)
    return filed[0].number if len(filed) == 1 else tuple(entry.number for entry in filed)


# ---- the whole -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """What an index holds: its items, and how many of them offer each kind of way."""

    items: int
    ways: Mapping[str, int]


class Index(Generic[Item]):
    """The tree over a fixed sequence of items. Inside, items are their numbers: leaves that hold nothing else
    are small, and no work for the garbage collector."""

    __slots__ = ("_items", "_root", "counts", "unindexed")

    def __init__(self, items: Iterable[tuple[Item, Iterable[Hint]]]) -> None:
        shared: dict[int, tuple[Way, ...]] = {}
        keep: list[Hint] = []
        filed: list[Filed] = []
        all_items: list[Item] = []
        unindexed: list[Item] = []
        kinds: Counter[str] = Counter()
        for number, (item, hints) in enumerate(items):
            mine: list[Way] = []
            for hint in hints:
                found = shared.get(id(hint))
                if found is None:
                    found = shared[id(hint)] = ways(hint)
                    keep.append(hint)
                mine += found
            if all(way.kind in ("present", "shape") for way in mine):
                unindexed.append(item)
            kinds.update({way.kind for way in mine})
            all_items.append(item)
            filed.append(Filed(number, tuple(mine[:MOST_WAYS])))
        self._items = tuple(all_items)
        self.unindexed = tuple(unindexed)
        self.counts = Counts(len(filed), dict(kinds))
        self._root = Node(filed)
        for waste in (filed, keep):
            while waste:  # freeing all at once would hold the interpreter lock for 50 ms
                del waste[-1000:]

    def candidates(self, facts: Facts) -> list[Item]:
        """Every item that the call may concern, once each, and perhaps others."""
        found: set[int] = set()
        work: list[Bucket] = [self._root]
        for bucket in work:  # which grows while it is gone through
            if isinstance(bucket, int):
                found.add(bucket)
            elif isinstance(bucket, tuple):
                found.update(bucket)
            else:
                bucket.open(facts, work)
        items = self._items
        return [items[number] for number in found]
