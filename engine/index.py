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
    ├─ door toolName            equal    "wire" ──> Node (if P1, P2 and others are many)
    │                                               ├─ door inputPayload.amount   above   10000 ──> P1
    │                                               └─ door inputPayload.to       words   "@evil.com" ──> P2
    │                                                                                     "@evil.org" ──> P2
    ├─ door inputPayload.cmd    words    "rm -rf"   ──> P3
    │                           shapes   [0-9]{16}  ──> P4
    └─ always                   P5

A call walks in: for each door whose path it has, its values pick buckets out of a hash map, its text picks
them through one automaton, its number by bisection. Doors of payload paths are found by the payload's own
keys, so a path that the call lacks costs nothing. What comes out are candidates; predicates decide.

INVARIANT: too many candidates are allowed, too few never: every policy that `scan` reports is among them.
Each step keeps it: a hint is necessary (`fields.Hint`), any hint that cannot be looked up exactly is
widened or dropped, and a policy whose hints are all dropped is in `always`.

Which hint is best is learnt in `ways`, what a call shows is in `probe`, texts are searched in `textindex`.
Items are opaque here: anything hashable, with its hints. Knows nothing of verdicts or actions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from engine.fields import Hint, Path
from engine.probe import Probe
from engine.textindex import Shapes, Words
from engine.ways import Filed, Way, rates, ways

Item = TypeVar("Item")

FULL: Final = 8
"""A bucket with more members is split, if its members have hints left."""

BLOCK: Final = 64
"""Members of a block of thresholds, each a bucket of its own."""

MOST_COPIES: Final = 4096
"""How often one policy may be filed below the first level; an `in` list files it under each of its values."""

FEW_SHAPES: Final = 3
"""So many items with patterns that require no telling literal are worth an RE2 set of their own."""

MOST_WAYS: Final = 32
"""Ways kept of one policy; also how deep the tree can grow."""


class Bounds:
    """Lower bounds in ascending order; a number opens all buckets up to it."""

    __slots__ = ("_blocks", "_bounds", "_numbers")

    def __init__(self, entries: list[tuple[float, Filed]]) -> None:
        entries.sort(key=lambda entry: entry[0])
        self._bounds = [bound for bound, _ in entries]
        self._numbers = tuple(filed.number for _, filed in entries)
        filed = [filed for _, filed in entries]
        whole = range(0, len(filed) - BLOCK + 1, BLOCK)
        self._blocks = tuple(_bucket(filed[at : at + BLOCK]) for at in whole)

    def collect(self, number: float, probe: Probe, found: set[int]) -> None:
        end = bisect_right(self._bounds, number)
        whole = end // BLOCK
        for block in self._blocks[:whole]:
            _open(block, probe, found)
        found.update(self._numbers[whole * BLOCK : end])


class Door:
    """All that one path decides in one node. `present` opens whenever the path leads anywhere."""

    __slots__ = ("_above", "_below", "_equal", "_name", "_path", "_present", "_shapes", "_words")

    def __init__(self, path: Path, filed: Sequence[tuple[Way, Filed]]) -> None:
        self._path = path
        self._name = path.text
        equal: defaultdict[str, list[Filed]] = defaultdict(list)
        words: defaultdict[str, list[Filed]] = defaultdict(list)
        shapes: defaultdict[str, list[Filed]] = defaultdict(list)
        above: list[tuple[float, Filed]] = []
        below: list[tuple[float, Filed]] = []
        present: list[Filed] = []
        keyed = {"equal": equal, "words": words, "shape": shapes}
        for way, entry in filed:
            if way.kind in keyed:
                for key in way.keys:
                    keyed[way.kind][key].append(entry)
            elif way.kind == "above":
                above.append((way.bound, entry))
            elif way.kind == "below":
                below.append((-way.bound, entry))
            else:
                present.append(entry)
        if sum(map(len, shapes.values())) < FEW_SHAPES:
            present += (entry for bucket in shapes.values() for entry in bucket)
            shapes.clear()
        self._equal = {key: _bucket(bucket) for key, bucket in equal.items()} if equal else None
        self._words = Words({key: _bucket(bucket) for key, bucket in words.items()}) if words else None
        self._shapes = Shapes({key: _bucket(bucket) for key, bucket in shapes.items()}) if shapes else None
        self._above = Bounds(above) if above else None
        self._below = Bounds(below) if below else None
        self._present = _bucket(present) if present else None

    def collect(self, probe: Probe, found: set[int]) -> None:
        """Add every item behind this door that the call may concern."""
        view = probe.views.get(self._name)
        if view is None:
            view = probe.look(self._path)
        if not view.present:
            return
        equal = self._equal
        if equal is not None:
            keys = view.keys()
            for key in keys if len(keys) <= FULL else equal.keys() & keys:
                bucket = equal.get(key)
                if bucket is not None:
                    _open(bucket, probe, found)
        if self._words is not None:
            for bucket in self._words.find(view.folded()):
                _open(bucket, probe, found)
        if self._shapes is not None:
            for bucket in self._shapes.find(view.encoded()):
                _open(bucket, probe, found)
        if self._present is not None:
            _open(self._present, probe, found)
        if self._above is not None:
            self._above.collect(view.extremes()[1], probe, found)
        if self._below is not None:
            self._below.collect(-view.extremes()[0], probe, found)


class Node:
    """One level of the tree: the doors, and what no door leads to."""

    __slots__ = ("_always", "_by_key", "_plain")

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
        self._always = tuple(always)
        by_key: defaultdict[str, list[Door]] = defaultdict(list)
        plain: list[Door] = []
        for path, inside in rooms.items():
            in_payload = path.root == "inputPayload" and path.segments
            (by_key[path.segments[0]] if in_payload else plain).append(Door(path, inside))
        self._plain = tuple(plain)
        self._by_key = {key: tuple(doors) for key, doors in by_key.items()}

    def collect(self, probe: Probe, found: set[int]) -> None:
        """Add every item that the call may concern."""
        if self._always:
            found.update(self._always)
        for door in self._plain:
            door.collect(probe, found)
        by_key = self._by_key
        if by_key:
            payload = probe.payload
            keys: Iterable[str]
            if payload.__class__ is not dict:
                keys = by_key  # only an object is entered by its keys; through anything else try every door
            else:
                keys = payload if len(payload) <= 2 * FULL else by_key.keys() & payload.keys()
            for key in keys:
                for door in by_key.get(key, ()):
                    door.collect(probe, found)

    def simplest(self) -> Node | Door:
        """This node, or its only door."""
        doors = [*self._plain, *(door for doors in self._by_key.values() for door in doors)]
        return doors[0] if len(doors) == 1 and not self._always else self


Bucket = int | tuple[int, ...] | Door | Node


def _open(bucket: Bucket, probe: Probe, found: set[int]) -> None:
    if isinstance(bucket, int):
        found.add(bucket)
    elif isinstance(bucket, tuple):
        found.update(bucket)
    else:
        bucket.collect(probe, found)


def _bucket(filed: Sequence[Filed]) -> Bucket:
    if len(filed) > FULL and any(entry.ways for entry in filed):
        return Node(filed).simplest()
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

    def collect(self, probe: Probe, found: set[Item]) -> None:
        """Add every item that the call may concern to `found`, and perhaps others."""
        numbers: set[int] = set()
        self._root.collect(probe, numbers)
        if numbers:
            found.update(map(self._items.__getitem__, numbers))
