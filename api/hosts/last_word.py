"""What a hook says when its host is about to lose its patience, whatever the hook is stuck in: some of it,
such as the resolution of a name, is ended by no signal."""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

BLOCK: Final = 2
"""The exit code that blocks with every host."""


class LastWord(Generic[T]):
    """Whoever takes the word first answers. At `until`, of the clock that runs on, that is what it `says` by
    then, written by `end`, which gives the exit code."""

    def __init__(self, until: float, says: Callable[[], T], end: Callable[[T], int]) -> None:
        self.says = says
        self._until, self._end = until, end
        self._lock = _thread.allocate_lock()
        _thread.start_new_thread(self._watch, ())

    def take(self) -> None:
        self._lock.acquire()

    def _watch(self) -> None:
        time.sleep(max(self._until - time.monotonic(), 0))
        self.take()
        code = BLOCK
        try:
            code = self._end(self.says())
        finally:
            os._exit(code)
