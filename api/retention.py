"""Deletes what is older than the settings allow: events with payloads, finished deliveries, spent counts.

The audit log, approvals, runs and decisions stay: what was decided and why remains provable when the payload
is gone. Deleting goes in small batches through the writer, between other commits, so that no event waits for
it; several processes that do it at once only share the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from api.clock import Clock, Leaps, iso
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.database.outage import Outage
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.store import expiry

log = logging.getLogger("governance")

DAY: Final = 86_400.0
LEAP_SECONDS: Final = 3_600.0
AHEAD_SECONDS: Final = 60.0
"""The clocks of nodes may be so far apart."""
COUNTS: Final = "spent counts"
EVERY_SECONDS: Final = 60.0
MOST_AT_ONCE: Final = 500
"""Rows of one batch: a few milliseconds of the writer."""
BATCH_PAUSE: Final = 0.02
"""Between two batches, for everybody else."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, in days; 0: for ever."""

    event_days: int
    delivery_days: int

    def events_before(self, now: float) -> str:
        """When the newest event that is too old was received at most; empty: none is."""
        return iso(now - self.event_days * DAY) if self.event_days else ""

    def deliveries_before(self, now: float) -> str:
        """The same of deliveries."""
        return iso(now - self.delivery_days * DAY) if self.delivery_days else ""

    def due(self, now: float, id_index: IdIndex) -> dict[str, Callable[[Transaction], int]]:
        """The jobs to repeat until each deletes nothing more, by what they delete."""
        jobs: dict[str, Callable[[Transaction], int]] = {
            COUNTS: lambda transaction: expiry.rate_hits(transaction, now, MOST_AT_ONCE)
        }
        if before := self.events_before(now):
            jobs[f"events of before {before}"] = lambda transaction: expiry.events(
                transaction, id_index, before, MOST_AT_ONCE
            )
        if until := self.deliveries_before(now):
            jobs[f"deliveries of before {until}"] = lambda transaction: expiry.deliveries(
                transaction, until, MOST_AT_ONCE
            )
        return jobs


class Caution:
    """Whether the clock can be believed when it says that something is old: one that was set ahead by mistake
    would have everything deleted."""

    def __init__(self, leaps: Leaps) -> None:
        self._leaps = leaps
        self._told = False

    def settled(self) -> bool:
        """False for a day after the clock has leapt ahead, unless it leaps back."""
        ahead = self._leaps.ahead(DAY)
        if ahead <= LEAP_SECONDS:
            self._told = False
            return True
        if not self._told:
            self._told = True
            log.warning(
                "the clock leapt ahead by %.1f hours: nothing is deleted for a day, unless it leaps back",
                ahead / 3_600,
            )
        return False


async def clean(retention: Retention, id_index: IdIndex, writer: Writer, now: float) -> int:
    """Delete all that is due now; returns how many rows."""
    total = 0
    for what, job in retention.due(now, id_index).items():
        gone = 0
        while deleted := await writer.write(job):
            gone += deleted
            await asyncio.sleep(BATCH_PAUSE)
        if gone and what != COUNTS:
            log.info("retention deleted %d %s", gone, what)
        total += gone
    return total


async def pull_back(store: Database, writer: Writer, now: float) -> int:
    """Calls that were made while the clock was ahead count as made now, for one window and no longer."""
    pulled = 0
    while await store.read(expiry.ahead, store, now + AHEAD_SECONDS, 1):
        pulled += await writer.write(
            lambda transaction: expiry.pull_back(transaction, now + AHEAD_SECONDS, MOST_AT_ONCE)
        )
        await asyncio.sleep(BATCH_PAUSE)
    if pulled:
        log.warning("%d counted calls and logins were of a time to come; they count as of now", pulled)
    return pulled


async def keep_clean(
    retention: Retention, store: Database, id_index: IdIndex, writer: Writer, clock: Clock, leaps: Leaps
) -> None:
    """Clean now and every minute, for ever."""
    outage, caution, backwards = Outage("retention"), Caution(leaps), -1
    while True:
        try:
            now = clock() - leaps.ahead(DAY)
            bounds = retention.events_before(now), retention.deliveries_before(now)
            if caution.settled() and await store.read(expiry.anything, store, now, *bounds):
                await clean(retention, id_index, writer, now)
            if backwards != (leapt := leaps.backwards):
                await pull_back(store, writer, clock())
                backwards = leapt
        except Exception as error:
            outage.met(error)
        else:
            outage.over()
        await asyncio.sleep(EVERY_SECONDS)
