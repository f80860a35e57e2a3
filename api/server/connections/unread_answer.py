"""What was answered to a client and is not read yet: it is waited for as long as it reads."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from typing import Any


class UnreadAnswer:
    """Looks now and then whether the client has read anything, and cuts it off when it has not: to close the
    connection would wait for it."""

    def __init__(self, transport: Any, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._bytes = 0
        """When it was last looked at."""
        self._look: TimerHandle | None = None
        """The next one; None while everything is read."""

    @property
    def due(self) -> float | None:
        """When the client must have read some of it, on the loop's clock; None: there is nothing to read."""
        return None if self._look is None else self._look.when()

    def begins(self, seconds: float) -> None:
        """There are bytes now for which the client has made no room; it is looked after every `seconds`."""
        self._bytes = self._transport.get_write_buffer_size()
        self._look = self._loop.call_later(seconds, self._look_again, seconds)

    def ends(self) -> None:
        """It has read them all, or nobody waits for it any more."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_again(self, seconds: float) -> None:
        if self._transport.get_write_buffer_size() < self._bytes:
            self.begins(seconds)
        else:
            self._look = None
            self._transport.abort()
