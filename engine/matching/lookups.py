"""The lookups of the index: which buckets one path of a call picks.

    ValueLookup        its values      by a hash map
    LiteralLookup      its text        by the literals in it, see `multi_search.LiteralSearch`, and by
                                       phrases, any white space in the text being one blank
    PlaceLookup        its text        by what it begins or ends with, out of a hash map
    PatternSetLookup   its text        by the patterns that match it, see `multi_search.PatternSearch`
    LowerBoundLookup   its numbers     the lower bounds up to the greatest, by bisection
    UpperBoundLookup   its numbers     the upper bounds from the least on
    PresenceLookup     whether it leads anywhere
    TypedLookup        as one of these, or everything if its value is of another type

A lookup is given the value that its path names, where that is a member of the call or of its payload. A lone
text or number, the usual case, is looked at directly; for everything else it asks the facts.

INVARIANT: a lookup collects every bucket that was entered under what `Facts` shows at its path; others are
allowed.

Knows nothing of policies, nor of which access path a policy is entered by.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from engine.derived.facts import MISSING, Facts
from engine.fields.paths import Path
from engine.fields.required_literals import forms
from engine.fields.scalars import value_keys
from engine.matching.multi_search import FEW, LiteralSearch, PatternSearch
from engine.matching.selectivity import IndexEntry
from engine.model import Json

MANY_KEYS: Final = 16
"""So many keys are first asked, all at once, which of them are known."""

MOST_PLACED: Final = 256
"""Literals that are looked up by where they stand in a text."""

BLOCK: Final = 64
"""Members of a block of thresholds, each a bucket of its own."""


Bucket = Any
"""What lies behind a lookup: an item, a tuple of several, or the next level of the tree."""


class Lookup(Protocol):
    """One path, looked up in one kind of access."""

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        """Add to the work every bucket that the call may concern. `value` is the member that the path names;
        MISSING where the path goes on, or the payload is no object."""


class ValueLookup:
    """Values pick buckets out of a hash map."""

    __slots__ = ("_path", "buckets")

    def __init__(self, path: Path, buckets: dict[str, Bucket]) -> None:
        self._path = path
        self.buckets = buckets

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        buckets = self.buckets
        if value.__class__ is str:  # which is its own key, see `scalars.value_keys`
            bucket = buckets.get(value)
            if bucket is not None:
                work.append(bucket)
            return
        keys: Collection[str]
        if value is MISSING:
            keys = facts.at(self._path).keys()
        elif value.__class__ is list:
            keys = {_LIST}
            for item in value:
                if item.__class__ is str:
                    keys.add(item)
                else:
                    keys.update(value_keys(item))
        else:
            keys = value_keys(value)
        for key in keys if len(keys) <= MANY_KEYS else buckets.keys() & keys:
            bucket = buckets.get(key)
            if bucket is not None:
                work.append(bucket)


(_LIST,) = value_keys([])
"""The key of every list."""


class LiteralLookup:
    """The text picks buckets by the literals in it; with phrases among them, in the form of phrases too. Few
    literals are asked for one by one, with as little memory to go through as can be: most levels of a large
    tree are small, and hardly one is in the processor's cache."""

    __slots__ = ("_few", "_many", "_path", "_spaced")

    def __init__(self, path: Path, buckets: dict[str, Bucket], spaced: bool = False) -> None:
        self._path = path
        self._spaced = spaced
        many = len(buckets) > FEW
        self._few = {} if many else buckets
        self._many = LiteralSearch(buckets).find if many else None

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        plain = value.__class__ is str and value.isascii()
        if self._spaced:
            texts = forms(value if plain else facts.at(self._path).folded())
        else:
            texts = (value.casefold() if plain else facts.at(self._path).folded(),)
        for text in texts:
            if self._many is not None:
                work += self._many(text)
            else:  # what `LiteralSearch` does too, without what it goes through until then
                few = self._few
                for literal in few:
                    if literal in text:
                        work.append(few[literal])


class PlaceLookup(LiteralLookup):
    """The literals begin or end the text: what it has there picks buckets out of a hash map, in as many cuts
    as there are lengths. Several texts are searched as a whole."""

    __slots__ = ("_buckets", "_cuts")

    def __init__(self, path: Path, buckets: dict[str, Bucket], cuts: Sequence[slice]) -> None:
        super().__init__(path, buckets)
        self._buckets = buckets
        self._cuts = tuple(cuts)

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        if value.__class__ is str and value.isascii():
            text, buckets = value.casefold(), self._buckets
            for cut in self._cuts:
                bucket = buckets.get(text[cut])
                if bucket is not None:
                    work.append(bucket)
        else:
            super().collect(value, facts, work)


def at_place(path: Path, buckets: dict[str, Bucket], cuts: Sequence[slice]) -> LiteralLookup:
    """The lookup of literals that stand where the text is cut. A cut costs what two literals do that are
    looked for anywhere; of large levels the automaton is in the processor's cache, and quicker."""
    placed = len(cuts) * 2 <= len(buckets) <= MOST_PLACED
    return PlaceLookup(path, buckets, cuts) if placed else LiteralLookup(path, buckets)


class PatternSetLookup:
    """The text picks buckets by the patterns that match it. It is not asked about a text without capitals, if
    all the patterns need one."""

    __slots__ = ("_capital", "_find", "_path")

    def __init__(self, path: Path, buckets: Mapping[str, Bucket], capital: bool = False) -> None:
        self._path = path
        self._capital = capital
        self._find = PatternSearch(buckets).find

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        plain = value.__class__ is str and value.isascii()
        if plain and self._capital and value.casefold() == value:
            return
        work += self._find((value.encode(),) if plain else facts.at(self._path).encoded())


class LowerBoundLookup:
    """The greatest number picks every bound up to it: whole blocks of them as buckets, made by `bucket`, and
    the rest one by one."""

    __slots__ = ("_blocks", "_bounds", "_items", "_path")

    def __init__(
        self,
        path: Path,
        entries: list[tuple[float, IndexEntry]],
        bucket: Callable[[Sequence[IndexEntry]], Bucket],
    ) -> None:
        entries.sort(key=lambda entry: entry[0])
        ordered = [entry for _, entry in entries]
        whole = range(0, len(ordered) - BLOCK + 1, BLOCK)
        self._path = path
        self._bounds = [bound for bound, _ in entries]
        self._items = tuple(entry.item for entry in ordered)
        self._blocks = tuple(bucket(ordered[at : at + BLOCK]) for at in whole)

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        self._up_to(value if value.__class__ is int else facts.at(self._path).greatest(), work)

    def _up_to(self, number: float, work: list[Bucket]) -> None:
        end = bisect_right(self._bounds, number)
        if end:
            whole = end // BLOCK
            work += self._blocks[:whole]
            work.append(self._items[whole * BLOCK : end])


class UpperBoundLookup(LowerBoundLookup):
    """The same upside down: every number, and so every bound, with its sign changed."""

    __slots__ = ()

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        self._up_to(-(value if value.__class__ is int else facts.at(self._path).least()), work)


class PresenceLookup:
    """Picks its bucket whenever the path leads anywhere."""

    __slots__ = ("_bucket", "_path")

    def __init__(self, path: Path, bucket: Bucket) -> None:
        self._path = path
        self._bucket = bucket

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        if facts.at(self._path).ends:
            work.append(self._bucket)


class TypedLookup:
    """A lookup for values of certain types; any other value picks all that it leads to."""

    __slots__ = ("_all", "_lookup", "_types")

    def __init__(self, lookup: Lookup, types: frozenset[type], every: Bucket) -> None:
        self._lookup = lookup
        self._types = types
        self._all = every

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        if value.__class__ in self._types:
            self._lookup.collect(value, facts, work)
        else:
            work.append(self._all)


class NestedLookup:
    """A lookup whose path goes on from the member that it would be given."""

    __slots__ = ("_lookup", "_rest")

    def __init__(self, lookup: Lookup, rest: tuple[str, ...]) -> None:
        self._lookup = lookup
        self._rest = rest

    def collect(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        for key in self._rest:
            if value.__class__ is not dict:
                value = MISSING
                break
            value = value.get(key, MISSING)
            if value is MISSING:
                return  # the path leads nowhere, where no lookup finds anything
        self._lookup.collect(value, facts, work)
