"""Time and ids as arguments: the only place that reads the clock or makes randomness for records."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]
"""Seconds since the epoch, UTC."""

Ids = Callable[[str], str]
"""A new id with the given prefix, such as `apr`."""


def system_clock() -> float:
    return time.time()


def iso(seconds: float) -> str:
    """ISO 8601 UTC text with microseconds, such as `2026-01-31T09:30:00.000000Z`; sorts as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 text; without an offset it is read as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def random_ids(prefix: str) -> str:
    """`<prefix>_<12 hex digits of milliseconds><20 random ones>`: unique, unguessable, sorted by time."""
    return f"{prefix}_{int(time.time() * 1000):012x}{secrets.token_hex(10)}"
