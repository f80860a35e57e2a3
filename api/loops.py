"""Reaching an event loop from other threads, and threads from the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call this on the loop, from any thread; a loop that has closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


class Threads(ThreadPoolExecutor):
    """Has its first thread from the beginning, so that a start is refused where a process may have none; and
    does with those that it has where the process may start no more."""

    def __init__(self, most: int | None, name: str) -> None:
        super().__init__(max_workers=most, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # "can't start new thread"; what is asked waits in the queue already
            if not self._threads:
                raise
