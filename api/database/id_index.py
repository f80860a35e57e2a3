"""Which row has an id, on SQLite: an index of events and tool calls, made like a log-structured merge tree.
For PostgreSQL see `lanes/keys.py`.

An index that every new row enters at once costs a page of its own per row, since ids are random: more than
all the rest of a commit. So new entries stay in a memtable at first. When it is full it is closed, and
flushed: put into the table `directory` in the order of its keys, some with each commit, so that many share a
page. Whoever looks for an id asks the memtables and the table, unless the Bloom filter says that neither has
it.

    number of the row    ...........|....................|...............
                          in the table   being flushed    new
                                  flushed              closed          seen

`flushed` and `closed` are counters of the database (named `directory.filed` and `directory.sealed`), and so
is how far the flush has come, so every process knows what the table has, and after a crash the rest is read
from the rows themselves.

An entry is `(owner, hash, number)`: events have the owner 0 and are numbered by `event_no`, calls have their
run's number for an owner and are numbered by `call_no`. Both numbers grow together.

INVARIANT: an id that is in a committed row is found. What is in memory changes only by what is committed.
INVARIANT: used inside the writing transaction, one at a time; only `calls_of` and `call_of` may be asked by
any thread.
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

from api.database.connection import Database, marks
from api.database.lanes.keys import KeyTable
from api.database.models import CallTable, Run
from api.database.sqlite.bloom_filter import BEGINNING, BloomFilter, Key
from api.database.transaction import Transaction

IndexEntry = tuple[int, int, int]
"""Owner, hash and number."""

EVENTS: Final = 0
"""The owner of all events."""
MEMTABLE_ENTRIES: Final = 32_768
"""Entries that fill a memtable. More would share pages better and take more memory."""
FLUSHED_AT_ONCE: Final = 512
"""Entries flushed together: with fewer, two batches of them meet on many pages."""
LEARNT_AT_ONCE: Final = 2_000
"""Ids of the table that the Bloom filter learns with one look, as long as it does not know all of them."""
FLUSHED_FOR_EACH: Final = 1.25
"""Entries flushed for each new one, so that one memtable is flushed before the next is full."""

_COLUMNS = ("owner", "hash", "no")
_KEY = ("owner", "hash")
"""What is flushed takes the place of an entry whose row is gone: an older version may have deleted events."""
_FLUSHED, _CLOSED = "directory.filed", "directory.sealed"
_OWNER, _HASH = "directory.owner", "directory.hash"
_NONE: Final[dict[int, int]] = {}

_FIND = (
    "SELECT d.owner, d.hash, d.no FROM {keys} CROSS JOIN directory AS d"
    " WHERE d.owner = w.column1 AND d.hash = w.column2"
)
_FOLLOWING = "SELECT owner, hash FROM directory WHERE (owner, hash) > (?, ?) ORDER BY owner, hash LIMIT ?"
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
class _Memtable:
    """What is in memory. `new` grows, `seen` after it; for anything else another one takes its place, so that
    a reader on another thread has a whole one."""

    seen: int
    new: Entries = field(default_factory=dict)
    count: int = 0
    """Of the entries in `new`."""
    old: Entries = field(default_factory=dict)
    """What is being flushed."""

    def add(self, entries: Iterable[IndexEntry]) -> None:
        for owner, hash_, number in entries:
            hashes = self.new.get(owner)
            if hashes is None:
                hashes = self.new[owner] = {}
            hashes[hash_] = number
            self.count += 1


class IdIndex:
    """One per process; see the module."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.keys = KeyTable()
        """What takes its place on PostgreSQL."""
        self._memtable: _Memtable | None = None
        self._bloom_filter = BloomFilter()
        self._lost = -1
        self._transaction: Transaction | None = None
        self._flushed = self._closed = 0
        self._behind = 0.0
        """How many entries are to be flushed for those that came."""
        self._owners: list[int] = []
        """Of what is being flushed, in order."""
        self._hashes: tuple[int, list[int]] = (-1, [])
        """Those of one owner among it, in order."""

    # Looking --------------------------------------------------------------------------------------

    def find(self, transaction: Transaction, keys: Sequence[Key]) -> dict[Key, int]:
        """The numbers of those ids that have a row."""
        memtable = self._follow(transaction)
        if self._bloom_filter.end is not None:
            self._bloom_filter.learn(
                self._store.rows(_FOLLOWING, (*self._bloom_filter.end, LEARNT_AT_ONCE)), LEARNT_AT_ONCE
            )
        found: dict[Key, int] = {}
        asked: list[Key] = []
        generations = (memtable.new, memtable.old)
        for key in self._bloom_filter.might_contain(keys):
            owner, hash_ = key
            for generation in generations:
                if owner in generation and hash_ in generation[owner]:
                    found[key] = generation[owner][hash_]
                    break
            else:
                asked.append(key)
        if self._flushed:
            for owner, hash_, number in self._store.found(_FIND, asked):
                found[owner, hash_] = number
        return found

    def calls_of(self, runs: Sequence[int]) -> Expression:
        """The condition that picks the calls of some runs, for any thread.

        INVARIANT: it never picks a call of another run. What is in memory follows the database only when
        something is written, so there may be another one behind a reader's connection, with other numbers.
        """
        if not self._store.is_sqlite:
            return self.keys.calls_of(runs)
        return self._numbered(runs, None)

    def call_of(self, run: Run, tool_call_id: str) -> Expression:
        """The same of one call by its id, however many the run has."""
        if self._store.is_sqlite:
            chosen = self._numbered([run.run_no], hash64("", tool_call_id))
        else:
            chosen = self.keys.call_of(run, tool_call_id)
        return chosen & (CallTable.tool_call_id == tool_call_id)

    def _numbered(self, runs: Sequence[int], hash_: int | None) -> Expression:
        """Calls of these runs, or those of them with this hash and some others of late."""
        memtable = self._memtable if self._lost == self._store.lost else None
        seen = memtable.seen if memtable is not None else 0
        numbers: list[int] = []
        if memtable is not None:
            for generation in (memtable.new, memtable.old):
                for run_no in runs:
                    known = generation.get(run_no, _NONE)
                    numbers += list(known.values()) if hash_ is None else filter(None, [known.get(hash_)])
        chosen = marks(runs)
        alone, given = ("", runs) if hash_ is None else (" AND hash = ?", [*runs, hash_])
        flushed = f"COALESCE((SELECT value FROM counters WHERE name = '{_FLUSHED}'), 0)"
        numbered = Expression(
            CallTable.call_no,
            "IN",
            SQL(
                f"(SELECT no FROM directory WHERE owner IN ({chosen}){alone}"
                f" UNION ALL SELECT value FROM json_each(?)"
                f" UNION ALL SELECT call_no FROM tool_calls"
                f" WHERE call_no > MAX(?, {flushed}) AND run_no IN ({chosen}))",
                [*given, msgspec.json.encode(numbers).decode(), seen, *runs],
            ),
        )
        return numbered & CallTable.run_no.in_(runs)

    # Keeping --------------------------------------------------------------------------------------

    def enter(self, transaction: Transaction, entries: Sequence[IndexEntry], last: int) -> None:
        """New rows are written, up to the number `last`; flush what is behind."""
        memtable = self._follow(transaction)
        transaction.after_commit(partial(self._keep, memtable, entries, last))
        if self._flushed == self._closed:
            self._behind = 0.0
            if memtable.count + len(entries) >= MEMTABLE_ENTRIES:
                _close(transaction, last)
            return
        self._behind += len(entries) * FLUSHED_FOR_EACH
        if self._behind >= FLUSHED_AT_ONCE:
            self._flush_some(transaction, int(self._behind))
            self._behind = 0.0

    def flush(self, transaction: Transaction) -> None:
        """Flush all that was in memory when the transaction began; for when there is little."""
        memtable = self._follow(transaction)
        if (transaction.counter(_FLUSHED), transaction.counter(_CLOSED)) != (self._flushed, self._closed):
            return  # this transaction has entered something: another time
        entries = {
            (owner, hash_): number
            for generation in (memtable.old, memtable.new)
            for owner, numbers in generation.items()
            for hash_, number in numbers.items()
        }
        rows = [(*key, number) for key, number in sorted(entries.items())]
        self._store.insert_many("directory", _COLUMNS, rows, key=_KEY)
        transaction.put({_FLUSHED: memtable.seen, _CLOSED: memtable.seen})

    @staticmethod
    def flushed(transaction: Transaction) -> int:
        """The number up to which everything is in the table."""
        return transaction.counter(_FLUSHED)

    def _flush_some(self, transaction: Transaction, most: int) -> None:
        assert self._memtable is not None
        at = (transaction.counter(_OWNER), transaction.counter(_HASH))
        entries = self._following(self._memtable.old, at, most)
        self._store.insert_many("directory", _COLUMNS, entries, key=_KEY)
        if len(entries) < most:
            transaction.put({_FLUSHED: self._closed})
        else:
            owner, hash_, _ = entries[-1]
            transaction.put({_OWNER: owner, _HASH: hash_})

    def _following(self, old: Entries, at: Key, most: int) -> list[IndexEntry]:
        """The next entries to flush, in the order of their keys."""
        owner_at, hash_at = at
        entries: list[IndexEntry] = []
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

    def _follow(self, transaction: Transaction) -> _Memtable:
        """Bring the memory to what the transaction found in the database when it began."""
        if self._memtable is not None and self._transaction is transaction:
            return self._memtable
        self._transaction = transaction
        flushed, closed = transaction.counter(_FLUSHED), transaction.counter(_CLOSED)
        last = transaction.highest("events")
        memtable = self._memtable
        if (
            memtable is None
            or self._lost != self._store.lost
            or not (self._flushed <= flushed <= closed and self._closed <= closed and memtable.seen <= last)
            or memtable.seen < flushed  # the others have gone on for long: most of it need not be read
        ):
            self._lost = self._store.lost
            memtable = self._memtable = _Memtable(flushed)
            self._bloom_filter = BloomFilter()
            self._flushed = self._closed = flushed
        if memtable.seen < last:
            self._keep(memtable, list(self._read(memtable.seen, last)), last)
        if (flushed, closed) != (self._flushed, self._closed):
            memtable = self._memtable = self._moved_on(memtable, flushed, closed)
        return memtable

    def _keep(self, memtable: _Memtable, entries: Sequence[IndexEntry], last: int) -> None:
        """These are committed, up to the number `last`; the table will have them later.

        INVARIANT: the Bloom filter comes first. A bit too many is harmless; a missing one would hide an id.
        """
        self._bloom_filter.add(entries)
        memtable.add(entries)
        memtable.seen = last

    def _read(self, after: int, last: int) -> Iterable[IndexEntry]:
        for event_no, hash_ in self._store.rows(_EVENTS, (after, last)):
            yield EVENTS, hash_, event_no
        for call_no, run_no, hash_ in self._store.rows(_CALLS, (after, last)):
            yield run_no, hash_, call_no

    def _moved_on(self, memtable: _Memtable, flushed: int, closed: int) -> _Memtable:
        """What is left in memory once everything up to `flushed` is in the table, and what is up to `closed`
        is being flushed."""
        if flushed == closed == self._closed:
            moved = _Memtable(memtable.seen, memtable.new, memtable.count)
        elif flushed == self._closed and closed == memtable.seen:
            moved = _Memtable(memtable.seen, old=memtable.new)
        else:  # another process has moved on
            moved = _Memtable(memtable.seen)
            for owner, hashes in [*memtable.old.items(), *memtable.new.items()]:
                for hash_, number in hashes.items():
                    if number > closed:
                        moved.add([(owner, hash_, number)])
                    elif number > flushed:
                        moved.old.setdefault(owner, {})[hash_] = number
        self._flushed, self._closed = flushed, closed
        self._owners, self._hashes = sorted(moved.old), (-1, [])
        return moved


def _close(transaction: Transaction, last: int) -> None:
    """From now on everything up to this number is being flushed."""
    owner, hash_ = BEGINNING
    transaction.put({_CLOSED: last, _OWNER: owner, _HASH: hash_})
