"""Deletes what is older than the settings allow: events with payloads, finished deliveries, spent counts.

The audit log, approvals, runs and decisions stay: what was decided and why remains provable when the payload
is gone. Deleting goes in small batches through the writer, between other commits, so that no event waits for
it; several processes that do it at once only share the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from api.clock import Clock, iso
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.database.outage import Outage
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.store import expiry

DAY: Final = 86_400.0
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

    def due(self, now: float, id_index: IdIndex) -> list[Callable[[Transaction], int]]:
        """The jobs to repeat until each deletes nothing more."""
        jobs: list[Callable[[Transaction], int]] = [
            lambda transaction: expiry.rate_hits(transaction, now, MOST_AT_ONCE)
        ]
        if before := self.events_before(now):
            jobs.append(lambda transaction: expiry.events(transaction, id_index, before, MOST_AT_ONCE))
        if until := self.deliveries_before(now):
            jobs.append(lambda transaction: expiry.deliveries(transaction, until, MOST_AT_ONCE))
        return jobs


async def clean(retention: Retention, id_index: IdIndex, writer: Writer, now: float) -> int:
    """Delete all that is due now; returns how many rows."""
    total = 0
    for job in retention.due(now, id_index):
        while deleted := await writer.write(job):
            total += deleted
            await asyncio.sleep(BATCH_PAUSE)
    return total


async def keep_clean(
    retention: Retention, store: Database, id_index: IdIndex, writer: Writer, clock: Clock
) -> None:
    """Clean now and every minute, for ever."""
    outage = Outage("retention")
    while True:
        try:
            now = clock()
            bounds = retention.events_before(now), retention.deliveries_before(now)
            if await store.read(expiry.anything, store, now, *bounds):
                await clean(retention, id_index, writer, now)
        except Exception as error:
            outage.met(error)
        else:
            outage.over()
        await asyncio.sleep(EVERY_SECONDS)
