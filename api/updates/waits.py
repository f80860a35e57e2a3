"""Who waits for news, and who is answered early: requests that wait must not take every connection.

Each caller may have so many waits at once, event streams among them; one more ends the oldest of them, which
is answered with the present state, as after its time. The same happens to the caller with the most waits when
a connection is wanted and none is idle (`server/wire.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from api.caller import Caller

MOST_OF_ONE: Final = 2_000
"""Waits of one caller, where there are connections enough."""
SHARE: Final = 0.5
"""Of the connections that one caller's waits may take."""


class Waits:
    """One per process, used on its event loop."""

    def __init__(self, most_connections: int) -> None:
        self._most_of_one = max(1, min(MOST_OF_ONE, int(most_connections * SHARE)))
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """By key or user; the oldest first."""

    @contextlib.contextmanager
    def place(self, caller: Caller, seconds: float) -> Iterator[asyncio.Future[None]]:
        """A wait of so many seconds at most; the future is done as soon as it must end."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not seconds:
            yield future
            return
        who = caller.key_id or caller.user_id or ""
        waiting = self._waiting.setdefault(who, {})
        if len(waiting) >= self._most_of_one:
            _end_oldest(waiting)
        waiting[future] = None
        try:
            yield future
        finally:
            waiting.pop(future, None)
            if not waiting and self._waiting.get(who) is waiting:
                del self._waiting[who]

    def make_room(self) -> bool:
        """End the oldest wait of whoever has the most; False when nobody waits."""
        waiting = max(self._waiting.values(), key=len, default=None)
        if not waiting:
            return False
        _end_oldest(waiting)
        return True


def _end_oldest(waiting: dict[asyncio.Future[None], None]) -> None:
    oldest = next(iter(waiting))
    del waiting[oldest]
    oldest.set_result(None)
