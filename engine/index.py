"""Which policies can match a call at all: a tree of lookups that narrows a hundred thousand to a few.

The idea. Each condition carries hints: what must be so for it to be anything but FALSE. A policy needs all
its conditions, so any one hint of any condition will do to find it by. It is filed under the one that fewest
calls should fulfil - a literal that hardly any other policy has, an account number, a tool name - and a
bucket that is still too full is split again by another hint of its members. That recursion is the tree.

    P1  toolName equals wire      AND inputPayload.amount greater_than 10000
    P2  toolName equals wire      AND inputPayload.to matches (?i)@evil\\.(com|org)
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

Items are opaque here: anything hashable, with its hints. Knows nothing of verdicts or actions.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from engine.fields import MISSING, Facts, Hint, Literals, OneOf, Path, Regex, Threshold, value_key
from engine.literals import required
from engine.model import Json
from engine.textindex import Shapes, Words

Item = TypeVar("Item")

FULL: Final = 8
"""A bucket with more members is split, if its members have hints left."""

BLOCK: Final = 64
"""Members of a block of thresholds, each a bucket of its own."""

MOST_COPIES: Final = 4096
"""How often one policy may be filed below the first level; an `in` list files it under each of its values."""

FEW_SHAPES: Final = 3
"""So many items with patterns that require no telling literal are worth an RE2 set of their own."""

TELLING: Final = 3
"""Characters from which on a literal tells enough that its pattern needs no place in a set."""


class Way(NamedTuple):
    """One way to find an item, from one of its hints.

    `kind` is `equal`, `words`, `shape` (these have keys), `above`, `below` (these have a bound) or `present`.
    """

    kind: str
    path: Path
    keys: frozenset[str] = frozenset()
    bound: float = 0.0


def ways(hint: Hint) -> tuple[Way, ...]:
    """The ways to find what has this hint; none if it cannot be looked up."""
    present = Way("present", hint.path)
    if isinstance(hint, OneOf):
        return (Way("equal", hint.path, hint.keys),)
    if isinstance(hint, Literals):
        return (Way("words", hint.path, hint.any_of) if _searchable(hint.any_of) else present,)
    if isinstance(hint, Regex):
        clauses = [clause for clause in required(hint.pattern) if _searchable(clause)]
        words = tuple(Way("words", hint.path, clause) for clause in clauses)
        if any(min(map(len, clause)) >= TELLING for clause in clauses):
            return words
        return (*words, Way("shape", hint.path, frozenset({hint.pattern})), present)
    if isinstance(hint, Threshold):
        return (Way("above" if hint.above else "below", hint.path, bound=hint.bound),)
    return (present,)


def _searchable(literals: frozenset[str]) -> bool:
    try:
        return all(literal.encode() for literal in literals)
    except UnicodeEncodeError:
        return False


class View:
    """What a call shows at one path: whether there is anything, and on demand the `value_key`s of its values,
    its casefolded text and its numbers. A lone scalar, the usual case, is looked at directly."""

    __slots__ = ("_facts", "_folded", "_keys", "_path", "_scalar", "present")

    def __init__(self, facts: Facts, path: Path, scalar: Json, present: bool) -> None:
        self._facts = facts
        self._path = path
        self._scalar = scalar
        self.present = present
        self._keys: Collection[str] | None = None
        self._folded: str | None = None

    def keys(self) -> Collection[str]:
        """The distinct keys of all values."""
        keys = self._keys
        if keys is None:
            if self._scalar is not MISSING:
                keys = (value_key(self._scalar),)
            else:
                keys = frozenset(map(value_key, self._facts.values(self._path)))
            self._keys = keys
        return keys

    def folded(self) -> str:
        """All texts, casefolded. Joining them cannot hide what one of them contains."""
        folded = self._folded
        if folded is None:
            text = self._scalar
            if text.__class__ is not str or not text.isascii():
                text = "\n".join(self._facts.texts(self._path))
            folded = self._folded = text.casefold()
        return folded

    def encoded(self) -> tuple[bytes, ...]:
        """Each text by itself, as UTF-8."""
        text = self._scalar
        if text.__class__ is str and text.isascii():
            return (text.encode(),)
        return self._facts.encoded(self._path)

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest number; everything, if something that is not a number is there."""
        numbers, others = self._facts.numbers(self._path)
        if others:
            return -math.inf, math.inf
        return min(numbers, default=math.inf), max(numbers, default=-math.inf)


class Probe:
    """One call on its way through the tree; remembers its views by the text of the path."""

    __slots__ = ("_facts", "payload", "views")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.payload: Json = facts.document.get("inputPayload")
        self.views: dict[str, View] = {}

    def look(self, path: Path) -> View:
        """The view of a path that `views` does not have yet."""
        facts = self._facts
        value: Json = facts.document.get(path.root, MISSING)
        segments = path.segments
        if segments and value.__class__ is dict:
            value = value.get(segments[0], MISSING)
            segments = segments[1:]
        if value is MISSING:
            view = View(facts, path, MISSING, False)
        elif not segments and value.__class__ in _SCALARS:
            view = View(facts, path, value, True)
        else:
            view = View(facts, path, MISSING, facts.ends(path) != ())
        self.views[path.text] = view
        return view


_SCALARS: Final = frozenset({str, int, float, bool})


class Filed(NamedTuple):
    """An item on its way into the tree: the ways that are left, and how many copies of it there are."""

    number: int
    ways: tuple[Way, ...]
    copies: int = 1


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
        rate = _rates(filed)
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


# ---- which way is best ---------------------------------------------------------------------------------

_BY_LENGTH: Final = (1.0, 0.8, 0.4, 0.15, 0.05, 0.02, 0.01, 0.01, 0.01, 0.01, 0.005)
"""How likely a literal of so many characters is taken to occur in a text."""

_OTHERWISE: Final[Mapping[str, float]] = {"shape": 0.3, "above": 0.4, "below": 0.4, "present": 0.6}

LEARN_FROM: Final = 256
"""With so many items in a node, literals that are parts of other literals count as common words."""


def _rates(filed: Sequence[Filed]) -> Callable[[Way], float]:
    """How much work a way is expected to leave, learnt from the items themselves: what many of them name,
    calls will have too."""
    named: Counter[tuple[str, str, str]] = Counter()
    at_path: Counter[str] = Counter()
    seen = Counter(map(id, (way for entry in filed for way in entry.ways if way.keys)))
    by_id = {id(way): way for entry in filed for way in entry.ways if way.keys}
    for identity, times in seen.items():
        way = by_id[identity]
        for key in way.keys:
            named[way.kind, way.path.text, key] += times
        if way.kind == "equal":
            at_path[way.path.text] += times * len(way.keys)
    inside = _inside({key for kind, _, key in named if kind == "words"}) if len(filed) >= LEARN_FROM else {}
    known: dict[int, float] = {}

    def rate(way: Way) -> float:
        found = known.get(id(way))
        if found is None:
            path = way.path.text
            if way.kind == "equal":
                total = max(at_path[path], FULL)
                found = 0.1 * sum(named["equal", path, key] for key in way.keys) / total
            elif way.kind == "words":
                found = sum(
                    _BY_LENGTH[min(len(key), len(_BY_LENGTH) - 1)]
                    * math.sqrt(named["words", path, key] + inside.get(key, 0))
                    for key in way.keys
                )
            else:
                found = _OTHERWISE[way.kind]
            known[id(way)] = found
        return found

    return rate


def _inside(literals: set[str]) -> Mapping[str, int]:
    """How many other literals each literal occurs in."""
    counted: Counter[str] = Counter()
    words = Words({literal: literal for literal in literals}) if literals else None
    if words is not None:
        for literal in literals:
            counted.update(words.find(literal))
    return {literal: times - 1 for literal, times in counted.items() if times > 1}


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
            filed.append(Filed(number, tuple(mine)))
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
