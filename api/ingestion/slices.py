"""The batches of one key take the event loop in turns: after a slice of all of them it goes on with others.

INVARIANT: one batch of a key goes on at a time, and not while the loop goes round after a slice.
"""

from __future__ import annotations

import asyncio
from time import perf_counter


class Slices:
    """Of one key."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # which is given to those who wait in the order in which they came
        self.spent = 0.0
        """Seconds since the loop went round."""
        self.waiting = 0


class BatchSlices:
    """Of one batch; `rest` is called at its end, whatever happens."""

    def __init__(self, of_key: Slices) -> None:
        self._of_key = of_key
        self._goes_on = False
        self._since = 0.0

    async def go_on(self) -> None:
        """When it is this batch's turn."""
        if not self._goes_on:
            self._of_key.waiting += 1
            try:
                await self._of_key.lock.acquire()
            finally:
                self._of_key.waiting -= 1
            self._goes_on, self._since = True, perf_counter()

    def rest(self) -> None:
        """Others may go on, until `go_on`."""
        if self._goes_on:
            self._goes_on = False
            self._of_key.spent += perf_counter() - self._since
            self._of_key.lock.release()

    async def let_others(self, after: float) -> None:
        """Once a slice of so many seconds is over, let the loop go round, and then other batches first."""
        if self._of_key.spent + perf_counter() - self._since > after:
            if not self._of_key.waiting:  # another one goes on in the next round as it is
                await asyncio.sleep(0)
            self.rest()
            self._of_key.spent = 0.0
