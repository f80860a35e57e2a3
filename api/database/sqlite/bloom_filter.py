"""A Bloom filter of one bit an id: which ids are certainly in no row, as nearly all that are asked for.

To look for an id in a large table costs some microseconds and a page of it, to look at one bit next to
nothing. A bit is set when one of its ids is put in. A bit that is not set says no; one that is set says
nothing, and `id_index.py` asks its memtables and its table.

What the table had before, when a process starts, is read in the order of its keys, some with each look, so no
start waits for it. Up to `end` the bits are complete, and whatever lies behind might be there.

The bits are few at first, since few stay in the processor's caches, and are doubled as long as that pays.

INVARIANT: an id that was committed might be there: all that was put in since the filter was made was added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Key = tuple[int, int]
"""Owner and hash, see `id_index.py`."""

LEAST: Final = 2**20
"""Bytes of bits at first."""
MOST: Final = 2**24
"""Bytes of bits at last. Then some eighth of the new ids might be there with ten million ids, and half with a
hundred million."""
BITS: Final = 32
"""Bits for each id: with fewer they are doubled."""
BEGINNING: Final[Key] = (-1, 0)
"""Before every key."""

_SPREAD: Final = 0x9E3779B97F4A7C15
"""Calls of different runs may have the same hash, so their runs choose other bits."""


class BloomFilter:
    """See the module; used inside the writing transaction, one at a time."""

    __slots__ = ("_bits", "_count", "_mask", "end")

    def __init__(self) -> None:
        self._bits = bytearray(LEAST)
        self._mask = 8 * LEAST - 1
        self._count = 0
        self.end: Key | None = BEGINNING
        """The last key of the table that was read; None: all were."""

    def add(self, ids: Sequence[tuple[int, ...]]) -> None:
        """These are put in; owner and hash come first in each."""
        bits, mask = self._bits, self._mask
        for each in ids:
            spot = (each[1] ^ each[0] * _SPREAD) & mask
            bits[spot >> 3] |= 1 << (spot & 7)
        self._count += len(ids)
        while self._count * BITS > 8 * len(self._bits) and len(self._bits) < MOST:
            self._bits *= 2  # an id of before has two bits now, one of which will be asked for
            self._mask = 8 * len(self._bits) - 1

    def learn(self, keys: Sequence[Key], most: int) -> None:
        """The next ones of the table, in order; fewer than `most` are the last."""
        self.add(keys)
        self.end = keys[-1] if len(keys) == most else None

    def might_contain(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Those of the keys that might be in memory or table."""
        bits, mask, end = self._bits, self._mask, self.end
        possible: list[Key] = []
        for key in keys:
            owner, hash_ = key
            spot = (hash_ ^ owner * _SPREAD) & mask
            if bits[spot >> 3] >> (spot & 7) & 1 or (end is not None and key > end):
                possible.append(key)
        return possible
