"""When a delivery is tried again, and after how long a receiver that only fails is switched off.

Pure: time and chance are arguments, in seconds since the epoch and as a number from 0 up to 1. Knows nothing
of HTTP clients or tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Final

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

DELAYS: Final[tuple[float, ...]] = (
    0,
    5,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
"""Seconds before each attempt, counted from the one before (the first: from the event)."""

JITTER: Final = 0.2
MOST_RETRY_AFTER: Final = DAY
"""A receiver cannot put a retry off for longer than this."""

DISABLE_AFTER: Final = 5 * DAY
"""A webhook whose every attempt failed for so long is disabled with the last attempt of a delivery."""


def delay(delays: Sequence[float], attempts: int, chance: float) -> float | None:
    """Seconds to wait before the next attempt after `attempts` of them, jittered; None: no more attempts."""
    if attempts >= len(delays):
        return None
    return delays[attempts] * (1 - JITTER + 2 * JITTER * chance)


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds that a `Retry-After` header asks for: whole seconds or an HTTP date; None when unreadable."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MOST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            return None
        return min(max(moment.timestamp() - now, 0.0), MOST_RETRY_AFTER)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def next_attempt(
    delays: Sequence[float], attempts: int, now: float, chance: float, asked: str | None = None
) -> float | None:
    """The time of the next attempt after a failure, never before what `Retry-After` (`asked`) says."""
    wait = delay(delays, attempts, chance)
    if wait is None:
        return None
    return now + max(wait, retry_after(asked, now) or 0.0)
