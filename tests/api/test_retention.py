"""A clock that leaps ahead by mistake deletes nothing."""

from __future__ import annotations

import pytest

from api.clock import Leaps
from api.retention import DAY, Caution


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
