"""The doors of the index: what one path of a call opens, each in its own way.

    Equal     its values        a hash map
    Written   its text          literals in it, see `textindex.Words`
    Shaped    its text          patterns that match it, see `textindex.Shapes`
    Above     its numbers       the lower bounds up to the greatest, by bisection
    Below     its numbers       the upper bounds from the least on
    There     whether it leads anywhere

A door is handed the value that its path names, where that is a member of the call or of its payload. A lone
text or number, the usual case, is looked at directly; whatever else there is, the door asks the facts about.

INVARIANT: a door opens every bucket that was filed under what `Facts` shows at its path; more is allowed.

Knows nothing of policies, nor of which way a policy is filed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from engine.fields.facts import MISSING, Facts
from engine.fields.paths import Path
from engine.matching.multi_search import Shapes, Words
from engine.matching.selectivity import Filed
from engine.model import Json

MANY_KEYS: Final = 16
"""So many keys are first asked, all at once, which of them are known."""

BLOCK: Final = 64
"""Members of a block of thresholds, each a bucket of its own."""


class Level(Protocol):
    """A level of the tree."""

    def open(self, facts: Facts, work: list[Bucket]) -> None:
        """Add to the work every bucket that the call may concern."""


Bucket = int | tuple[int, ...] | Level
"""What lies behind a door: an item, several, or the next level of the tree."""


class Door(Protocol):
    """What one path decides in one way."""

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        """Add to the work every bucket that the call may concern. `value` is the member that the path names;
        MISSING where the path goes on, or the payload is no object."""


class Equal:
    """Values pick buckets out of a hash map."""

    __slots__ = ("_buckets", "_path")

    def __init__(self, path: Path, buckets: dict[str, Bucket]) -> None:
        self._path = path
        self._buckets = buckets

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        buckets = self._buckets
        if value.__class__ is str:  # which is its own key, see `texts.value_keys`
            bucket = buckets.get(value)
            if bucket is not None:
                work.append(bucket)
            return
        keys = facts.at(self._path).keys()
        for key in keys if len(keys) <= MANY_KEYS else buckets.keys() & keys:
            bucket = buckets.get(key)
            if bucket is not None:
                work.append(bucket)


class Written:
    """The text picks buckets by the literals in it."""

    __slots__ = ("_find", "_path")

    def __init__(self, path: Path, buckets: Mapping[str, Bucket]) -> None:
        self._path = path
        self._find = Words(buckets).find

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        plain = value.__class__ is str and value.isascii()
        work += self._find(value.casefold() if plain else facts.at(self._path).folded())


class Shaped:
    """The text picks buckets by the patterns that match it."""

    __slots__ = ("_find", "_path")

    def __init__(self, path: Path, buckets: Mapping[str, Bucket]) -> None:
        self._path = path
        self._find = Shapes(buckets).find

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        plain = value.__class__ is str and value.isascii()
        work += self._find((value.encode(),) if plain else facts.at(self._path).encoded())


class Above:
    """The greatest number opens every bound up to it: whole blocks of them as buckets, made by `bucket`, and
    the rest one by one."""

    __slots__ = ("_blocks", "_bounds", "_numbers", "_path")

    def __init__(
        self, path: Path, entries: list[tuple[float, Filed]], bucket: Callable[[Sequence[Filed]], Bucket]
    ) -> None:
        entries.sort(key=lambda entry: entry[0])
        filed = [entry for _, entry in entries]
        whole = range(0, len(filed) - BLOCK + 1, BLOCK)
        self._path = path
        self._bounds = [bound for bound, _ in entries]
        self._numbers = tuple(entry.number for entry in filed)
        self._blocks = tuple(bucket(filed[at : at + BLOCK]) for at in whole)

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        self._up_to(value if value.__class__ is int else facts.at(self._path).greatest(), work)

    def _up_to(self, number: float, work: list[Bucket]) -> None:
        end = bisect_right(self._bounds, number)
        if end:
            whole = end // BLOCK
            work += self._blocks[:whole]
            work.append(self._numbers[whole * BLOCK : end])


class Below(Above):
    """The same upside down: every number, and so every bound, with its sign changed."""

    __slots__ = ()

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        self._up_to(-(value if value.__class__ is int else facts.at(self._path).least()), work)


class There:
    """Opens whenever the path leads anywhere."""

    __slots__ = ("_bucket", "_path")

    def __init__(self, path: Path, bucket: Bucket) -> None:
        self._path = path
        self._bucket = bucket

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        if facts.at(self._path).ends:
            work.append(self._bucket)


class Beneath:
    """A door whose path goes on from the member that it would be handed."""

    __slots__ = ("_door",)

    def __init__(self, door: Door) -> None:
        self._door = door

    def open(self, value: Json, facts: Facts, work: list[Bucket]) -> None:
        self._door.open(MISSING, facts, work)
