"""The batches of all keys take the event loop in turns: after a slice of them it goes on with others.

INVARIANT: one batch of a key goes on at a time. Of all keys, who goes on when a slice is over waits until the
loop has gone round, and so do all behind it, one of whom goes on in each round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Final

SLICE: Final = 0.005
"""Seconds of batches after which the event loop goes on with others."""


class Rounds:
    """Of the event loop, as far as batches have them."""

    def __init__(self) -> None:
        self.spent = 0.0
        """Seconds since the last one began."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """At once if this round has time for it; else in its turn."""
        if self.spent <= SLICE and not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.append(future := loop.create_future())
        await future

    def _next(self) -> None:
        self.spent = 0.0
        while self._waiting and self._waiting[0].done():  # whoever waited has gone
            self._waiting.popleft()
        if self._waiting:
            self._waiting.popleft().set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


class BatchSlices:
    """Of one batch; `rest` is called at its end, whatever happens. The lock is that of its key, and is given
    to those who wait in the order in which they came."""

    def __init__(self, lock: asyncio.Lock, rounds: Rounds) -> None:
        self._lock, self._rounds = lock, rounds
        self._goes_on = False
        self._since = 0.0

    async def go_on(self) -> None:
        """When it is this batch's turn."""
        if not self._goes_on:
            await self._lock.acquire()
            self._goes_on, self._since = True, perf_counter()
            await self._rounds.turn()
            self._since = perf_counter()

    def rest(self) -> None:
        """Others may go on, until `go_on`."""
        if self._goes_on:
            self._goes_on = False
            self._rounds.spent += perf_counter() - self._since
            self._lock.release()

    def let_others(self) -> None:
        """Once a slice is over, others go on first."""
        if self._rounds.spent + perf_counter() - self._since > SLICE:
            self.rest()
