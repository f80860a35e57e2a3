"""Time and ids as arguments: the only place that reads the clock or makes randomness for records."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

Clock = Callable[[], float]
"""Seconds since the epoch, UTC."""

DAY: Final = 86_400.0
LEAST_LEAP: Final = 2.0
"""Seconds; a clock that is put right slowly never leaps."""
MOST_LEAPS: Final = 1_000
APART_SECONDS: Final = 60.0
"""The clocks of nodes may be so far apart."""

Ids = Callable[[str], str]
"""A new id with the given prefix, such as `apr`."""


def system_clock() -> float:
    return time.time()


def iso(seconds: float) -> str:
    """ISO 8601 UTC text with microseconds, such as `2026-01-31T09:30:00.000000Z`; sorts as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


moment = datetime.fromisoformat
"""The time of an ISO 8601 text, with or without an offset. Raises ValueError."""


def seconds(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 text; without an offset it is read as UTC. Raises ValueError."""
    read = moment(text)
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def boot_seconds() -> float:
    """Seconds that only ever go on, also while the machine sleeps, and whatever the time is set to."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Leaps:
    """By how much a clock has leapt lately, by mistake or to mend one. Safe to use from several threads.

    `backwards` counts the leaps back; `before` is by how much it leapt, or may have leapt, just before.
    """

    def __init__(self, clock: Clock, steady: Callable[[], float], before: float = 0.0) -> None:
        self.backwards = 0
        self._clock = clock
        self._steady = steady
        self._apart = clock() - steady()
        self._leaps: deque[tuple[float, float]] = deque(maxlen=MOST_LEAPS)
        """When, by the steady clock, and by how many seconds."""
        if before:
            self._leaps.append((steady(), before))
        self._lock = threading.Lock()

    def after(self, before: float) -> Leaps:
        """Those from now on of the same clock, which leapt by so many seconds just before."""
        return Leaps(self._clock, self._steady, before)

    def ahead(self, seconds: float) -> float:
        """How many seconds the clock leapt ahead during the last so many, less what it leapt back."""
        with self._lock:
            before = self._steady()
            apart = self._clock() - before
            now = self._steady()
            leapt = apart - self._apart
            if now - before < LEAST_LEAP / 2:  # else this thread had to wait between the two clocks
                self._apart = apart
                if abs(leapt) > LEAST_LEAP:
                    self._leaps.append((now, leapt))
                    self.backwards += leapt < 0
            return max(0.0, sum(by for at, by in self._leaps if at > now - seconds))


_TOKENS: deque[str] = deque()
"""Random parts of ids to come; many are asked for at once, since asking gives up the interpreter."""
_TOKEN_BYTES = 10
_TOKENS_AT_ONCE = 256

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TOKENS.clear)


_moment: tuple[int, str] = (-1, "")
"""A millisecond, and how it is written."""


def random_ids(prefix: str) -> str:
    """`<prefix>_<12 hex digits of milliseconds><20 random ones>`: unique, unguessable, sorted by time."""
    try:
        token = _TOKENS.pop()
    except IndexError:
        raw = os.urandom(_TOKEN_BYTES * _TOKENS_AT_ONCE).hex()
        length = 2 * _TOKEN_BYTES
        _TOKENS.extend(raw[start : start + length] for start in range(length, len(raw), length))
        token = raw[:length]
    global _moment
    now = int(time.time() * 1000)
    last = _moment
    if last[0] != now:
        last = _moment = (now, f"{now:012x}")
    return f"{prefix}_{last[1]}{token}"
