"""Reaching an event loop from other threads, threads from the loop, and taking turns on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

has_gone: ContextVar[Callable[[], bool]] = ContextVar("has_gone", default=lambda: False)
"""Says of the request that the running code is at work for whether its client has gone without an answer:
what has not begun by then need not be done."""

T = TypeVar("T")

MOST_OF_ONE: Final = 64
"""Pieces of work of one person that wait for a place."""


def knowing(gone: Callable[[], bool]) -> Context:
    """A copy of the present context, for a request whose client `has_gone` as this says."""
    context = copy_context()
    context.run(has_gone.set, gone)
    return context


def shared_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of several requests, which goes on whichever of their clients have gone. Whoever still waits for
    it raises what it has met; that nobody does is no fault."""
    task = asyncio.create_task(work, context=knowing(lambda: False))
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return task


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call this on the loop, from any thread; a loop that has closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def settle(future: Future[Any] | asyncio.Future[Any], result: Any) -> None:
    """Give a result, or an exception, to whoever waits for it, unless they have gone."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


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


class TooManyWait(Exception):
    """Too much of one caller waits already."""

    code = "rate_limited"
    retry_after = 1


class FairPlaces:
    """So much may be under way at once on one event loop. Callers who wait get a place in turn, so that
    nobody stands behind all that another one has asked for."""

    def __init__(self, most: int, most_of_one: int = MOST_OF_ONE) -> None:
        self._free = most
        self._most_of_one = most_of_one
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By caller; the first one is the next. INVARIANT: nobody waits while a place is free."""

    @contextlib.asynccontextmanager
    async def place(self, holder: str) -> AsyncIterator[None]:
        """A place for this caller. Raises TooManyWait."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(holder)
        try:
            yield
        finally:
            self._next()

    async def _turn(self, holder: str) -> None:
        mine = self._waiting.setdefault(holder, deque())
        if len(mine) >= self._most_of_one:
            raise TooManyWait("too many of your requests wait for their turn already; try again in 1 second")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # it was given just now
            raise

    def _next(self) -> None:
        while self._waiting:
            holder = next(iter(self._waiting))
            mine = self._waiting.pop(holder)
            turn = mine.popleft()
            if mine:
                self._waiting[holder] = mine  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
