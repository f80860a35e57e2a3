"""Everything that one batch of events reads and writes: runs, tool calls, known events, and the new rows.

`Batch.open` finds what the whole batch may need (`known/lookups.py`); deciding then happens in memory;
`write` puts all rows in. It decides nothing.

INVARIANT: it lives inside one writing transaction, in which what it has found stays true: on SQLite those are
one at a time, on PostgreSQL rows are locked, or guards fail what is not true any more. The numbers that it
gives out are nobody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import astuple, replace

from api.audit.stored_decision import Checked, check
from api.clock import Leaps, iso
from api.database.connection import Database
from api.database.errors import NeedsAnswer
from api.database.id_index import EVENTS, IdIndex, IndexEntry
from api.database.lanes.guards import Assumed, Outcome, completed, ended, lock_buckets
from api.database.lanes.keys import KeyRow
from api.database.transaction import Transaction
from api.ingestion.event import Incoming
from api.ingestion.known.counts import CallCounts
from api.ingestion.known.lookups import KnownEvent, answered, looked_up, remembered
from api.ingestion.known.runs import KnownCalls, KnownRun, KnownRuns
from api.ingestion.rows import (
    ApprovalRow,
    CallRow,
    EventRow,
    GrantUseRow,
    RateHitRow,
    RunRow,
    RunValueRow,
    TableRow,
)
from api.store import run_values
from api.store.expiry import OUTPUTS
from api.store.grants.reading import grants_of_calls

_CHANGING = (
    *("status", "task", "model", "reason", "agent_context", "ended_at"),
    *("parent_run_id", "labels", "steps", "flow"),
)
"""The columns of a run that change."""
_UPDATE_RUN = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE run_no = ?"


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
    counts: CallCounts
    cancelled: set[int] = field(default_factory=set)
    """Numbers of calls that waited for people until this batch ended their run."""
    ended: int = 0
    """Approvals that ended with their runs."""
    uses: dict[str, int] = field(default_factory=dict)
    """Grant to the calls that went ahead by it, with those of this batch."""
    changed: list[KnownRun] = field(default_factory=list)
    """New or dirty, once they are written."""
    event_types: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    """Of the calls decided for the first time."""
    decided: list[tuple[str, str, str]] = field(default_factory=list)
    """Organisation, policy and status of each call that a policy decided."""
    entries: list[IndexEntry] = field(default_factory=list)
    """Of the directory, for the new rows (SQLite)."""
    keys: list[KeyRow] = field(default_factory=list)
    """The same for PostgreSQL's table of ids."""
    event_rows: list[EventRow] = field(default_factory=list)
    call_rows: list[CallRow] = field(default_factory=list)
    approval_rows: list[ApprovalRow] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """Of calls that are in memory (PostgreSQL)."""
    value_rows: list[RunValueRow] = field(default_factory=list)
    use_rows: list[GrantUseRow] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        store: Database,
        transaction: Transaction,
        events: Sequence[Incoming],
        known_runs: KnownRuns,
        known_calls: KnownCalls,
        id_index: IdIndex,
        leaps: Leaps | None = None,
    ) -> Batch:
        """Find what the events may need."""
        if store.is_sqlite:
            found = looked_up(store, transaction, events, known_runs, id_index)
        elif transaction.assumed is not None:
            found = remembered(transaction, events, known_runs, known_calls)
        else:
            found = answered(transaction.looked_up)
        return cls(
            store,
            transaction,
            id_index,
            {event.caller.organisation_id for event in events},
            found.runs,
            found.learnt,
            found.calls,
            found.known,
            *transaction.next_numbers(len(events)),
            CallCounts(store, transaction, leaps),
        )

    def new_run(self, event: Incoming) -> KnownRun:
        """The run that an event begins, which is none yet; see `add_run`."""
        return KnownRun(
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

    def add_run(self, run: KnownRun, values: Sequence[RunValueRow]) -> KnownRun:
        """A run that begins, and what it has seen already."""
        self.next_run += 1
        self.runs[(run.organisation_id, run.run_id)] = run
        self.learnt.append(run)
        self.value_rows += values
        return run

    def load_values(self, run: KnownRun) -> None:
        """Bring what a run has seen, unless it is at hand. INVARIANT: once it was brought, it follows every
        event of the run, so rows that are not written yet are never missed."""
        if run.values is not None:
            return
        if run.flow:
            self.need_answer()
        flow = 0 if run.new else run.flow  # of a new one there is nothing to be read
        run.values = run_values.values_of(self.store, run.run_no, flow, run.task, run.parent_run_id)
        if not run.new:
            self.learnt.append(run)

    def checked(self, call: CallRow, receipt: bytes = b"") -> Checked:
        """Hold a stored decision, and its answer, against their records. INVARIANT: what this transaction
        decides, answers and cancels is on record only with it, so it is held against nothing."""
        positions = self.transaction.positions
        if (position := positions.get(call.audit_id)) is not None:
            return Checked(None, position)
        if receipt and msgspec.json.decode(receipt)["auditId"] in positions:
            receipt = b""
        if call.call_no in self.cancelled:
            call = replace(call, status="awaiting_approval")
        return check(call, receipt)

    def call(self, run: KnownRun, event: Incoming) -> CallRow | None:
        """The call that the event is about, or (the hash being the same) another one that takes its place."""
        return self.calls.get((run.run_no, event.call_hash))

    def add_call(self, event: Incoming, call: CallRow) -> None:
        """A call that was decided for the first time."""
        self.calls[(call.run_no, call.call_hash)] = call
        self.call_rows.append(call)
        if self.store.is_sqlite:
            self.entries.append((call.run_no, call.call_hash, call.call_no))
        else:
            self.keys.append((call.organisation_id, event.call_key, call.call_no))
        self.statuses.append(call.status)

    def add_event(self, event: Incoming, run: KnownRun, answer: bytes, *, follows: bool) -> None:
        """Keep an event with its answer, unless that follows from its call's row; the same event later in the
        batch finds it."""
        organisation_id, body = event.caller.organisation_id, event.body
        event_no, self.next_event = self.next_event, self.next_event + 1
        self.event_types.append(body.eventType)
        if self.store.is_sqlite:
            self.entries.append((EVENTS, event.event_hash, event_no))
        else:
            self.keys.append((organisation_id, event.key, event_no))
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
        self.known[event.event_hash] = KnownEvent(organisation_id, body.eventId, answer, event_no, event.raw)

    @property
    def is_assumed(self) -> bool:
        """Whether what is in the database was assumed, and not looked at."""
        return self.transaction.assumed is not None

    def need_answer(self) -> None:
        """Raises NeedsAnswer there: what follows takes a look."""
        if self.is_assumed:
            raise NeedsAnswer

    def used(self, grant_id: str, bucket: str) -> int:
        """How many calls went ahead by a grant. INVARIANT: nobody else counts them meanwhile."""
        known = self.uses.get(grant_id)
        if known is None:
            self.need_answer()
            if not self.store.is_sqlite:
                self.store.rows(*lock_buckets([bucket]))
            rows = self.store.rows("SELECT COUNT(*) FROM grant_uses WHERE grant_id = ?", (grant_id,))
            known = self.uses[grant_id] = int(rows[0][0])
        return known

    def grants_of(self, call: CallRow) -> list[str]:
        """The grants that a call was decided by."""
        found = [use.grant_id for use in self.use_rows if use.call_no == call.call_no]
        return found or grants_of_calls([call.call_no]).get(call.call_no, [])

    def use_grant(self, grant_id: str, call_no: int) -> None:
        """One more call was decided by a grant."""
        if grant_id in self.uses:
            self.uses[grant_id] += 1
        self.use_rows.append(GrantUseRow(grant_id, call_no))

    def complete(self, call: CallRow, completion: str, output: str | None) -> None:
        """Record what became of a call, and its flags, of which one that is `remembered` gets none. Of one
        that was decided so long ago that outputs of its time are gone, none is kept."""
        call.completed_at = self.transaction.at
        if (cleared := self.transaction.counter(OUTPUTS)) and call.decided_at < iso(cleared):
            output = None
        if self.is_assumed:
            now = (call.call_no, call.tool_call_id, call.completed_at)
            self.outcomes.append((*now, completion, output))
            return
        self.flush_calls()
        self.store.change(
            "UPDATE tool_calls SET completed_at = ?, completion = ?, output = ?, flags = ? WHERE call_no = ?",
            (call.completed_at, completion, output, call.flags, call.call_no),
        )

    def write_flags(self, call: CallRow) -> None:
        """Record the flags of a call, leaving its outcome as it is."""
        self.need_answer()
        self.flush_calls()
        self.store.change("UPDATE tool_calls SET flags = ? WHERE call_no = ?", (call.flags, call.call_no))

    def refresh_calls(self, run: KnownRun) -> None:
        """Calls of a run whose approvals changed underneath are read again."""
        for (run_no, _), call in self.calls.items():
            if run_no == run.run_no:
                now = self.store.rows(
                    "SELECT status, reason, blocked_reason FROM tool_calls WHERE call_no = ?", (call.call_no,)
                )[0]
                if now[0] != call.status:
                    call.status, call.reason, call.blocked_reason = now
                    self.cancelled.add(call.call_no)

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
        """Write all that is left. INVARIANT: runs that are known before calls that are, then new runs in the
        order of their ids, then ids in theirs, so that no two transactions wait for each other."""
        self.changed = [run for run in self.runs.values() if run.new or run.dirty]
        new = sorted((run for run in self.changed if run.new), key=lambda run: run.run_id)
        if self.transaction.assumed is not None:
            self._write_assumed(self.transaction.assumed)
        self._insert(RunRow, [run.row() for run in new])
        if not self.is_assumed:
            for run in self.changed:
                if not run.new:
                    values = [getattr(run, name) for name in _CHANGING]
                    self.store.change(_UPDATE_RUN, (*values, run.run_no))
        if self.store.is_sqlite:
            self.id_index.enter(self.transaction, self.entries, self.next_event - 1)
        else:
            self.id_index.keys.enter(self.transaction, self.keys)
        self.flush_events()
        self._insert(RateHitRow, self.counts.rows)
        self._insert(RunValueRow, self.value_rows)
        self._insert(GrantUseRow, self.use_rows)

    def _write_assumed(self, assumed: Assumed) -> None:
        """What changes rows that are there already, as long as they are as they were seen."""
        assumed.held = bool(self.approval_rows)
        assumed.changed_runs = [(run.organisation_id, run.run_id) for run in self.changed]
        ends = [(run.run_no, run.status, str(run.ended_at)) for run in self.changed if not run.new]
        if ends:
            self.store.change(*ended(ends))
        if self.outcomes:
            self.store.change(*completed(self.outcomes))

    def _insert(self, kind: type[TableRow], rows: Sequence[TableRow]) -> None:
        if rows:
            self.store.insert_many(kind.table, kind.__struct_fields__, [astuple(row) for row in rows])
