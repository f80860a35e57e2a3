"""A clock that leaps ahead by mistake deletes nothing."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from api.audit.retention.record_retention import RecordRetention
from api.clock import DAY, Leaps, random_ids
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.database.writer import Writer
from api.health.clocks import ClockCheck
from api.retention import cleaning
from api.retention.caution import Caution
from api.retention.days_kept import ALERT_DAYS, AUDIT_DAYS, DELIVERY_DAYS, EVENT_DAYS, DaysKept


class Time:
    def __init__(self) -> None:
        self.steady = 1_000.0
        self.ahead = 1.7e9

    def clock(self) -> float:
        return self.steady + self.ahead


def test_nothing_is_deleted_for_a_day_after_a_leap(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    leaps = Caution(Leaps(time.clock, lambda: time.steady))
    time.steady += 40 * DAY
    assert leaps.settled(), "time that passes is no leap"
    time.ahead += 60 * DAY
    assert not leaps.settled()
    time.steady += 60
    assert not leaps.settled()
    assert caplog.text.count("nothing is deleted for a day") == 1
    time.ahead -= 60 * DAY
    assert leaps.settled(), "it leapt back"
    time.ahead += 60 * DAY
    assert not leaps.settled()
    time.steady += DAY
    assert leaps.settled(), "it seems to be right"
    assert leaps.settled()


@pytest.mark.postgres
def test_nothing_is_deleted_while_the_database_has_another_time(postgres_url: str) -> None:
    """A node that came up with a wrong clock knows of no leap, and after a day would believe it."""
    ahead = [40 * DAY]

    def clock() -> float:
        return time.time() + ahead[0]

    store = Database(postgres_url)
    try:
        clocks = ClockCheck(store, clock)
        caution = Caution(Leaps(clock, time.monotonic), clocks)
        clocks.look()
        assert not caution.settled()
        ahead[0] = 0.0
        clocks.look()
        assert Caution(Leaps(clock, time.monotonic), clocks).settled()
    finally:
        store.close()


class Turns:
    """In the place of what audit records go by: whether the first turn is over."""

    def __init__(self) -> None:
        self.begun = 0
        self.over = asyncio.Event()

    async def clean(self, _now: float) -> int:
        self.begun += 1
        if self.begun > 1:
            self.over.set()
        return 0


@pytest.mark.postgres
@pytest.mark.parametrize("ahead", [900.0, -900.0])
def test_a_node_whose_clock_is_wrong_takes_no_count_from_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """Ahead it took them for spent, behind for some of a time to come: each start of such a node freed what
    had met its limit on nodes whose clocks are right."""
    monkeypatch.setattr(cleaning, "EVERY_SECONDS", 0.01)
    days = dict.fromkeys((EVENT_DAYS, DELIVERY_DAYS, ALERT_DAYS, AUDIT_DAYS), 0)

    def clock() -> float:
        return time.time() + ahead

    async def cleaned(store: Database, writer: Writer) -> None:
        turns, leaps = Turns(), Leaps(clock, time.monotonic)
        what = DaysKept(days), cast(RecordRetention, turns), store, IdIndex(store), writer, ()
        task = asyncio.create_task(cleaning.keep_clean(*what, clock, leaps, ClockCheck(store, clock)))
        await asyncio.wait_for(turns.over.wait(), 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    store = Database(postgres_url)
    store.migrate()
    writer = Writer(store, clock, random_ids)
    writer.start()
    try:
        now = time.time()
        counted = (1, "bucket", now, now + 600)
        store.insert_many("rate_hits", ("hit_no", "bucket", "at", "expires_at"), [counted])
        asyncio.run(cleaned(store, writer))
        assert store.rows("SELECT hit_no, bucket, at, expires_at FROM rate_hits") == [counted]
    finally:
        writer.close()
        store.close()
