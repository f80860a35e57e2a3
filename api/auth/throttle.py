"""A rate by address, in the memory of one process: so many at once, then so many a second."""

from __future__ import annotations

import math

from api.clock import Clock
from api.store.login_limits import network

MOST_ADDRESSES = 10_000
"""Whose count is kept; beyond it the address that failed longest ago is forgotten."""


class Throttle:
    """Made for failures: `wait` before something is tried, `count` when it failed."""

    def __init__(self, at_once: int, per_second: float, clock: Clock) -> None:
        self._interval = 1 / per_second
        self._allowance = (at_once - 1) * self._interval
        self._clock = clock
        self._paid_until: dict[str, float] = {}
        """Address -> when all its failures so far are paid off, at one per interval."""

    def wait(self, address: str) -> int:
        """Whole seconds until the address may try again; 0: now."""
        paid_until = self._paid_until.get(network(address), 0.0)
        return max(0, math.ceil(paid_until - self._clock() - self._allowance))

    def count(self, address: str) -> None:
        """One failure more."""
        key = network(address)
        paid_until = max(self._paid_until.pop(key, 0.0), self._clock())
        self._paid_until[key] = paid_until + self._interval
        if len(self._paid_until) > MOST_ADDRESSES:
            del self._paid_until[next(iter(self._paid_until))]
