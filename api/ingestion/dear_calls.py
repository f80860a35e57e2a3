"""Calls that are dear to evaluate do not stand before cheap ones of other keys.

A large body, and every call of a key whose calls took long lately, is evaluated on a thread of its own before
it is handed to the writer: one call at a time, the keys taking turns, and with rests longer than the work, so
that the event loop and the writer get on meanwhile. How long one call may take is bounded by the engine.

INVARIANT: what is evaluated here is compared with the truth when the event is decided, as everything that was
evaluated before the lock is (`pipeline.py`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Final

from api.ingestion.event import Incoming
from api.ingestion.quotas import OverQuota

LARGE: Final = 16 * 2**10
"""Bytes of a body from which its call is dear."""
SLOW: Final = 0.01
"""Seconds of processor time of an evaluation from which, the second time, the calls of its key are dear."""
REMEMBERED: Final = 10.0
"""Seconds for which that is believed, and between the first time and the second."""
MOST_OF_A_KEY: Final = 64
MOST_BYTES_OF_A_KEY: Final = 32 * 2**20
"""Of one key's calls that wait here; it is told to come back beyond."""
RESTS: Final = 3.0
"""A rest is so many times as long as the work before it."""
LONGEST_REST: Final = 0.3
OFTEN: Final = 0.0002
"""Seconds after which an evaluation here hands the interpreter to whoever waits for it."""

_USUAL: Final = sys.getswitchinterval()

_Waiting = tuple[Incoming, Future[None]]


class DearCalls:
    """One per process; `evaluate` keeps its result in the event. May be used from any thread."""

    def __init__(self, evaluate: Callable[[Incoming], None]) -> None:
        self._evaluate = evaluate
        self._slow: dict[str, float] = {}
        """Key to the time until which its calls are dear."""
        self._last_slow: dict[str, float] = {}
        """Key to the last evaluation that took long; once may be chance, such as a collection of garbage."""
        self._keys: dict[str, deque[_Waiting]] = {}
        """What waits, by key; the first key is the next whose turn it is."""
        self._guard = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dear-calls")

    def is_dear(self, key_id: str, size: int) -> bool:
        """Whether a call of this key with a body of so many bytes is better evaluated here."""
        return size > LARGE or (key_id in self._slow and self._slow[key_id] > time.monotonic())

    def took(self, key_id: str, seconds: float) -> None:
        """An evaluation, here or elsewhere, took so much of the processor's time."""
        if seconds > SLOW:
            now = time.monotonic()
            if now - self._last_slow.get(key_id, -inf) < REMEMBERED:
                self._slow[key_id] = now + REMEMBERED
            self._last_slow[key_id] = now

    async def evaluated(self, event: Incoming) -> None:
        """Returns when the call was evaluated; raises OverQuota when too many of its key wait."""
        future: Future[None] = Future()
        with self._guard:
            waiting = self._keys.setdefault(event.caller.key_id, deque())
            size = sum(len(each.raw) for each, _ in waiting) + len(event.raw)
            if waiting and (len(waiting) >= MOST_OF_A_KEY or size > MOST_BYTES_OF_A_KEY):
                raise OverQuota("too many dear calls of this API key wait already", 1.0)
            waiting.append((event, future))
        self._thread.submit(self._next)
        await asyncio.wrap_future(future)

    def _next(self) -> None:
        with self._guard:
            key_id = next(iter(self._keys))
            waiting = self._keys.pop(key_id)
            event, future = waiting.popleft()
            if waiting:
                self._keys[key_id] = waiting  # behind the others
        if not future.set_running_or_notify_cancel():
            return  # who sent it has gone
        begun = time.thread_time()
        sys.setswitchinterval(OFTEN)
        try:
            self._evaluate(event)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        finally:
            sys.setswitchinterval(_USUAL)
        took = time.thread_time() - begun
        self.took(key_id, took)
        time.sleep(min(RESTS * took, LONGEST_REST))

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
