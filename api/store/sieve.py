"""Which ids are certainly not in the directory's table: nearly all that are asked for, since most are new.

To look for an id in a large table costs some microseconds and a page of it, to look at one bit next to
nothing. So there is one bit for many ids, set when one of them is put in. A bit that is not set says no; one
that is set says nothing, and the table is asked.

What the table had before, when a process starts, is read in the order of its keys, some with each look, so no
start waits for it. Up to `end` the bits are complete, and whatever lies behind is let through.

INVARIANT: an id that is in the table is let through. All that was put in since the sieve was made was added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

Key = tuple[int, int]
"""Owner and hash, see `directory.py`."""

BYTES: Final = 8 * 2**20
"""Of bits. With a million ids every seventieth new one is let through, with ten million every seventh."""
BEGINNING: Final[Key] = (-1, 0)
"""Before every key."""

_MASK: Final = 8 * BYTES - 1
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Calls of different runs may have the same hash, so their runs choose other bits."""


class Sieve:
    """See the module; used inside the writing transaction, one at a time."""

    __slots__ = ("_bits", "end")

    def __init__(self) -> None:
        self._bits = bytearray(BYTES)
        self.end: Key | None = BEGINNING
        """The last key of the table that was read; None: all were."""

    def add(self, ids: Iterable[tuple[int, int, int]]) -> None:
        """These are put in; owner, hash and number each."""
        bits = self._bits
        for owner, hash_, _ in ids:
            spot = (hash_ ^ owner * _SPREAD) & _MASK
            bits[spot >> 3] |= 1 << (spot & 7)

    def learn(self, keys: Sequence[Key], most: int) -> None:
        """The next ones of the table, in order; fewer than `most` are the last."""
        self.add((owner, hash_, 0) for owner, hash_ in keys)
        self.end = keys[-1] if len(keys) == most else None

    def let_through(self, keys: Iterable[Key]) -> list[Key]:
        """Those that may be in the table."""
        bits, end = self._bits, self.end
        through: list[Key] = []
        for key in keys:
            owner, hash_ = key
            spot = (hash_ ^ owner * _SPREAD) & _MASK
            if bits[spot >> 3] >> (spot & 7) & 1 or (end is not None and key > end):
                through.append(key)
        return through
