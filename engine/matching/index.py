r"""Which policies can match a call at all: a tree of lookups that narrows a hundred thousand to a few.

Each condition carries hints: what must be so for it to be anything but FALSE. A policy needs all its
conditions, so any one hint of any condition will do to find it by. It is entered under the one that fewest
calls should fulfil - a literal that hardly any other policy has, an account number, a tool name - and a
bucket that is still too full is split again by another hint of its members. That recursion is the tree.

    P1  toolName equals wire      AND inputPayload.amount greater_than 10000
    P2  toolName equals wire      AND inputPayload.to matches (?i)@evil\.(com|org)
    P3  inputPayload.cmd contains "rm -rf"
    P4  inputPayload.cmd matches  [0-9]{16}
    P5  toolName not_equals wire

    TreeNode
    ├─ toolName            ValueLookup       "wire" ──> TreeNode (if P1, P2 and others are many)
    │                                          ├─ inputPayload.amount  LowerBoundLookup  10000 ──> P1
    │                                          └─ inputPayload.to      LiteralLookup     "@evil.com" ──> P2
    │                                                                                    "@evil.org" ──> P2
    ├─ inputPayload.cmd    LiteralLookup     "rm -rf" ──> P3
    │                      PatternSetLookup  [0-9]{16} ──> P4
    └─ always              P5

For a call, each lookup whose path it has picks buckets: by its values out of a hash map, by its text through
one automaton, by its number with bisection. Lookups on payload paths are found by the payload's own keys, so
a path that the call lacks costs nothing. The buckets go on a list of work, levels of the tree among them,
until the list is done. What comes out are candidates; predicates decide.

INVARIANT: too many candidates are allowed, too few never: every policy that `scan` reports is among them.
Each step keeps it: a hint is necessary (`fields.hints`), any hint that cannot be looked up exactly is
widened or dropped, and a policy whose hints are all dropped is in `always`.

Which hint is best is decided in `selectivity`, which buckets a path of a call picks in `lookups`, what a call
shows there in `derived.facts`. Items are opaque here: anything hashable but a tuple, with its hints. Knows
nothing of verdicts or actions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from engine.derived.facts import MISSING, Facts
from engine.fields.computed import MEMBERS
from engine.fields.hints import Hint
from engine.fields.paths import Path
from engine.matching.lookups import (
    Bucket,
    LiteralLookup,
    Lookup,
    LowerBoundLookup,
    NestedLookup,
    PatternSetLookup,
    PresenceLookup,
    TypedLookup,
    UpperBoundLookup,
    ValueLookup,
    at_place,
)
from engine.matching.selectivity import AccessPath, IndexEntry, access_paths, costs

Item = TypeVar("Item")

FULL: Final = 4
"""A bucket with more members is split, if its members have hints left."""

MOST_COPIES: Final = 4096
"""How often one policy may be entered below the first level; an `in` list enters it
under each of its values."""

MOST_ACCESS_PATHS: Final = 32
"""Access paths kept of one policy; also how deep the tree can grow."""


def _usable(entry: IndexEntry) -> Sequence[AccessPath]:
    """Those of its access paths that do not enter it too often."""
    if entry.copies == 1:
        return entry.access_paths
    return [each for each in entry.access_paths if entry.copies * len(each.keys) <= MOST_COPIES]


class TreeNode:
    """One level of the tree: the lookups, and the items that none of them leads to."""

    __slots__ = ("_always", "_by_key", "_by_root", "_computed")

    def __init__(self, entries: Sequence[IndexEntry]) -> None:
        usable_of = [_usable(entry) for entry in entries]
        cost = costs(usable_of).__getitem__
        by_path: defaultdict[str, list[Entered]] = defaultdict(list)
        always: list[Any] = []
        for entry, usable in zip(entries, usable_of, strict=True):
            if not usable:
                always.append(entry.item)
                continue
            best = min(usable, key=cost)
            rest = tuple([access for access in entry.access_paths if access is not best])
            copies = entry.copies * (len(best.keys) or 1)
            by_path[best.path.text].append((best, IndexEntry(entry.item, rest, copies)))
        by_key: defaultdict[str, _AtKey] = defaultdict(_AtKey)
        by_root: list[tuple[str, Lookup]] = []
        computed: list[Lookup] = []
        for inside in by_path.values():
            path = inside[0][0].path
            for lookup in _lookups(path, inside):
                if path.root in MEMBERS or path.text == "outputPayload":
                    computed.append(lookup)  # see `facts.LOOKED_INTO`; the input is no text
                elif path.root != "inputPayload" or not path.segments:
                    by_root.append((path.root, _nested(lookup, path.segments)))
                elif isinstance(lookup, ValueLookup) and len(path.segments) == 1:
                    by_key[path.segments[0]].equal = lookup
                else:
                    by_key[path.segments[0]].others += (_nested(lookup, path.segments[1:]),)
        self._always = tuple(always)
        self._by_root = tuple(by_root)
        self._computed = tuple(computed)
        self._by_key = dict(by_key)

    def collect(self, facts: Facts, work: list[Bucket]) -> None:
        """Add to the work every bucket that the call may concern."""
        document, by_key = facts.document, self._by_key
        if self._always:
            work.append(self._always)
        for root, lookup in self._by_root:
            lookup.collect(document.get(root, MISSING), facts, work)
        for lookup in self._computed:  # what the caller sent under that name is not what is looked at
            lookup.collect(MISSING, facts, work)
        if not by_key:
            return
        payload = document.get("inputPayload")
        if payload.__class__ is not dict:  # which is entered by its keys; of anything else all is asked
            payload = dict.fromkeys(by_key, MISSING)
        less, more = (by_key, payload) if len(by_key) <= len(payload) else (payload, by_key)
        for key in less:
            if key not in more:
                continue
            value, here = payload[key], by_key[key]
            equal = here.equal
            if equal is not None:
                if value.__class__ is str:  # which `ValueLookup` does too, for the price of a call
                    bucket = equal.buckets.get(value)
                    if bucket is not None:
                        work.append(bucket)
                else:
                    equal.collect(value, facts, work)
            for lookup in here.others:
                lookup.collect(value, facts, work)


class _AtKey:
    """The lookups that begin at one key of the payload: of its own value, and all others."""

    __slots__ = ("equal", "others")

    def __init__(self) -> None:
        self.equal: ValueLookup | None = None
        self.others: tuple[Lookup, ...] = ()


def _nested(lookup: Lookup, rest: tuple[str, ...]) -> Lookup:
    return NestedLookup(lookup, rest) if rest else lookup


Entered = tuple[AccessPath, IndexEntry]
"""An entry, and what it is found by."""


def _lookups(path: Path, entries: Sequence[Entered]) -> Iterator[Lookup]:
    """All that one path decides in one node."""
    by_types: defaultdict[frozenset[type] | None, list[Entered]] = defaultdict(list)
    for each in entries:
        by_types[each[0].types].append(each)
    for types, chosen in by_types.items():
        for lookup in _of_any_type(path, chosen):
            if types is not None:
                lookup = TypedLookup(lookup, types, tuple([entry.item for _, entry in chosen]))
            yield lookup


def _of_any_type(path: Path, entries: Sequence[Entered]) -> Iterator[Lookup]:
    keyed: defaultdict[str, defaultdict[str, list[IndexEntry]]] = defaultdict(lambda: defaultdict(list))
    above: list[tuple[float, IndexEntry]] = []
    below: list[tuple[float, IndexEntry]] = []
    present: list[IndexEntry] = []
    spaced = False
    for access, entry in entries:
        if access.keys:
            spaced = spaced or access.kind == "phrase"
            buckets = keyed["words" if access.kind == "phrase" else access.kind]
            for key in access.keys:
                buckets[key].append(entry)
        elif access.kind == "above":
            above.append((access.bound, entry))
        elif access.kind == "below":
            below.append((-access.bound, entry))
        else:
            present.append(entry)
    made = {
        kind: {key: _bucket(bucket) for key, bucket in buckets.items()} for kind, buckets in keyed.items()
    }
    if "equal" in made:
        yield ValueLookup(path, made["equal"])
    if "words" in made:
        yield LiteralLookup(path, made["words"], spaced)
    if starts := made.get("start"):
        yield at_place(path, starts, [slice(length) for length in set(map(len, starts))])
    if ends := made.get("end"):
        yield at_place(path, ends, [slice(-length, None) for length in set(map(len, ends))])
    if "shape" in made:
        yield PatternSetLookup(path, made["shape"])
    if "capital" in made:
        yield PatternSetLookup(path, made["capital"], True)
    if above:
        yield LowerBoundLookup(path, above, _bucket)
    if below:
        yield UpperBoundLookup(path, below, _bucket)
    if present:
        yield PresenceLookup(path, _bucket(present))


def _bucket(entries: Sequence[IndexEntry]) -> Bucket:
    if len(entries) == 1:
        return entries[0].item
    if len(entries) > FULL and any(entry.access_paths for entry in entries):
        return TreeNode(entries)
    return tuple([entry.item for entry in entries])


# ---- the whole -----------------------------------------------------------------------------------------


class Index(Generic[Item]):
    """The tree over a fixed sequence of items. Its leaves are the items themselves, since each object that
    leads to one is memory that no cache has."""

    __slots__ = ("_root", "unindexed")

    def __init__(self, items: Iterable[tuple[Item, Iterable[Hint]]]) -> None:
        shared: dict[int, tuple[AccessPath, ...]] = {}
        keep: list[Hint] = []
        entries: list[IndexEntry] = []
        unindexed: list[Item] = []
        for item, hints in items:
            mine: list[AccessPath] = []
            for hint in hints:
                found = shared.get(id(hint))
                if found is None:
                    found = shared[id(hint)] = access_paths(hint)
                    keep.append(hint)
                mine += found
            if all(access.kind in ("present", "shape", "capital") for access in mine):
                unindexed.append(item)
            entries.append(IndexEntry(item, tuple(mine[:MOST_ACCESS_PATHS])))
        self.unindexed = tuple(unindexed)
        self._root = TreeNode(entries)
        for waste in (entries, keep):
            while waste:  # freeing all at once would hold the interpreter lock for 50 ms
                del waste[-1000:]

    def candidates(self, facts: Facts) -> list[Item]:
        """Every item that the call may concern, once each, and perhaps others."""
        found: set[Item] = set()
        work: list[Bucket] = [self._root]
        for bucket in work:  # which grows while it is gone through
            if bucket.__class__ is tuple:
                found.update(bucket)
            elif bucket.__class__ is TreeNode:
                bucket.collect(facts, work)
            else:
                found.add(bucket)
        return list(found)
