"""Everything that one batch of events reads and writes: runs, tool calls, known events, and the new rows.

`Batch.open` reads in a few statements what the whole batch may need; deciding then happens in memory; `write`
puts all rows in by `executemany`. It decides nothing.

INVARIANT: it lives inside one writing transaction, and those are one at a time over all processes, so what it
has read stays true and the numbers it gives out are nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import astuple

from api.database.audit_chain import Position
from api.database.bloom_filter import Key
from api.database.connection import Database
from api.database.id_index import EVENTS, IdIndex, IndexEntry
from api.database.transaction import Transaction
from api.ingestion.event import Incoming
from api.ingestion.known_runs import KnownRun, KnownRuns
from api.ingestion.rows import ApprovalRow, CallRow, EventRow, RateHitRow, RunRow, TableRow, columns

_RUNS = (
    f"SELECT {columns(RunRow, 't')} FROM {{keys}} CROSS JOIN runs AS t"
    " WHERE t.organisation_id = w.column1 AND t.run_id = w.column2"
)
_CALLS = (
    f"SELECT {columns(CallRow, 't')} FROM {{keys}} CROSS JOIN tool_calls AS t WHERE t.call_no = w.column1"
)
_KNOWN = (
    "SELECT t.id_hash, t.organisation_id, t.event_id, t.body, t.receipt"
    " FROM {keys} CROSS JOIN events AS t WHERE t.event_no = w.column1"
)
_CHANGING = ("status", "task", "model", "reason", "agent_context", "ended_at")
"""The columns of a run that change."""
_UPDATE_RUN = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE run_no = ?"


class KnownEvent(msgspec.Struct):
    """An event that was recorded before, or earlier in this batch."""

    organisation_id: str
    event_id: str
    body: bytes
    receipt: bytes
    """The answer as sent; empty where it follows from the event's call."""


@dataclass(slots=True)
class Batch:
    """See the module."""

    store: Database
    transaction: Transaction
    id_index: IdIndex
    organisations: set[str]
    runs: dict[tuple[str, str], KnownRun]
    learnt: list[KnownRun]
    """Those that were not known before: read, or new."""
    calls: dict[tuple[int, int], CallRow]
    """By run and hash of the call's id."""
    known: dict[int, KnownEvent]
    """By the hash of the event's id."""
    next_run: int
    next_event: int
    counts: dict[str, int] = field(default_factory=dict)
    """Rate-limit bucket to the calls that count in its window now."""
    changed: list[KnownRun] = field(default_factory=list)
    """New or dirty, once they are written."""
    event_types: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    """Of the calls decided for the first time."""
    entries: list[IndexEntry] = field(default_factory=list)
    """Of the directory, for the new rows."""
    event_rows: list[EventRow] = field(default_factory=list)
    call_rows: list[CallRow] = field(default_factory=list)
    approval_rows: list[ApprovalRow] = field(default_factory=list)
    hit_rows: list[RateHitRow] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        store: Database,
        transaction: Transaction,
        events: Sequence[Incoming],
        known_runs: KnownRuns,
        id_index: IdIndex,
    ) -> Batch:
        """Read what the events may need."""
        wanted = {(event.caller.organisation_id, event.body.runId) for event in events}
        runs = known_runs.take(transaction, wanted)
        learnt = [KnownRun(*row) for row in store.found(_RUNS, wanted - runs.keys())]
        runs |= {(run.organisation_id, run.run_id): run for run in learnt}
        found = id_index.find(transaction, _keys(runs, events))
        return cls(
            store,
            transaction,
            id_index,
            {organisation_id for organisation_id, _ in wanted},
            learnt=learnt,
            known=_known(store, [number for (owner, _), number in found.items() if owner == EVENTS]),
            runs=runs,
            calls=_calls(store, [number for (owner, _), number in found.items() if owner != EVENTS]),
            next_run=transaction.highest("runs") + 1,
            next_event=transaction.highest("events") + 1,
        )

    def new_run(self, event: Incoming) -> KnownRun:
        run = KnownRun(
            run_no=self.next_run,
            organisation_id=event.caller.organisation_id,
            run_id=event.body.runId,
            agent_id=event.body.agentId,
            status="running",
            task=None,
            model=None,
            reason=None,
            agent_context=None,
            started_at=self.transaction.at,
            ended_at=None,
            key_id=event.caller.key_id,
            new=True,
        )
        self.next_run += 1
        self.runs[(run.organisation_id, run.run_id)] = run
        self.learnt.append(run)
        return run

    def call(self, run: KnownRun, event: Incoming) -> CallRow | None:
        """The call that the event is about, or (the hash being the same) another one that takes its place."""
        return self.calls.get((run.run_no, event.call_hash))

    def position(self, audit_id: str) -> Position:
        """Where a record of this transaction stands in the audit log."""
        position = self.transaction.position(audit_id)
        assert position is not None
        return position

    def add_call(self, call: CallRow) -> None:
        """A call that was decided for the first time."""
        self.calls[(call.run_no, call.call_hash)] = call
        self.call_rows.append(call)
        self.entries.append((call.run_no, call.call_hash, call.call_no))
        self.statuses.append(call.status)

    def add_event(
        self, event: Incoming, event_no: int, run: KnownRun, answer: bytes, *, follows: bool
    ) -> None:
        """Keep an event with its answer, unless that follows from its call's row; the same event later in the
        batch finds it."""
        organisation_id, body = event.caller.organisation_id, event.body
        self.event_types.append(body.eventType)
        self.entries.append((EVENTS, event.event_hash, event_no))
        self.event_rows.append(
            EventRow(
                event_no,
                organisation_id,
                body.eventId,
                event.event_hash,
                run.run_no,
                body.eventType,
                self.transaction.at,
                event.raw,
                b"" if follows else answer,
            )
        )
        self.known[event.event_hash] = KnownEvent(organisation_id, body.eventId, event.raw, answer)

    def count(self, bucket: str, since: float) -> int:
        """How many calls count in a rate-limit bucket after `since`, with those of this batch."""
        counted = self.counts.get(bucket)
        if counted is None:
            rows = self.store.rows(
                "SELECT COUNT(*) FROM rate_hits WHERE bucket = ? AND at > ?", (bucket, since)
            )
            counted = self.counts[bucket] = int(rows[0][0])
        return counted

    def hit(self, bucket: str, expires_at: float) -> None:
        """One more call counts in a bucket that `count` was asked of."""
        self.counts[bucket] += 1
        self.hit_rows.append(RateHitRow(bucket, self.transaction.now, expires_at))

    def complete(self, call: CallRow, completion: str, output: str | None) -> None:
        """Record what became of a call, and its flags."""
        self.flush_calls()
        call.completed_at = self.transaction.at
        self.store.change(
            "UPDATE tool_calls SET completed_at = ?, completion = ?, output = ?, flags = ? WHERE call_no = ?",
            (call.completed_at, completion, output, call.flags, call.call_no),
        )

    def write_flags(self, call: CallRow) -> None:
        """Record the flags of a call, leaving its outcome as it is."""
        self.flush_calls()
        self.store.change("UPDATE tool_calls SET flags = ? WHERE call_no = ?", (call.flags, call.call_no))

    def refresh_calls(self, run: KnownRun) -> None:
        """Calls of a run whose approvals changed underneath are read again."""
        for (run_no, _), call in self.calls.items():
            if run_no == run.run_no:
                status, reason = self.store.rows(
                    "SELECT status, blocked_reason FROM tool_calls WHERE call_no = ?", (call.call_no,)
                )[0]
                if status != call.status:
                    call.status, call.blocked_reason = status, reason

    def flush_calls(self) -> None:
        """Write calls and approvals gathered so far, so that statements can see them."""
        self._insert(CallRow, self.call_rows)
        self._insert(ApprovalRow, self.approval_rows)
        self.call_rows, self.approval_rows = [], []

    def flush_events(self) -> None:
        """Write events and calls gathered so far."""
        self._insert(EventRow, self.event_rows)
        self.event_rows = []
        self.flush_calls()

    def write(self) -> None:
        """Write all that is left."""
        self.changed = [run for run in self.runs.values() if run.new or run.dirty]
        self._insert(RunRow, [run.row() for run in self.changed if run.new])
        for run in self.changed:
            if not run.new:
                values = [getattr(run, name) for name in _CHANGING]
                self.store.change(_UPDATE_RUN, (*values, run.run_no))
        self.flush_events()
        self._insert(RateHitRow, self.hit_rows)
        self.id_index.enter(self.transaction, self.entries, self.next_event - 1)

    def _insert(self, kind: type[TableRow], rows: Sequence[TableRow]) -> None:
        if rows:
            self.store.insert_many(kind.table, kind.__struct_fields__, [astuple(row) for row in rows])


def _keys(runs: Mapping[tuple[str, str], KnownRun], events: Iterable[Incoming]) -> list[Key]:
    """What the events, and the calls that they are about, are found by."""
    keys: list[Key] = []
    for event in events:
        keys.append((EVENTS, event.event_hash))
        if "toolCallId" in event.metadata:
            run = runs.get((event.caller.organisation_id, event.body.runId))
            if run is not None:
                keys.append((run.run_no, event.call_hash))
    return keys


def _known(store: Database, numbers: Iterable[int]) -> dict[int, KnownEvent]:
    """By the hash of the event's id."""
    rows = store.found(_KNOWN, [(number,) for number in numbers])
    return {row[0]: KnownEvent(row[1], row[2], bytes(row[3]), bytes(row[4])) for row in rows}


def _calls(store: Database, numbers: Iterable[int]) -> dict[tuple[int, int], CallRow]:
    """By run and hash of the call's id."""
    calls = [CallRow(*row) for row in store.found(_CALLS, [(number,) for number in numbers])]
    return {(call.run_no, call.call_hash): call for call in calls}
