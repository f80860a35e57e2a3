"""Work beside the event loop, the API keys taking turns: what is large, and all of a key that has taken much.

One key has one piece of work under way at a time, whatever it sends, and goes behind the others then. Of two
turns one is that of who has taken least lately, so that nobody stands behind many keys that take as much as
they may; the other is that of who has waited longest, so that everybody has one, whoever else comes. While
its time is spent (`quotas.py`), it rests after each piece for longer than it has taken since its last turn,
here and in commits, so that the event loop and the writer get on meanwhile; a rest of one key holds up no
other.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from api.ingestion.quotas import OverQuota, ProcessorTime
from api.loops import call_on, has_gone

T = TypeVar("T")

LARGE: Final = 16 * 2**10
"""Bytes of a body from which it is read here."""
MOST_OF_A_KEY: Final = 64
MOST_BYTES_OF_A_KEY: Final = 32 * 2**20
"""Of one key's work that waits here; it is told to come back beyond."""
MOST_BYTES_OF_ALL: Final = 512 * 2**20
"""Of the work of all keys, each of which has its part."""
MOST_USUAL: Final = 4_000
"""Of one key's work that is hardly any: it is bounded as the key's events are that wait to be written."""
RESTS: Final = 3.0
"""A rest is so many times as long as what the key has taken since its last turn."""
LONGEST_REST: Final = 0.3
OFTEN: Final = 0.0002
"""Seconds after which work here hands the interpreter to whoever waits for it."""

_USUAL: Final = sys.getswitchinterval()
_at_work: set[object] = set()
_switching = threading.Lock()


@dataclass(slots=True, eq=False)
class _Work:
    function: Callable[[], Any]
    size: int
    name: Hashable
    usual: bool
    futures: dict[asyncio.Future[Any], Callable[[], bool]] = field(default_factory=dict)
    """Of those who wait for it, each on its loop, and what says whether the client has gone."""


class Turns:
    """So many threads; `run` may be called on any event loop. `most_of_a_key` waits of one key."""

    def __init__(
        self, name: str, threads: int, spent: ProcessorTime, most_of_a_key: int = MOST_OF_A_KEY
    ) -> None:
        self._name, self._most_threads = name, threads
        self._spent = spent
        self._most_of_a_key = most_of_a_key
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Work]] = {}
        """By key; the first key is the next whose turn it is, unless it is at work or rests."""
        self._busy: set[str] = set()
        self._rests: dict[str, float] = {}
        """Key to the end of its rest."""
        self._in_order = False
        """Whether the last turn was that of who had waited longest."""
        self._paid: dict[str, float] = {}
        """Key to what it had taken when it rested last."""
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def run(
        self,
        key_id: str,
        function: Callable[[], T],
        *,
        size: int = 0,
        name: Hashable = None,
        usual: bool = False,
    ) -> T:
        """The result of a function, called when it is the key's turn. Raises OverQuota when too much of the
        key waits; of what is `usual`, `MOST_USUAL` may. Work of one name that has not begun is done once for
        all who wait for it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._start_thread()  # before anything waits for it
            waiting = self._waiting.setdefault(key_id, deque())
            same = next((work for work in waiting if name is not None and work.name == name), None)
            if same is not None:
                same.futures[future] = has_gone.get()
            else:
                self._refuse_too_much(waiting, size, usual)
                waiting.append(_Work(function, size, name, usual, {future: has_gone.get()}))
            self._changed.notify()
        try:
            return await future
        finally:
            del future, same  # see `_do`

    def _refuse_too_much(self, waiting: deque[_Work], size: int, usual: bool) -> None:
        if usual:
            too_many = len(waiting) >= MOST_USUAL
        else:
            sizes = [work.size for work in waiting if not work.usual]
            most = min(MOST_BYTES_OF_A_KEY, MOST_BYTES_OF_ALL // len(self._waiting))
            too_many = len(sizes) >= self._most_of_a_key or (bool(sizes) and sum(sizes, size) > most)
        if too_many:
            raise OverQuota("too many of your requests wait for their turn already", 1.0)

    def _start_thread(self) -> None:
        """One more, as long as there may be. Raises RuntimeError where the system gives none and there is
        none: the next work asks for it again."""
        if len(self._threads) < self._most_threads and not self._closed:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)

    def _serve(self) -> None:
        while True:
            with self._changed:
                found = self._next()
                while found is None and not self._closed:
                    self._changed.wait(self._longest_wait())
                    found = self._next()
                if found is None or self._closed:
                    return
            key_id, work = found
            before, begun = self._spent.taken(key_id), time.thread_time()
            _do(work)
            took = time.thread_time() - begun
            self._spent.took(key_id, took)
            with self._changed:
                self._busy.discard(key_id)
                if self._spent.is_spent(key_id):
                    owed = before - self._paid.get(key_id, before) + took
                    self._rests[key_id] = time.monotonic() + min(RESTS * owed, LONGEST_REST)
                    self._paid[key_id] = before + took
                else:
                    self._paid.pop(key_id, None)
                self._changed.notify_all()

    def _next(self) -> tuple[str, _Work] | None:
        """The first work of a key that neither is at work nor rests: in turn of the one that has waited
        longest, and of the one that has taken least lately."""
        now = time.monotonic()
        ready = (
            key_id
            for key_id in self._waiting
            if key_id not in self._busy and self._rests.get(key_id, now) <= now
        )
        in_order = not self._in_order
        key_id = next(ready, None) if in_order else min(ready, key=self._spent.lately, default=None)
        if key_id is None:
            return None
        self._in_order = in_order
        waiting = self._waiting.pop(key_id)
        work = waiting.popleft()
        self._rests.pop(key_id, None)
        self._busy.add(key_id)
        if waiting:
            self._waiting[key_id] = waiting  # behind the others
        return key_id, work

    def _longest_wait(self) -> float | None:
        """Seconds until the first rest of a key that waits is over."""
        ends = [self._rests[key_id] for key_id in self._waiting if key_id in self._rests]
        return max(0.001, min(ends) - time.monotonic()) if ends else None

    def close(self, within: float | None = None) -> None:
        """Wait for what has begun, so many seconds at most if that is said; the rest is cancelled."""
        with self._changed:
            self._closed = True
            left = [
                future for waiting in self._waiting.values() for work in waiting for future in work.futures
            ]
            self._waiting.clear()
            self._changed.notify_all()
        _tell(left, asyncio.Future.cancel, None)
        end = None if within is None else time.monotonic() + within
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))


def _do(work: _Work) -> None:
    """INVARIANT: nothing of it stays once who waits has it. A result, an exception and the frames that it
    came through know bodies of megabytes; if they knew who waits for them in turn, all of it would lie there
    until the collector comes by, which counts objects and not bytes."""
    left = [future for future, gone in work.futures.items() if gone()]
    _tell(left, asyncio.Future.cancel, None)
    futures = [each for each in work.futures if each not in left and not each.cancelled()]
    if not futures:
        return  # whoever asked has gone
    _hurry(work, True)
    try:
        result = work.function()
    except BaseException as error:
        _tell(futures, asyncio.Future.set_exception, error)
    else:
        _tell(futures, asyncio.Future.set_result, result)
    finally:
        _hurry(work, False)
        del futures, work


def _tell(futures: list[asyncio.Future[Any]], tell: Callable[[Any, Any], object], what: Any) -> None:
    for future in futures:
        call_on(future.get_loop(), _settle, future, tell, what)


def _settle(future: asyncio.Future[Any], tell: Callable[[Any, Any], object], what: Any) -> None:
    if not future.done():
        tell(future, what)


def _hurry(work: _Work, begins: bool) -> None:
    """The interpreter changes hands often while any work is done."""
    with _switching:
        (_at_work.add if begins else _at_work.discard)(work)
        sys.setswitchinterval(OFTEN if _at_work else _USUAL)
