"""Which row has an id: an index of events and tool calls whose entries are put in later, in order.

An index that every new row enters at once costs a page of its own per row, since ids are random: more than
all the rest of a commit. So new entries stay in memory at first, and when there are enough of them, they are
filed: put into the table `directory` in the order of its keys, some with each commit, so that many share a
page. Whoever looks for an id asks the memory and the table, unless the Bloom filter says that neither has it.

    number of the row    ...........|....................|...............
                          in the table  being filed         in memory only
                                    filed              sealed           seen

`filed` and `sealed` are counters of the database, and so is how far the filing has come, so every process
knows what the table has, and after a crash the rest is read from the rows themselves.

An entry is `(owner, hash, number)`: events have the owner 0 and are numbered by `event_no`, calls have their
run's number for an owner and are numbered by `call_no`. Both numbers grow together.

INVARIANT: an id that is in a committed row is found. What is in memory changes only by what is committed.
INVARIANT: used inside the writing transaction, one at a time; only `calls_of` may be asked by any thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import repeat
from struct import Struct
from typing import Final

import msgspec
from peewee import SQL, Expression

from api.database.bloom_filter import BEGINNING, Key, Sieve
from api.database.connection import Database
from api.database.models import ToolCall
from api.database.transaction import Transaction

Entry = tuple[int, int, int]
"""Owner, hash and number."""

EVENTS: Final = 0
"""The owner of all events."""
ENOUGH: Final = 32_768
"""Entries in memory from which they are filed. More would share pages better and take more memory."""
AT_ONCE: Final = 512
"""Entries filed together: below, two batches of them meet on many pages."""
SIFTED: Final = 2_000
"""Ids of the table that the sieve learns with one look, as long as it does not know all of them."""
HASTE: Final = 1.25
"""Entries filed for each new one, so that one lot is done before the next is due."""

_COLUMNS = ("owner", "hash", "no")
_KEY = ("owner", "hash")
"""What is filed takes the place of an entry whose row is gone: an older version may have deleted events."""
_FILED, _SEALED = "directory.filed", "directory.sealed"
_OWNER, _HASH = "directory.owner", "directory.hash"
_NONE: Final[dict[int, int]] = {}

_FIND = (
    "SELECT d.owner, d.hash, d.no FROM {keys} CROSS JOIN directory AS d"
    " WHERE d.owner = w.column1 AND d.hash = w.column2"
)
_SIFT = "SELECT owner, hash FROM directory WHERE (owner, hash) > (?, ?) ORDER BY owner, hash LIMIT ?"
_EVENTS = "SELECT event_no, id_hash FROM events WHERE event_no > ? AND event_no <= ?"
_CALLS = "SELECT call_no, run_no, call_hash FROM tool_calls WHERE call_no > ? AND call_no <= ?"


Entries = dict[int, dict[int, int]]
"""Owner to hash to number."""

_first_64_bits = Struct(">q").unpack_from


def hash64(owner: str, name: str) -> int:
    """64 bits, signed, for a short index. Two ids may share one; rows are compared in full."""
    number: int
    (number,) = _first_64_bits(sha256(f"{owner}\0{name}".encode()).digest())
    return number


@dataclass(slots=True)
class _Unfiled:
    """What is in memory. `new` grows, `seen` after it; for anything else another one takes its place, so that
    who reads along has a whole one."""

    seen: int
    new: Entries = field(default_factory=dict)
    count: int = 0
    """Of the entries in `new`."""
    old: Entries = field(default_factory=dict)
    """What is being filed."""

    def add(self, entries: Iterable[Entry]) -> None:
        for owner, hash_, number in entries:
            hashes = self.new.get(owner)
            if hashes is None:
                hashes = self.new[owner] = {}
            hashes[hash_] = number
            self.count += 1


class Directory:
    """One per process; see the module."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._unfiled: _Unfiled | None = None
        self._sieve = Sieve()
        self._lost = -1
        self._transaction: Transaction | None = None
        self._filed = self._sealed = 0
        self._owed = 0.0
        """How many entries are to be filed for those that came."""
        self._owners: list[int] = []
        """Of what is being filed, in order."""
        self._hashes: tuple[int, list[int]] = (-1, [])
        """Those of one owner among it, in order."""

    # Looking --------------------------------------------------------------------------------------

    def find(self, transaction: Transaction, keys: Sequence[Key]) -> dict[Key, int]:
        """The numbers of those ids that have a row."""
        unfiled = self._follow(transaction)
        if self._sieve.end is not None:
            self._sieve.learn(self._store.rows(_SIFT, (*self._sieve.end, SIFTED)), SIFTED)
        found: dict[Key, int] = {}
        asked: list[Key] = []
        generations = (unfiled.new, unfiled.old)
        for key in self._sieve.let_through(keys):
            owner, hash_ = key
            for generation in generations:
                if owner in generation and hash_ in generation[owner]:
                    found[key] = generation[owner][hash_]
                    break
            else:
                asked.append(key)
        if self._filed:
            for owner, hash_, number in self._store.found(_FIND, asked):
                found[owner, hash_] = number
        return found

    def calls_of(self, runs: Sequence[int]) -> Expression:
        """The condition that picks the calls of some runs, for any thread.

        INVARIANT: it never picks a call of another run. What is in memory follows the database only when
        something is written, so there may be another one behind a reader's connection, with other numbers.
        """
        unfiled = self._unfiled if self._lost == self._store.lost else None
        seen = unfiled.seen if unfiled is not None else 0
        numbers: list[int] = []
        if unfiled is not None:
            for generation in (unfiled.new, unfiled.old):
                for run_no in runs:
                    numbers += list(generation.get(run_no, _NONE).values())
        param = self._store.peewee.param
        listed = f"SELECT value FROM json_each({param})"
        if not self._store.is_sqlite:
            listed = f"SELECT value::bigint FROM json_array_elements_text({param}::json)"
        chosen = ", ".join([param] * len(runs))
        later = "MAX" if self._store.is_sqlite else "GREATEST"
        filed = f"COALESCE((SELECT value FROM counters WHERE name = '{_FILED}'), 0)"
        numbered = Expression(
            ToolCall.call_no,
            "IN",
            SQL(
                f"(SELECT no FROM directory WHERE owner IN ({chosen})"
                f" UNION ALL {listed}"
                f" UNION ALL SELECT call_no FROM tool_calls"
                f" WHERE call_no > {later}({param}, {filed}) AND run_no IN ({chosen}))",
                [*runs, msgspec.json.encode(numbers).decode(), seen, *runs],
            ),
        )
        return numbered & ToolCall.run_no.in_(runs)

    # Keeping --------------------------------------------------------------------------------------

    def enter(self, transaction: Transaction, entries: Sequence[Entry], last: int) -> None:
        """New rows are written, up to the number `last`; file what is due."""
        unfiled = self._follow(transaction)
        transaction.after_commit(partial(self._keep, unfiled, entries, last))
        if self._filed == self._sealed:
            self._owed = 0.0
            if unfiled.count + len(entries) >= ENOUGH:
                _seal(transaction, last)
            return
        self._owed += len(entries) * HASTE
        if self._owed >= AT_ONCE:
            self._file(transaction, int(self._owed))
            self._owed = 0.0

    def settle(self, transaction: Transaction) -> None:
        """File all that was in memory when the transaction began; for when there is little."""
        unfiled = self._follow(transaction)
        if (transaction.counter(_FILED), transaction.counter(_SEALED)) != (self._filed, self._sealed):
            return  # this transaction has entered something: another time
        entries = {
            (owner, hash_): number
            for generation in (unfiled.old, unfiled.new)
            for owner, numbers in generation.items()
            for hash_, number in numbers.items()
        }
        rows = [(*key, number) for key, number in sorted(entries.items())]
        self._store.insert_many("directory", _COLUMNS, rows, key=_KEY)
        transaction.put({_FILED: unfiled.seen, _SEALED: unfiled.seen})

    @staticmethod
    def filed(transaction: Transaction) -> int:
        """The number up to which everything is in the table."""
        return transaction.counter(_FILED)

    def _file(self, transaction: Transaction, most: int) -> None:
        assert self._unfiled is not None
        at = (transaction.counter(_OWNER), transaction.counter(_HASH))
        entries = self._following(self._unfiled.old, at, most)
        self._store.insert_many("directory", _COLUMNS, entries, key=_KEY)
        if len(entries) < most:
            transaction.put({_FILED: self._sealed})
        else:
            owner, hash_, _ = entries[-1]
            transaction.put({_OWNER: owner, _HASH: hash_})

    def _following(self, old: Entries, at: Key, most: int) -> list[Entry]:
        """The next entries to file, in the order of their keys."""
        owner_at, hash_at = at
        entries: list[Entry] = []
        for owner in self._owners[bisect_left(self._owners, owner_at) :]:
            numbers = old[owner]
            if self._hashes[0] != owner:
                self._hashes = (owner, sorted(numbers))
            hashes = self._hashes[1]
            start = bisect_right(hashes, hash_at) if owner == owner_at else 0
            chosen = hashes[start : start + most - len(entries)]
            entries += zip(repeat(owner), chosen, map(numbers.__getitem__, chosen), strict=False)
            if len(entries) == most:
                break
        return entries

    # Following what is committed ------------------------------------------------------------------

    def _follow(self, transaction: Transaction) -> _Unfiled:
        """Bring the memory to what the transaction found in the database when it began."""
        if self._unfiled is not None and self._transaction is transaction:
            return self._unfiled
        self._transaction = transaction
        filed, sealed = transaction.counter(_FILED), transaction.counter(_SEALED)
        last = transaction.highest("events")
        unfiled = self._unfiled
        if (
            unfiled is None
            or self._lost != self._store.lost
            or not (self._filed <= filed <= sealed and self._sealed <= sealed and unfiled.seen <= last)
            or unfiled.seen < filed  # the others have gone on for long: most of it need not be read
        ):
            self._lost = self._store.lost
            unfiled = self._unfiled = _Unfiled(filed)
            self._sieve = Sieve()
            self._filed = self._sealed = filed
        if unfiled.seen < last:
            self._keep(unfiled, list(self._read(unfiled.seen, last)), last)
        if (filed, sealed) != (self._filed, self._sealed):
            unfiled = self._unfiled = self._moved_on(unfiled, filed, sealed)
        return unfiled

    def _keep(self, unfiled: _Unfiled, entries: Sequence[Entry], last: int) -> None:
        """These are committed, up to the number `last`; the table will have them later.

        INVARIANT: the sieve comes first. A bit too many is harmless; one that were missing would hide an id.
        """
        self._sieve.add(entries)
        unfiled.add(entries)
        unfiled.seen = last

    def _read(self, after: int, last: int) -> Iterable[Entry]:
        for event_no, hash_ in self._store.rows(_EVENTS, (after, last)):
            yield EVENTS, hash_, event_no
        for call_no, run_no, hash_ in self._store.rows(_CALLS, (after, last)):
            yield run_no, hash_, call_no

    def _moved_on(self, unfiled: _Unfiled, filed: int, sealed: int) -> _Unfiled:
        """What is left in memory once everything up to `filed` is in the table, and what is up to `sealed`
        is being filed."""
        if filed == sealed == self._sealed:
            moved = _Unfiled(unfiled.seen, unfiled.new, unfiled.count)
        elif filed == self._sealed and sealed == unfiled.seen:
            moved = _Unfiled(unfiled.seen, old=unfiled.new)
        else:  # another process has moved on
            moved = _Unfiled(unfiled.seen)
            for owner, hashes in [*unfiled.old.items(), *unfiled.new.items()]:
                for hash_, number in hashes.items():
                    if number > sealed:
                        moved.add([(owner, hash_, number)])
                    elif number > filed:
                        moved.old.setdefault(owner, {})[hash_] = number
        self._filed, self._sealed = filed, sealed
        self._owners, self._hashes = sorted(moved.old), (-1, [])
        return moved


def _seal(transaction: Transaction, last: int) -> None:
    """From now on everything up to this number is being filed."""
    owner, hash_ = BEGINNING
    transaction.put({_SEALED: last, _OWNER: owner, _HASH: hash_})
