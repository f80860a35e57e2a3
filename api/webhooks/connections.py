"""Connections to receivers that are kept for the next attempt: those of each address by themselves.

A pool of httpcore looks at all of its connections, one by one and with a question to the system, whenever a
request begins and ends: with hundreds of them in one pool that takes the event loop from everybody else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import httpcore

KEPT_SECONDS: Final = 5.0
"""For which a connection waits for the next attempt."""


@dataclass(slots=True)
class _Pool:
    pool: httpcore.AsyncConnectionPool
    under_way: int = 0
    used_at: float = 0.0


class Connections:
    """One per sender, used on its event loop. `make` makes a pool without connections."""

    def __init__(self, make: Callable[[], httpcore.AsyncConnectionPool]) -> None:
        self._make = make
        self._pools: dict[str, _Pool] = {}
        self._looked_at = 0.0

    @contextlib.asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        """The connections to an address, for one request."""
        found = self._pools.get(url)
        if found is None:
            found = self._pools[url] = _Pool(self._make())
        found.under_way += 1
        try:
            await self._close_old()
            yield found.pool
        finally:
            found.under_way -= 1
            found.used_at = time.monotonic()

    async def _close_old(self) -> None:
        now = time.monotonic()
        if now < self._looked_at + KEPT_SECONDS:
            return
        self._looked_at = now
        before = now - KEPT_SECONDS
        old = [url for url, each in self._pools.items() if not each.under_way and each.used_at < before]
        for pool in [self._pools.pop(url).pool for url in old]:
            with contextlib.suppress(Exception):  # nobody uses it, and least of all whoever closes it
                await pool.aclose()

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for each in pools.values():
            await each.pool.aclose()
