"""One writing transaction: what a job may do in it, and what follows its commit.

INVARIANT: what is published, delivered or run afterwards is gathered here and goes out only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import randbits
from typing import Any, Final, Protocol

import msgspec

from api.clock import Ids, iso
from api.database import audit_chain
from api.database import change_hints as hints
from api.database.connection import Database
from api.database.lanes import guards
from api.database.lanes.guards import Assumed
from api.database.lanes.lease import Lane
from api.database.lanes.session import Rows, Statement
from api.telemetry.correlation import kept


class NotRepeatable(Exception):
    """The transaction came upon something that it has not looked for; it is made again, not repeatable."""


class Change(msgspec.Struct, frozen=True):
    """Something that others wait for: published after the commit to waiting requests and streams.

    `topic` is `approval`, `run`, `decision`, `policy`, `halt`, `grant`, `alert`, `webhook` or `credential`,
    which may have ended; `key` the resource's id.
    """

    organisation_id: str
    topic: str
    key: str
    data: dict[str, Any] = {}


CREDENTIAL = "credential"
WORTH_A_HINT = frozenset({"approval", "change", "grant", "halt", "policy", "webhook", "alert", CREDENTIAL})
"""Topics that other processes are told of at once. Decisions and events come too often for that."""


WATCHED = frozenset(guards.COUNTERS)
"""Counters that events are decided by."""
NUMBERED: Final = frozenset({"policies"})
"""Counters whose values count something."""
LEAP_BITS: Final = 24
"""Of how far the others leap at most: 2^39 changes fit into a counter."""


class Outbox(Protocol):
    """Turns a webhook event into delivery rows: one per subscribed webhook (`store/webhooks/outbox.py`)."""

    columns: tuple[str, ...]
    """The first is `webhook_id`."""
    version: int
    """Of the subscriptions."""

    def refresh(self, version: int) -> None:
        """At the start of a transaction: read the subscriptions again if their counter has moved."""

    def listens(self, organisation_id: str) -> bool:
        """Whether anybody is subscribed to anything of an organisation."""

    def rows(
        self, organisation_id: str, event: str, data: dict[str, Any], now: float, key_id: str | None = None
    ) -> list[tuple[Any, ...]]: ...

    def wake_sender(self, webhook_ids: Iterable[str]) -> None:
        """Deliveries of these are committed and due: wake who sends them. Called on the writer thread; must
        not raise."""


COUNTERS: Statement = ("SELECT name, value FROM counters", ())
_STATE = (
    "SELECT name, value FROM counters"
    " UNION ALL SELECT '#runs', MAX(run_no) FROM runs"
    " UNION ALL SELECT '#events', MAX(no) FROM"
    " (SELECT MAX(event_no) AS no FROM events UNION ALL SELECT MAX(call_no) FROM tool_calls) AS given"
)
"""What a transaction begins with, in one statement: the counters, and the highest numbers given out. A call
has that of its event, and keeps it where somebody has deleted the newest events by hand."""
IN_ORDER: Final = frozenset(
    (
        *("user.updated", "webhook.updated", "webhook.disabled", "webhook.deleted", "channel.changed"),
        *("key.rotated", "organisation.updated", "tools.admitted"),
        *("change.resolved", "change.applied", "change.failed", "alert.raised", "alert.acknowledged"),
    )
)
"""Types of records that say how a thing is now, of which each takes the place of the one before. Nodes have
chains of their own, and clocks leap and differ, so they are numbered. INVARIANT: only jobs write them, which
go one at a time (`lanes/locks.py`)."""
ORDER: Final = "record order"
"""The counter of those."""
_SET = (
    "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


class Transaction:
    """What a job may do inside the open transaction, beside peewee queries of its own."""

    def __init__(
        self,
        store: Database,
        now: float,
        ids: Ids,
        outbox: Outbox | None,
        lane: Lane | None = None,
        numbers: int = 0,
        counters: Rows | None = None,
        assumed: Assumed | None = None,
    ) -> None:
        """On PostgreSQL in a `lane`, with so many `numbers` reserved; `counters` if they were read already;
        `assumed`: nothing is read, and what is relied on is noted there."""
        self.store = store
        self.now = now
        self.at = iso(now)
        self.ids = ids
        self._changes: list[Change] = []
        state = counters if counters is not None else store.rows(_STATE)
        self._state: dict[str, int] = {name: int(value or 0) for name, value in state}
        self.looked_up: list[Rows] = []
        """What was asked about the events, see `Ingest.look_ups`."""
        self.lane = lane
        self.assumed = assumed
        self._numbers = numbers
        self._outbox = outbox
        if outbox is not None:
            outbox.refresh(self.counter("webhooks"))
        if lane is None:
            self._audit = audit_chain.Chain(store, ids, self.at)
        else:
            self._audit = audit_chain.Chain(store, ids, self.at, lane.number, lane.tips)
        self.append = self._audit.append
        self.positions = self._audit.positions
        self._deliveries: list[tuple[Any, ...]] = []
        self._after: list[Callable[[], None]] = []
        self.runs_changed = False
        """A job has changed a run, which only events do else; what is remembered of runs does not hold."""
        self.bumped: set[str] = set()

    def audit(self, organisation_id: str, type: str, **fields: Any) -> str:
        """Append one record to the organisation's hash chain; returns its `auditId`. See `audit_chain.py`."""
        if type in IN_ORDER:
            number = self.counter(ORDER) + 1
            fields["details"] = {**fields["details"], "order": number}
            self.put({ORDER: number})
        return self._audit.append(audit_chain.Record(type=type, organisationId=organisation_id, **fields))

    def notify(
        self, organisation_id: str, event: str, data: dict[str, Any], key_id: str | None = None
    ) -> None:
        """Enqueue this webhook event for everyone subscribed; the rows commit with their cause. `key_id`: the
        API key that caused it, if one did."""
        if self._outbox is not None:
            self._deliveries += self._outbox.rows(organisation_id, event, data, self.now, key_id)

    def listens(self, organisation_id: str) -> bool:
        """Whether anybody may want to be notified; else nobody need find the words."""
        return self._outbox is not None and self._outbox.listens(organisation_id)

    def enqueue_delivery(self, row: tuple[Any, ...]) -> None:
        """Enqueue one delivery made by hand (a test event); see `Outbox.columns`."""
        self._deliveries.append(row)

    def wake_sender(self, webhook_id: str) -> None:
        """A delivery of this webhook became due: wake who sends, once the transaction is committed."""
        if (outbox := self._outbox) is not None:
            self.after_commit(lambda: outbox.wake_sender((webhook_id,)))

    def publish(self, organisation_id: str, topic: str, key: str, **data: Any) -> None:
        """Wake those who wait for this, once the transaction is committed."""
        self._changes.append(Change(organisation_id, topic, key, data))

    def changes(self) -> Iterator[Change]:
        """What happened. Decisions are many and hardly ever waited for, so theirs are made when asked for."""
        yield from self._changes
        for record in self._audit.records:
            if record.type == "decision":
                yield from _decided(record)

    def after_commit(self, function: Callable[[], None]) -> None:
        """Run this once the transaction is committed (on the writer thread); it must not raise."""
        self._after.append(kept(function))

    def counter(self, name: str) -> int:
        """A counter that caches compare with, as of now inside the transaction."""
        return self._state.get(name, 0)

    def highest(self, table: str) -> int:
        """The highest number of `runs` or `events` when the transaction began (SQLite); 0: there is none."""
        return self._state[f"#{table}"]

    def next_numbers(self, events: int) -> tuple[int, int]:
        """Where those of new runs begin, and those of new events, of which there are so many at most."""
        if self.lane is None:
            return self.highest("runs") + 1, self.highest("events") + 1
        assert self._numbers >= 2 * events
        return self.lane.first, self.lane.first + events

    def tip(self, organisation_id: str) -> audit_chain.Tip:
        """The end of an organisation's audit chain, as of now inside the transaction."""
        return self._audit.tip(organisation_id)

    def bump(self, name: str) -> int:
        """Move a counter that caches compare with; returns the new value.

        INVARIANT: no value comes twice, also not after a copy of the database that lacks the last commits has
        taken over. So it leaps, but where it is a number that people know.
        """
        self.bumped.add(name)
        leap = 1 if name in NUMBERED else 1 + randbits(LEAP_BITS)
        value = self._state[name] = self.counter(name) + leap
        self._set(name, value)
        return value

    def _set(self, name: str, value: int) -> None:
        self.store.change(_SET, (name, value))

    def put(self, counters: Mapping[str, int]) -> None:
        """Set counters that no cache compares with."""
        self._state.update(counters)
        for name, value in counters.items():
            self._set(name, value)

    def mark(self) -> tuple[int, int, int, dict[str, int], object]:
        changes, deliveries, after = len(self._changes), len(self._deliveries), len(self._after)
        return changes, deliveries, after, dict(self._state), self._audit.mark()

    def undo(self, mark: tuple[int, int, int, dict[str, int], object]) -> None:
        changes, deliveries, after, self._state, audit = mark
        del self._changes[changes:], self._deliveries[deliveries:], self._after[after:]
        self._audit.undo(audit)

    def flush(self) -> None:
        """Write what was gathered; called once, before the commit."""
        self._audit.flush()
        if self.bumped & WATCHED:
            self.store.exclude_events()
        if self.bumped or any(change.topic in WORTH_A_HINT for change in self._changes):
            hints.send(self.store)
        if self._deliveries and self._outbox is not None:
            self.store.insert_many("deliveries", self._outbox.columns, self._deliveries)

    @property
    def audited(self) -> audit_chain.Spans:
        """The audit records of this transaction."""
        return self._audit.spans

    @property
    def records(self) -> list[audit_chain.Record]:
        """The same in whole, in the order of their chains."""
        return self._audit.records

    def committed(self) -> None:
        if self.lane is not None:
            self.lane.moved(self._numbers, self._audit.tips)
        if self._deliveries and self._outbox is not None:
            self._outbox.wake_sender(row[0] for row in self._deliveries)
        after, self._after = self._after, []  # they refer to the transaction: leave no cycle behind
        for function in after:
            function()


def _decided(record: audit_chain.Record) -> Iterator[Change]:
    """A call was decided, for those who follow its run or all decisions."""
    yield Change(record.organisationId, "run", record.runId or "")
    data = {"runId": record.runId, "agentId": record.agentId, "toolName": record.toolName}
    data |= {"toolCallStatus": record.decision, "reason": record.reason}
    yield Change(record.organisationId, "decision", record.toolCallId or "", data)


Job = Callable[[Transaction], Any]
