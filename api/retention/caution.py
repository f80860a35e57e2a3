"""When the clock is believed so far that things are deleted by it."""

from __future__ import annotations

import logging
from typing import Final

from api.clock import DAY, Leaps
from api.database.connection import Database
from api.health.clocks import ClockCheck
from api.store import expiry

log = logging.getLogger("governance")

LEAP_SECONDS: Final = 3_600.0


class Caution:
    """Whether the clock can be believed when it says that something is old: one that was set ahead by mistake
    would have everything deleted. Of before the start only the record knows, see `leaps_of`."""

    def __init__(self, leaps: Leaps, clocks: ClockCheck | None = None) -> None:
        self._leaps, self._clocks = leaps, clocks
        self._told = False

    def settled(self) -> bool:
        """False for a day after the clock has leapt ahead, unless it leaps back; and while the database has
        another time."""
        if self._clocks is not None and abs(self._clocks.ahead) > LEAP_SECONDS:
            return False  # as the log has told
        ahead = self._leaps.ahead(DAY)
        if ahead <= LEAP_SECONDS:
            self._told = False
            return True
        if not self._told:
            self._told = True
            log.warning(
                "the clock leapt ahead by %.1f hours, or nothing was recorded for so long: nothing is "
                "deleted for a day, unless it leaps back",
                ahead / 3_600,
            )
        return False


def leaps_of(store: Database, now: float, leaps: Leaps) -> Leaps:
    """Those of the same clock, one just before the start included: a machine may have come up with a wrong
    clock. For a thread that may query."""
    pause = expiry.pause(store, now, DAY)
    return leaps.after(pause if pause > DAY else 0.0)
