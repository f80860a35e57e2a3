"""No event waits for its answer for longer than one deadline, however many ways it goes: lane, thread, again.

Whoever is told so late that the database cannot be reached may send it again: what became of it is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from api.database.errors import DatabaseUnavailable
from api.database.hand_over import settle_all
from api.database.lanes.session import DEADLINE

LOOK_SECONDS: Final = 0.5
"""By which it may be late."""

Tell = Callable[[Any], None]


class Deadlines:
    """Of those that wait on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[float, Tell]] = {}
        """In the order in which they came, each with its end."""
        self._numbers = count()
        self._looks = False

    def bounded(self, tell: Tell, loop: asyncio.AbstractEventLoop) -> Tell:
        """Tells the same, once: the result, or that there is none in time."""
        number = next(self._numbers)
        self._waiting[number] = loop.time() + DEADLINE, tell
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK_SECONDS, self._look, loop)
        return partial(self._tell, number)

    def _tell(self, number: int, result: Any) -> None:
        if (waiting := self._waiting.pop(number, None)) is not None:
            waiting[1](result)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now, late = loop.time(), []
        for number, (end, tell) in self._waiting.items():
            if end > now:
                break
            late.append((number, tell))
        for number, _ in late:
            del self._waiting[number]
        self._looks = bool(self._waiting)
        if self._looks:
            loop.call_later(LOOK_SECONDS, self._look, loop)
        error = DatabaseUnavailable("the database does not answer in time; try again shortly")
        settle_all([(tell, error) for _, tell in late])
