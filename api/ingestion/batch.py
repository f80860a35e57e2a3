"""Everything that one batch of events reads and writes: runs, tool calls, known events, and the new rows.

`Batch.open` reads in a few statements what the whole batch may need; deciding then happens in memory; `write`
puts all rows in by `executemany`. It decides nothing.

INVARIANT: it lives inside one writing transaction, and those are one at a time over all processes, so what it
has read stays true and the numbers it gives out are nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.database.audit_chain import Tip
from api.database.bloom_filter import Key
from api.database.connection import Database
from api.database.id_index import EVENTS, Directory, Entry
from api.database.transaction import Transaction
from api.ingestion.event import Incoming

_NO_RUNS: Final[dict[str, Run]] = {}
_encode = msgspec.json.encode
_decode = msgspec.json.decode

EVENT_COLUMNS = (
    *("event_no", "organisation_id", "event_id", "id_hash", "run_no", "event_type", "received_at"),
    *("body", "receipt"),
)
CALL_COLUMNS = (
    *("call_no", "organisation_id", "run_no", "tool_call_id", "call_hash", "event_no", "tool_name"),
    *("payload_digest", "status", "action", "reason", "matched", "shadow", "policy_revision"),
    *("policy_digest", "decided_at", "audit_id", "approval_id", "blocked_reason", "facts", "flags"),
)
APPROVAL_COLUMNS = (
    *("approval_id", "organisation_id", "run_no", "run_id", "agent_id", "call_no", "tool_call_id"),
    *("tool_name", "policy_id", "policy_name", "status", "reason", "requested_at", "expires_at"),
)
RUN_COLUMNS = (
    *("run_no", "organisation_id", "run_id", "agent_id", "status", "task", "model", "reason"),
    *("agent_context", "started_at", "ended_at", "key_id"),
)
HIT_COLUMNS = ("bucket", "at", "expires_at")

_RUNS = (
    f"SELECT {', '.join('t.' + column for column in RUN_COLUMNS)}"
    " FROM {keys} CROSS JOIN runs AS t"
    " WHERE t.organisation_id = w.column1 AND t.run_id = w.column2"
)
_CALLS = (
    "SELECT t.run_no, t.call_hash, t.tool_call_id, t.call_no, t.payload_digest, t.status, t.reason,"
    " t.approval_id, t.matched, t.shadow, t.flags, t.policy_revision, t.decided_at, t.audit_id,"
    " t.blocked_reason"
    " FROM {keys} CROSS JOIN tool_calls AS t WHERE t.call_no = w.column1"
)
_KNOWN = (
    "SELECT t.id_hash, t.organisation_id, t.event_id, t.body, t.receipt"
    " FROM {keys} CROSS JOIN events AS t WHERE t.event_no = w.column1"
)

MOST_REMEMBERED = 10_000
"""Runs of one organisation."""


class Run(msgspec.Struct):
    """A run as known inside a batch; `dirty` ones are written back at the end."""

    run_no: int
    organisation_id: str
    run_id: str
    agent_id: str
    status: str
    task: str | None
    model: str | None
    reason: str | None
    agent_context: str | None
    started_at: str
    ended_at: str | None
    key_id: str
    new: bool = False
    dirty: bool = False
    told: dict[str, Any] | None = None
    """The facts, once they were asked for."""

    def facts(self) -> dict[str, Any] | None:
        """The `run` root of a tool call document. Once there is one, it does not change."""
        if self.told is not None or self.task is self.model is self.agent_context is None:
            return self.told
        facts = {"task": self.task, "model": self.model}
        facts = {name: value for name, value in facts.items() if value is not None}
        if self.agent_context is not None:
            facts["agentContext"] = _decode(self.agent_context)
        self.told = facts or None
        return self.told


class Memory:
    """Runs as the last transactions of this process left them, so that a batch need not read them again.

    INVARIANT: runs change only by batches of events, and each leaves audit records. So while the chain of an
    organisation ends where our last commit left it, its runs here are those of the database. From the moment
    a transaction may change one until it is committed, none is certain.
    """

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, Run]] = {}
        self._tips: dict[str, Tip] = {}

    def guess(self, organisation_id: str, run_id: str) -> dict[str, Any] | None:
        """The facts of the run as it was last seen; for any thread."""
        run = self._runs.get(organisation_id, _NO_RUNS).get(run_id)
        return None if run is None else run.told

    def take(self, transaction: Transaction, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Run]:
        """Those of the wanted runs that are known for certain; the transaction may change them."""
        taken: dict[tuple[str, str], Run] = {}
        certain: dict[str, dict[str, Run]] = {}
        for place in wanted:
            organisation_id, run_id = place
            runs = certain.get(organisation_id)
            if runs is None:
                tip = self._tips.pop(organisation_id, None)
                if tip is None or transaction.tip(organisation_id) != tip:
                    self._runs[organisation_id] = {}
                runs = certain[organisation_id] = self._runs[organisation_id]
            if run_id in runs:
                taken[place] = runs[run_id]
        return taken

    def keep(self, transaction: Transaction, batch: Batch) -> None:
        """After the commit: what the batch knows is certain now."""
        for run in batch.learnt:
            runs = self._runs[run.organisation_id]
            if len(runs) >= MOST_REMEMBERED:
                runs.clear()
            runs[run.run_id] = run
        for run in batch.changed:
            run.new = run.dirty = False
            run.facts()
        for organisation_id in batch.organisations:
            self._tips[organisation_id] = transaction.tip(organisation_id)


class Call(msgspec.Struct):
    """A tool call as known inside a batch."""

    tool_call_id: str
    call_no: int
    digest: str
    status: str
    reason: str
    matched: list[dict[str, Any]]
    shadow: list[dict[str, Any]]
    flags: list[str]
    approval_id: str | None
    policy_revision: int
    decided_at: str
    audit_id: str


class Known(msgspec.Struct):
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
    directory: Directory
    organisations: set[str]
    runs: dict[tuple[str, str], Run]
    learnt: list[Run]
    """Those that were not known before: read, or new."""
    calls: dict[tuple[int, int], Call]
    """By run and hash of the call's id."""
    known: dict[int, Known]
    next_run: int
    next_event: int
    counts: dict[str, int] = field(default_factory=dict)
    """Rate-limit bucket to the calls that count in its window now."""
    changed: list[Run] = field(default_factory=list)
    """New or dirty, once they are written."""
    event_types: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    """Of the calls decided for the first time."""
    entries: list[Entry] = field(default_factory=list)
    """Of the directory, for the new rows."""
    event_rows: list[tuple[Any, ...]] = field(default_factory=list)
    call_rows: list[tuple[Any, ...]] = field(default_factory=list)
    approval_rows: list[tuple[Any, ...]] = field(default_factory=list)
    hit_rows: list[tuple[Any, ...]] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        store: Database,
        transaction: Transaction,
        events: Sequence[Incoming],
        memory: Memory,
        directory: Directory,
    ) -> Batch:
        """Read what the events may need."""
        wanted = {(event.caller.organisation_id, event.body.runId) for event in events}
        runs = memory.take(transaction, wanted)
        learnt = [Run(*row) for row in store.found(_RUNS, wanted - runs.keys())]
        runs |= {(run.organisation_id, run.run_id): run for run in learnt}
        found = directory.find(transaction, _keys(runs, events))
        return cls(
            store,
            transaction,
            directory,
            {organisation_id for organisation_id, _ in wanted},
            learnt=learnt,
            known=_known(store, [number for (owner, _), number in found.items() if owner == EVENTS]),
            runs=runs,
            calls=_calls(store, [number for (owner, _), number in found.items() if owner != EVENTS]),
            next_run=transaction.highest("runs") + 1,
            next_event=transaction.highest("events") + 1,
        )

    def new_run(self, event: Incoming) -> Run:
        run = Run(
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

    def call(self, run: Run, event: Incoming) -> Call | None:
        """The call that the event is about, or (the hash being the same) another one that takes its place."""
        return self.calls.get((run.run_no, event.call_hash))

    def record(self, event: Incoming, event_no: int, run: Run, answer: bytes, *, follows: bool) -> None:
        """Keep an event with its answer, unless that follows from its call's row; the same event later in the
        batch finds it."""
        organisation_id, body = event.caller.organisation_id, event.body
        self.event_types.append(body.eventType)
        self.entries.append((EVENTS, event.event_hash, event_no))
        self.event_rows.append(
            (
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
        self.known[event.event_hash] = Known(organisation_id, body.eventId, event.raw, answer)

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
        self.hit_rows.append((bucket, self.transaction.now, expires_at))

    def flush_calls(self) -> None:
        """Write calls and approvals gathered so far, so that statements can see them."""
        self.store.insert_many("tool_calls", CALL_COLUMNS, self.call_rows)
        self.store.insert_many("approvals", APPROVAL_COLUMNS, self.approval_rows)
        self.call_rows, self.approval_rows = [], []

    def flush_events(self) -> None:
        """Write events and calls gathered so far."""
        self.store.insert_many("events", EVENT_COLUMNS, self.event_rows)
        self.event_rows = []
        self.flush_calls()

    def complete(self, call: Call, completion: str, output: str | None) -> None:
        """Record what became of a call."""
        self.flush_calls()
        self.store.change(
            "UPDATE tool_calls SET completed_at = ?, completion = ?, output = ?, flags = ? WHERE call_no = ?",
            (self.transaction.at, completion, output, _encode(call.flags).decode(), call.call_no),
        )

    def completed(self, call: Call) -> bool:
        """Whether an outcome of the call was recorded before; the first one stays."""
        self.flush_calls()
        rows = self.store.rows("SELECT completed_at FROM tool_calls WHERE call_no = ?", (call.call_no,))
        return rows[0][0] is not None

    def flag(self, call: Call, flag: str) -> None:
        """Mark a call, leaving its outcome as it is."""
        if flag not in call.flags:
            call.flags.append(flag)
        self.store.change(
            "UPDATE tool_calls SET flags = ? WHERE call_no = ?",
            (_encode(call.flags).decode(), call.call_no),
        )

    def tool_name(self, call: Call) -> str:
        self.flush_calls()
        rows = self.store.rows("SELECT tool_name FROM tool_calls WHERE call_no = ?", (call.call_no,))
        return str(rows[0][0])

    def refresh_calls(self, run: Run) -> None:
        """Calls of a run whose approvals changed underneath are read again."""
        for (run_no, _), call in self.calls.items():
            if run_no == run.run_no:
                status, reason = self.store.rows(
                    "SELECT status, blocked_reason FROM tool_calls WHERE call_no = ?", (call.call_no,)
                )[0]
                if status != call.status:
                    call.status, call.reason = status, reason

    def write(self) -> None:
        self.changed = [run for run in self.runs.values() if run.new or run.dirty]
        self.store.insert_many("runs", RUN_COLUMNS, [_run_row(run) for run in self.changed if run.new])
        for run in self.changed:
            if not run.new:
                self.store.change(
                    "UPDATE runs SET status = ?, task = ?, model = ?, reason = ?, agent_context = ?,"
                    " ended_at = ? WHERE run_no = ?",
                    (
                        *(run.status, run.task, run.model, run.reason, run.agent_context),
                        *(run.ended_at, run.run_no),
                    ),
                )
        self.flush_events()
        self.store.insert_many("rate_hits", HIT_COLUMNS, self.hit_rows)
        self.directory.enter(self.transaction, self.entries, self.next_event - 1)


def _keys(runs: Mapping[tuple[str, str], Run], events: Iterable[Incoming]) -> list[Key]:
    """What the events, and the calls that they are about, are found by."""
    keys: list[Key] = []
    for event in events:
        keys.append((EVENTS, event.event_hash))
        if "toolCallId" in event.metadata:
            run = runs.get((event.caller.organisation_id, event.body.runId))
            if run is not None:
                keys.append((run.run_no, event.call_hash))
    return keys


def _known(store: Database, numbers: Iterable[int]) -> dict[int, Known]:
    """By the hash of the event's id."""
    rows = store.found(_KNOWN, [(number,) for number in numbers])
    return {row[0]: Known(row[1], row[2], bytes(row[3]), bytes(row[4])) for row in rows}


def _calls(store: Database, numbers: Iterable[int]) -> dict[tuple[int, int], Call]:
    """By run and hash of the call's id."""
    calls: dict[tuple[int, int], Call] = {}
    for row in store.found(_CALLS, [(number,) for number in numbers]):
        (run_no, call_hash, tool_call_id, call_no, digest, status, reason, approval_id) = row[:8]
        matched, shadow, flags, revision, decided_at, audit_id, blocked_reason = row[8:]
        calls[(run_no, call_hash)] = Call(
            tool_call_id=tool_call_id,
            call_no=call_no,
            digest=digest,
            status=status,
            reason=blocked_reason if status == "blocked" and blocked_reason else reason,
            matched=_decode(matched),
            shadow=_decode(shadow),
            flags=_decode(flags),
            approval_id=approval_id,
            policy_revision=revision,
            decided_at=decided_at,
            audit_id=audit_id,
        )
    return calls


def _run_row(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, column) for column in RUN_COLUMNS)
