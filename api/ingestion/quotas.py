"""How much one API key may send: events in a minute, and bytes to be kept in a day.

Each is a bucket that empties steadily, so a key that was quiet may send a whole minute's events at once. It
is counted in each process for itself, since it guards the process; limits of policies are exact instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic
from typing import Final

MINUTE: Final = 60.0
DAY: Final = 86_400.0


class OverQuota(Exception):
    """A key has sent too much for now; `retry_after` are the seconds to wait."""

    code = "rate_limited"

    def __init__(self, detail: str, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"{detail}; try again in {self.retry_after} seconds")


class Quotas:
    """One per process; 0 means that there is no limit."""

    def __init__(
        self, events_per_minute: int, bytes_per_day: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._of_an_event = MINUTE / events_per_minute if events_per_minute else 0.0
        self._of_a_byte = DAY / bytes_per_day if bytes_per_day else 0.0
        self._clock = clock
        self._full: dict[str, tuple[float, float]] = {}
        """Key to when its buckets will be empty."""

    def take(self, key_id: str, size: int) -> None:
        """One event of so many bytes. Raises OverQuota, and then takes nothing."""
        now = self._clock()
        events, kept = self._full.get(key_id, (now, now))
        events = (events if events > now else now) + self._of_an_event
        kept = (kept if kept > now else now) + size * self._of_a_byte
        if events - now > MINUTE:
            raise OverQuota(
                "this API key has sent as many events as it may in a minute", events - now - MINUTE
            )
        if kept - now > DAY:
            raise OverQuota("this API key has sent as many bytes as it may in a day", kept - now - DAY)
        self._full[key_id] = (events, kept)
