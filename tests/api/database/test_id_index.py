"""The index finds every id that is in a committed row, whoever wrote it and whatever happened since."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.clock import random_ids
from api.database import id_index
from api.database.connection import Database
from api.database.id_index import EVENTS, IdIndex, IndexEntry, Key
from api.database.models import CallTable
from api.database.sqlite import bloom_filter
from api.database.transaction import Transaction
from api.store.expiry import events as expire
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool
from tests.harness.sql_archive import opened

RUNS, TABLES = 5, ("events", "tool_calls", "directory", "counters")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(id_index, "MEMTABLE_ENTRIES", 60)
    monkeypatch.setattr(id_index, "FLUSHED_AT_ONCE", 12)
    monkeypatch.setattr(id_index, "LEARNT_AT_ONCE", 7)
    monkeypatch.setattr(bloom_filter, "LEAST", 2)
    monkeypatch.setattr(bloom_filter, "MOST", 256)
    made = opened(f"sqlite:///{tmp_path / 'governance.sqlite'}")
    yield made
    made.close()


class Undone(Exception):
    pass


@dataclass
class World:
    """The rows of one database, what must be found of them, and the processes that look."""

    store: Database
    chance: random.Random
    processes: list[IdIndex]
    rows: dict[Key, int] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)
    calls: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    last: int = 0
    hour: int = 0

    def any(self) -> IdIndex:
        return self.chance.choice(self.processes)

    def write(self, undone: bool = False) -> None:
        """A few events, most of them calls, by one process; or nothing, when it is undone at the end."""
        process, self.hour = self.any(), self.hour + 1
        entries: list[IndexEntry] = []
        events, calls = [], []
        number = self.last
        for _ in range(self.chance.randint(1, 15)):
            number += 1
            hash_ = self.chance.getrandbits(64) - 2**63
            events.append((number, "o", str(hash_), hash_, 1, "t", f"{self.hour:06}", b"", b""))
            entries.append((EVENTS, hash_, number))
            if self.chance.random() < 0.8:
                run_no = self.chance.randint(1, RUNS)
                calls.append((number, "o", run_no, "c", -hash_, number, "t", *CALL))
                entries.append((run_no, -hash_, number))
        try:
            with self.store.transaction():
                transaction = self.transaction()
                keys = [(owner, hash_) for owner, hash_, _ in entries]
                assert process.find(transaction, keys) == {}
                self.store.insert_many("events", EVENT_COLUMNS, events)
                self.store.insert_many("tool_calls", CALL_COLUMNS, calls)
                process.enter(transaction, entries, number)
                if undone:
                    raise Undone
        except Undone:
            return
        transaction.committed()
        self.last = number
        for owner, hash_, no in entries:
            self.rows[owner, hash_] = no
            if owner != EVENTS:
                self.calls[owner].add(no)
        self.times |= {row[0]: row[6] for row in events}

    def transaction(self) -> Transaction:
        return Transaction(self.store, 0.0, random_ids, None)

    def look(self) -> None:
        wanted = self.chance.sample(sorted(self.rows), min(20, len(self.rows)))
        unknown = [(owner, hash_ + 1) for owner, hash_ in wanted]
        with self.store.transaction():
            found = self.any().find(self.transaction(), [*wanted, *unknown])
        assert found == {key: self.rows[key] for key in wanted}

    def read(self) -> None:
        """As requests do, outside the lock."""
        runs = self.chance.sample(range(1, RUNS + 1), self.chance.randint(1, RUNS))
        query: Any = CallTable.select(CallTable.call_no).where(self.any().calls_of(runs)).tuples()
        found = [row[0] for row in query]
        assert sorted(found) == sorted(no for run_no in runs for no in self.calls[run_no])

    def expire(self) -> None:
        before = f"{self.hour - self.chance.randint(0, 20):06}"
        with self.store.transaction():
            transaction = self.transaction()
            expire(transaction, self.any(), before, self.chance.randint(1, 40))
        transaction.committed()
        left = {row[0] for row in self.store.rows("SELECT event_no FROM events")}
        for key, number in list(self.rows.items()):
            if key[0] == EVENTS and number not in left:
                assert self.times[number] < before
                del self.rows[key]
        assert self.last in left or not self.last

    def restart(self) -> None:
        self.processes[self.chance.randrange(len(self.processes))] = IdIndex(self.store)

    def flushed(self) -> set[IndexEntry]:
        return {(row[0], row[1], row[2]) for row in self.store.rows("SELECT owner, hash, no FROM directory")}


EVENT_COLUMNS = (
    *("event_no", "organisation_id", "event_id", "id_hash", "run_no", "event_type", "received_at"),
    *("body", "receipt"),
)
CALL_COLUMNS = (
    *("call_no", "organisation_id", "run_no", "tool_call_id", "call_hash", "event_no", "tool_name"),
    *("payload_digest", "status", "action", "reason", "matched", "shadow", "policy_revision"),
    *("policy_digest", "decided_at", "audit_id", "facts", "flags"),
)
CALL = ("d", "allowed", "allow", "", "[]", "[]", 1, "d", "", "a", "{}", "[]")


@pytest.mark.parametrize("processes", [1, 3])
def test_every_id_is_found_after_any_course_of_events(store: Database, processes: int) -> None:
    for seed in range(12):
        with store.transaction():
            for table in TABLES:
                store.rows_changed(f"DELETE FROM {table}")
        chance = random.Random(seed)
        world = World(store, chance, [IdIndex(store) for _ in range(processes)])
        for _ in range(150):
            step = chance.random()
            if step < 0.6:
                world.write()
            elif step < 0.65:
                world.write(undone=True)
            elif step < 0.8:
                world.look()
            elif step < 0.92:
                world.read()
            elif step < 0.95:
                world.expire()
            elif step < 0.98:
                world.restart()
            else:
                store.lost += 1
        world.look()
        world.read()
        rows = {(owner, hash_, number) for (owner, hash_), number in world.rows.items()}
        assert world.flushed() <= rows, "what is flushed has a row"
        assert len(world.flushed()) > len(rows) / 3, "and much of it is flushed"


def test_what_is_flushed_leaves_the_memory(store: Database) -> None:
    world = World(store, random.Random(1), [IdIndex(store)])
    most = 0
    for _ in range(300):
        world.write()
        memtable: Any = world.processes[0]._memtable
        most = max(most, memtable.count + sum(map(len, memtable.old.values())))
    # Filing goes on with each commit, at 1.25 times the pace, so a lot grows to ten commits at most.
    assert most <= 2 * id_index.MEMTABLE_ENTRIES + 10 * 30
    assert len(world.rows) > 8 * most


def test_who_was_idle_reads_no_more_than_what_is_not_flushed(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = IdIndex(store)
    world = World(store, random.Random(4), [idle])
    world.write()
    world.processes = [IdIndex(store)]
    for _ in range(150):
        world.write()
    read: list[int] = []
    reading = idle._read

    def recorded(after: int, last: int) -> Iterable[IndexEntry]:
        read.append(last - after)
        return reading(after, last)

    monkeypatch.setattr(idle, "_read", recorded)
    with store.transaction():
        transaction = world.transaction()
        flushed = idle.flushed(transaction)
        idle.find(transaction, [])
    assert read == [world.last - flushed] and flushed > world.last / 2
    world.processes = [IdIndex(store), idle]
    for _ in range(20):
        world.write()
        world.look()
        world.read()


def test_filing_is_spread_over_the_commits(store: Database) -> None:
    world = World(store, random.Random(3), [IdIndex(store)])
    before, steps = 0, []
    for _ in range(150):
        world.write()
        steps.append(len(world.flushed()) - before)
        before += steps[-1]
    most = int((id_index.FLUSHED_AT_ONCE + 2 * 15) * id_index.FLUSHED_FOR_EACH)
    assert max(steps) <= most
    assert sum(step > 0 for step in steps) > 50


def test_a_database_that_was_put_in_its_place_is_read_anew(store: Database) -> None:
    """A restored copy, or a standby that took over: what was committed last may be missing."""
    world = World(store, random.Random(2), [IdIndex(store)])
    for _ in range(10):
        world.write()
    with store.transaction():
        for table in TABLES:
            store.rows_changed(f"DELETE FROM {table}")
    world.last, world.rows = 0, {}
    store.lost += 1
    for _ in range(30):
        world.write()
        world.look()


def test_bits_that_could_not_be_set_hide_nothing(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(store, random.Random(3), [IdIndex(store)])
    for _ in range(4):
        world.write()
    add = bloom_filter.BloomFilter.add
    refused: list[object] = []

    def failing(self: bloom_filter.BloomFilter, ids: Any) -> None:
        if not refused:
            refused.append(ids)
            raise MemoryError
        add(self, ids)

    monkeypatch.setattr(bloom_filter.BloomFilter, "add", failing)
    committed = Transaction.committed

    def carried_on(transaction: Transaction) -> None:  # as the writer does
        with contextlib.suppress(MemoryError):
            committed(transaction)

    monkeypatch.setattr(Transaction, "committed", carried_on)
    world.write()
    assert refused
    with store.transaction():
        assert world.processes[0].find(world.transaction(), [*world.rows]) == world.rows


def test_an_entry_that_leads_to_nothing_gives_way(store: Database) -> None:
    """A process of an older version deletes old events, and knows nothing of the directory."""
    world = World(store, random.Random(8), [IdIndex(store)])
    for _ in range(60):
        world.write()
    hash_ = store.rows("SELECT hash FROM directory WHERE owner = 0 ORDER BY no LIMIT 1")[0][0]
    gone = world.rows[EVENTS, hash_]
    with store.transaction():
        store.rows_changed("DELETE FROM events WHERE event_no = ?", (gone,))
    number = world.last + 1
    with store.transaction():
        transaction = world.transaction()
        world.processes[0].find(transaction, [(EVENTS, hash_)])
        row = (number, "o", str(hash_), hash_, 1, "t", f"{world.hour:06}", b"", b"")
        store.insert_many("events", EVENT_COLUMNS, [row])
        world.processes[0].enter(transaction, [(EVENTS, hash_, number)], number)
    transaction.committed()
    world.last = world.rows[EVENTS, hash_] = number
    for _ in range(60):
        world.write()
    assert (EVENTS, hash_, number) in world.flushed()
    world.restart()
    with store.transaction():
        found = world.any().find(world.transaction(), [(EVENTS, hash_)])
    assert found == {(EVENTS, hash_): number}


def test_a_file_that_was_put_in_its_place_is_read_anew_without_a_connection_to_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread had closed its connection before; others have written more to the new file since."""
    monkeypatch.setattr(id_index, "MEMTABLE_ENTRIES", 10_000)
    store = opened(f"sqlite:///{tmp_path}/governance.db")
    here = IdIndex(store)
    world = World(store, random.Random(6), [here])
    world.write()
    store.leave()
    copy = tmp_path / "copy.db"
    shutil.copy(store.path, copy)
    rows, last = dict(world.rows), world.last
    for _ in range(3):
        world.write()
    store.leave()
    copy.replace(store.path)
    world = World(store, random.Random(7), [IdIndex(store)], rows=rows, last=last)
    for _ in range(9):
        world.write()
    world.processes = [here]
    world.look()
    store.close()


@pytest.mark.parametrize("told", [False, True])
def test_a_reader_is_given_no_call_of_another_run(store: Database, told: bool) -> None:
    """The database is another one, another process has written to it, and this one has only read so far."""
    idle = IdIndex(store)
    world = World(store, random.Random(5), [idle])
    for _ in range(4):
        world.write()
    with store.transaction():
        for table in TABLES:
            store.rows_changed(f"DELETE FROM {table}")
    world.last, world.rows, world.processes = 0, {}, [IdIndex(store)]
    world.calls.clear()
    for _ in range(4):
        world.write()
    if told:
        store.lost += 1
    for run_no in range(1, RUNS + 1):
        query: Any = CallTable.select(CallTable.call_no).where(idle.calls_of([run_no])).tuples()
        found = {row[0] for row in query}
        assert found == world.calls[run_no] if told else found <= world.calls[run_no]


async def test_a_run_is_read_whole_while_its_calls_are_being_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_index, "MEMTABLE_ENTRIES", 20)
    monkeypatch.setattr(id_index, "FLUSHED_AT_ONCE", 6)
    async with Service(tmp_path, []) as service:
        for number in range(60):
            await service.report(
                "agent", number, "tool.called", runId="r", toolCallId=f"c-{number}", toolName="read"
            )
            found = (await service.call("admin", "GET", "/v1/runs/r")).json()
            assert [call["toolCallId"] for call in found["toolCalls"]] == [
                f"c-{each}" for each in range(number + 1)
            ]
            listed = (await service.call("admin", "GET", "/v1/runs")).json()
            assert listed[0]["toolCallCounts"]["allowed"] == number + 1
        again = await service.report("agent", 0, "tool.called", runId="r", toolCallId="c-0", toolName="read")
        assert again.headers["idempotent-replay"] == "true"
        store = service.context.store
        assert store.rows("SELECT COUNT(*) FROM directory")[0][0] > 60


async def test_all_approvals_of_a_run_end_with_it_wherever_its_calls_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_index, "MEMTABLE_ENTRIES", 12)
    monkeypatch.setattr(id_index, "FLUSHED_AT_ONCE", 4)
    hold = on_tool("Hold payments", "require_approval", "pay")
    async with Service(tmp_path, [hold]) as service:
        for number in range(40):
            run = "r" if number % 4 else "other"
            answer = await service.report(
                "agent", number, "tool.called", runId=run, toolCallId=f"c-{number}", toolName="pay"
            )
            assert answer.json()["toolCallStatus"] == "awaiting_approval"
        await service.report("agent", 99, "run.completed", runId="r", cancelApprovals=True)
        left = (await service.call("reviewer", "GET", "/v1/approvals?status=pending&limit=100")).json()
        assert {approval["runId"] for approval in left} == {"other"} and len(left) == 10
        run_ = (await service.call("admin", "GET", "/v1/runs/r")).json()
        assert [call["status"] for call in run_["toolCalls"]] == ["blocked"] * 30
