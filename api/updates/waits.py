"""Who waits for news, and who is answered early: requests that wait must not take every connection.

Each caller may have so many waits at once, and a person so many event streams; one more ends the oldest of
them, which is answered with the present state, as after its time. The same happens to the caller with the
most waits when a connection is wanted and none is idle (`server/connections/crowd.py`). Those who wait for
the same look for it together (`shared_looks.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from api.caller import Caller
from api.loops import has_gone

MOST_OF_ONE: Final = 2_000
"""Waits of one caller, where there are connections enough."""
SHARE: Final = 0.5
"""Of the connections that one caller's waits may take."""
MOST_STREAMS: Final = 50
"""Event streams of one person: each is told of all that happens, which takes time for each."""

_Waiting = dict[asyncio.Future[None], Callable[[], bool]]
"""The oldest first, each with what says whether its client has gone."""


class Waits:
    """One per process, used on its event loop."""

    def __init__(self, most_connections: int) -> None:
        self._most_of_one = max(1, min(MOST_OF_ONE, int(most_connections * SHARE)))
        self._waiting: dict[str, _Waiting] = {}
        """By key or user, whose streams stand for themselves."""

    @contextlib.contextmanager
    def place(self, caller: Caller, seconds: float) -> Iterator[asyncio.Future[None]]:
        """A wait of so many seconds at most; the future is done as soon as it must end."""
        if not seconds:
            yield asyncio.get_running_loop().create_future()
            return
        with self._placed(caller.holder, self._most_of_one) as future:
            yield future

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[asyncio.Future[None]]:
        """The same of an event stream, without an end of its own."""
        return self._placed(f"streams of {caller.user_id}", min(MOST_STREAMS, self._most_of_one))

    @contextlib.contextmanager
    def _placed(self, who: str, most: int) -> Iterator[asyncio.Future[None]]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(who, {})
        if len(waiting) >= most:
            _end_oldest(waiting)
        waiting[future] = has_gone.get()
        try:
            yield future
        finally:
            waiting.pop(future, None)
            if not waiting and self._waiting.get(who) is waiting:
                del self._waiting[who]

    def make_room(self) -> bool:
        """End the oldest wait of whoever has the most; False when nobody waits. One whose client has gone
        makes none."""
        while waiting := max(self._waiting.values(), key=len, default=None):
            if not _end_oldest(waiting)():
                return True
        return False


def _end_oldest(waiting: _Waiting) -> Callable[[], bool]:
    """Gives what says whether its client had gone."""
    oldest = next(iter(waiting))
    oldest.set_result(None)
    return waiting.pop(oldest)
