"""A clock that leaps ahead by mistake deletes nothing."""

from __future__ import annotations

import time

import pytest

from api.clock import DAY, Leaps
from api.database.connection import Database
from api.health.clocks import ClockCheck
from api.retention.caution import Caution


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
