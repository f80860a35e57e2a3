"""Deletes what is older than the settings allow: events with payloads, outputs of calls, finished deliveries,
alerts, spent counts, and audit records where that is set, behind a certificate (`audit/retention/`).

Approvals, runs and decisions stay: what was decided and why remains provable when the payload is gone.
Deleting goes in small batches through the writer, between other commits, so that no event waits for it;
several processes that do it at once only share the work. On PostgreSQL the events of some days go in one
piece, with the partition they are in, once the youngest is too old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from api.audit.retention.record_retention import RecordRetention
from api.clock import APART_SECONDS, DAY, Clock, Leaps, iso, seconds
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.database.lanes.lease import spans
from api.database.outage import Outage
from api.database.partitions import catalog, upkeep
from api.database.partitions.catalog import EVENTS
from api.database.partitions.upkeep import Partitions
from api.database.table import counter
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.health.clocks import ClockCheck
from api.retention.caution import Caution, leaps_of
from api.retention.days_kept import ALERT_DAYS, AUDIT_DAYS, DELIVERY_DAYS, EVENT_DAYS, DaysKept
from api.store import expiry
from api.store.alerts import alerts, log_reader
from api.store.grants import granting

log = logging.getLogger("governance")

COUNTS: Final = "spent counts"
TALLIES: Final = "expired tallies"
UNTOLD: Final = frozenset((COUNTS, TALLIES))
EVERY_SECONDS: Final = 60.0
MOST_AT_ONCE: Final = 500
"""Rows of one batch: a few milliseconds of the writer."""
MOST_IDS_AT_ONCE: Final = 2_000
"""The same where the server alone finds and deletes them."""
BATCH_PAUSE: Final = 0.02
"""Between two batches, for everybody else."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is of `before` a time, if that is said, goes by a job that is repeated until it deletes nothing
    more."""

    before: str
    job: Callable[[Transaction], int]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, in days; 0: for ever."""

    event_days: int
    delivery_days: int
    alert_days: int = 0

    def events_before(self, now: float) -> str:
        """When the newest event that is too old was received at most; empty: none is."""
        return iso(now - self.event_days * DAY) if self.event_days else ""

    def deliveries_before(self, now: float) -> str:
        """The same of deliveries."""
        return iso(now - self.delivery_days * DAY) if self.delivery_days else ""

    def alerts_before(self, now: float) -> str:
        """The same of alerts, by the last of what they tell of."""
        return iso(now - self.alert_days * DAY) if self.alert_days else ""

    @property
    def days_together(self) -> int:
        """Of a partition that goes in one piece; the oldest events may stay so much longer."""
        return EVENTS.days_of_one(self.event_days)

    def due(self, now: float, id_index: IdIndex) -> dict[str, Due]:
        """What to delete, by what it is called."""
        jobs = {
            COUNTS: Due("", lambda transaction: expiry.rate_hits(transaction, now, MOST_AT_ONCE)),
            TALLIES: Due("", lambda transaction: log_reader.forget_expired(transaction, now, MOST_AT_ONCE)),
        }
        if before := self.events_before(now):
            jobs["events"] = Due(
                before,
                lambda transaction: expiry.events(
                    transaction, id_index, before, MOST_AT_ONCE, self.days_together
                ),
            )
        if until := self.deliveries_before(now):
            jobs["deliveries"] = Due(
                until, lambda transaction: expiry.deliveries(transaction, until, MOST_AT_ONCE)
            )
        if last := self.alerts_before(now):
            jobs["alerts"] = Due(last, lambda transaction: alerts.forget_old(transaction, last, MOST_AT_ONCE))
        return jobs


class Parts:
    """The parts of the work. Each is tried whatever became of the others, and the log says which cannot be
    done; what is in the way of several is said once."""

    def __init__(self) -> None:
        self._outages: dict[str, Outage] = {}
        self._said: set[str] = set()

    def begin(self) -> None:
        """All of them, once more."""
        self._said.clear()

    async def take(self, what: str, part: Awaitable[object]) -> bool:
        """One of them, by its name; whether it was done. Never raises."""
        outage = self._outages.setdefault(what, Outage(what))
        try:
            await part
        except Exception as error:
            if str(error) not in self._said:
                outage.met(error)
            self._said.add(str(error))
            return False
        outage.over()
        return True


Passed = dict[int, int]
"""The first number of a lane to the last of its calls whose outputs are known to be gone."""


def cleaning(
    retention: Retention, id_index: IdIndex, writer: Writer, now: float, passed: Passed
) -> Iterator[tuple[str, Awaitable[int]]]:
    """The deleting of all that is due now, by its name; each says of how many rows."""
    if before := retention.events_before(now):
        yield "retention of outputs", clear_outputs(before, passed, writer, now)
    for what, due in retention.due(now, id_index).items():
        yield f"retention of {what}", _delete(what, due, writer)
    if before := retention.events_before(now):
        # Last, since single events go by those that are behind them.
        yield "dropping partitions of `events`", drop_past(before, id_index, writer)


async def clean(retention: Retention, id_index: IdIndex, writer: Writer, now: float) -> int:
    """Delete all that is due now; returns how many rows."""
    return sum([await part for _, part in cleaning(retention, id_index, writer, now, {})])


async def _delete(what: str, due: Due, writer: Writer) -> int:
    gone = 0
    while deleted := await writer.write(due.job):
        gone += deleted
        await asyncio.sleep(BATCH_PAUSE)
    if gone and what not in UNTOLD:
        log.info("retention deleted %d %s of before %s", gone, what, due.before)
    return gone


async def clear_outputs(before: str, passed: Passed, writer: Writer, now: float) -> int:
    """Of the calls that were decided before a time; returns how many had one. How far that came is kept, so
    that nobody goes through all calls again."""
    total, store = 0, writer.store
    known = await store.read(counter, expiry.OUTPUTS)
    for first, last in await store.read(spans, store):
        if first not in passed:
            begin = await store.read(expiry.first_call_since, store, first, last, iso(known))
            passed[first] = begin - 1
        while calls := await store.read(
            expiry.old_calls, store, now, passed[first], last, before, MOST_AT_ONCE
        ):
            if numbers := [number for number, has_output in calls if has_output]:
                total += await writer.write(partial(expiry.clear_outputs, numbers=numbers))
                await asyncio.sleep(BATCH_PAUSE)
            passed[first] = calls[-1][0]
    reached = int(seconds(before))
    if total or reached > known + DAY:
        await writer.write(lambda transaction: transaction.put({expiry.OUTPUTS: reached}))
    if total:
        log.info("retention deleted %d outputs of calls of before %s", total, before)
    return total


async def drop_past(before: str, id_index: IdIndex, writer: Writer) -> int:
    """The partitions that have only events of before a time; returns how many events those were whose ids
    went by this process."""
    total, store = 0, writer.store
    for partition in await store.read(catalog.past, store, before):
        job = partial(upkeep.forget, partition=partition, keys=id_index.keys, most=MOST_IDS_AT_ONCE)
        while forgotten := await writer.write(job):
            total += forgotten
            await asyncio.sleep(BATCH_PAUSE)
        if await store.read(upkeep.drop, store, partition):
            log.info("retention dropped `%s`, the events of before %s", partition.name, partition.span.until)
    return total


async def pull_back(store: Database, writer: Writer, now: float) -> int:
    """What was done while the clock was ahead lasts no longer for that: calls count as made now, for one
    window, and grants end."""
    pulled = 0
    if await store.read(granting.made_ahead, now + APART_SECONDS):
        await writer.write(lambda transaction: granting.end_ahead(transaction, now + APART_SECONDS))
    while await store.read(expiry.ahead, store, now + APART_SECONDS, 1):
        pulled += await writer.write(
            lambda transaction: expiry.pull_back(transaction, now + APART_SECONDS, MOST_AT_ONCE)
        )
        await asyncio.sleep(BATCH_PAUSE)
    if pulled:
        log.warning("%d counted calls and logins were of a time to come; they count as of now", pulled)
    return pulled


async def keep_clean(
    kept: DaysKept,
    records: RecordRetention,
    store: Database,
    id_index: IdIndex,
    writer: Writer,
    partitions: Sequence[Partitions],
    clock: Clock,
    leaps: Leaps,
    clocks: ClockCheck | None = None,
) -> None:
    """Clean now and every minute, for ever. INVARIANT: nothing that nodes share goes early, or is moved, for
    the clock of one that is not that of the database."""

    outage, parts, caution, backwards = Outage("retention"), Parts(), None, -1
    passed: Passed = {}
    while True:
        parts.begin()
        try:
            if clocks is not None:
                await store.read(clocks.look)
            if caution is None:
                caution = Caution(await store.read(leaps_of, store, clock(), leaps), clocks)
        except Exception as error:
            outage.met(error)
            await asyncio.sleep(EVERY_SECONDS)
            continue
        outage.over()
        ahead = 0.0 if clocks is None else clocks.ahead
        now = clock() - leaps.ahead(DAY)
        for each in partitions:
            await parts.take(f"making partitions of `{each.table.name}`", store.read(each.prepare, now))
        now = min(now, clock() - ahead)
        if caution.settled() and await parts.take("noting how long data are kept", kept.look(writer, now)):
            retention = Retention(*(kept.counting[name] for name in (EVENT_DAYS, DELIVERY_DAYS, ALERT_DAYS)))
            if await _anything(retention, store, now):
                for what, part in cleaning(retention, id_index, writer, now, passed):
                    await parts.take(what, part)
            records.days = kept.counting[AUDIT_DAYS]
            await parts.take("retention of audit records", records.clean(now))
        leapt = leaps.backwards
        what = "pulling back what was counted while the clock was ahead"
        # To who is behind it, what others count now is still to come.
        due = backwards != leapt and ahead >= -APART_SECONDS
        if due and await parts.take(what, pull_back(store, writer, clock())):
            backwards = leapt
        await asyncio.sleep(EVERY_SECONDS)


async def _anything(retention: Retention, store: Database, now: float) -> bool:
    """Whether there is anything to delete. Who cannot tell tries."""
    bounds = (
        retention.events_before(now),
        retention.deliveries_before(now),
        retention.alerts_before(now),
        retention.days_together,
    )
    try:
        return await store.read(expiry.anything, store, now, *bounds)
    except Exception:
        return True
