"""Events that have arrived and are not written yet: the event loop writes them itself, or leaves them.

To hand an event to the writer's thread and its answer back costs more than a good disk lets one wait. So the
loop commits what it has read since it last looked, as one group, while the thread is idle. Whatever is
unusual is left to the thread: the database held by another process, a cache out of date, an event that was
reported before, much to read, and for a while everything when commits are slow. For PostgreSQL, at the other
end of a network, see `lanes/dispatch.py`.

INVARIANT: an event is in one place at a time - here, in the thread's queue, or in a transaction - and events
leave in the order in which they came.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from time import perf_counter, thread_time
from typing import Any, Final, Protocol

import msgspec

from api.database.transaction import Job
from api.loops import call_on

MOST: Final = 256
"""Events of one commit on the loop: between two commits it serves its connections."""
MOST_BYTES: Final = 512 * 2**10
MOST_OF_A_KEY: Final = 64
"""That are here, or the thread's, while other keys are there (`fair_share.py`)."""
SLOW: Final = 0.05
"""Seconds from which one commit keeps others of the loop waiting for too long."""
SLOW_DISK: Final = 0.005
"""Seconds that commits wait for the disk, on average, from which the disk is the thread's to wait for."""
SHARE: Final = 0.05
"""At most this part of the loop's time goes into slow commits."""
CONNECTING: Final = 0.005
"""Seconds for which a commit is put off while clients connect, of which the loop lets in a few a round."""
MORE_ROUNDS: Final = 8
"""For which it is put off while each brings more events: clients that were answered together send one behind
the other."""


class Entry(msgspec.Struct):
    job: Job | None
    event: Any
    loop: asyncio.AbstractEventLoop | None
    settle: Callable[[Any], None]
    """Called with the result: on the loop, or on the writer's thread when there is none."""
    size: int = 0


def cost_of_event(before: float, seconds: float, count: int, window: int) -> float:
    """A moving average over some `window` events, once so many more took so many seconds of the processor."""
    return before + (seconds - count * before) / max(window, count)


class WriterThread(Protocol):
    """What the loop asks of the writer (`writer.py`)."""

    writing: threading.Lock

    @property
    def is_idle(self) -> bool: ...

    def take(self, entries: Iterable[Entry]) -> None: ...

    def commit_at_once(self, batch: list[Entry]) -> bool: ...


class Arrivals:
    """One per writer, used on one event loop; only `wake` may be called by the writer's thread."""

    most = MOST
    most_of_a_key = MOST_OF_A_KEY

    def __init__(self, writer: WriterThread) -> None:
        self._writer = writer
        self._entries: list[Entry] = []
        self.size = 0
        """Bytes of the events that are here."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_look: asyncio.Handle | None = None
        self._waits = False
        """The thread was writing; it is to wake the loop when it has done so."""
        self.cost = 0.0
        self._disk = 0.0
        """Seconds that a commit waits for the disk: a moving average."""
        self._not_before = 0.0
        """Of `perf_counter`: until then everything is left to the thread."""
        self._connected = False
        """Somebody has connected since the last look, and others may be waiting to."""
        self._put_off = 0
        self._since = 0.0
        """Of `perf_counter`: when a commit was put off first."""
        self._seen = self._before = 0
        """Events that were here at the last look, and that there were to write the last time."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        self._entries.append(entry)
        self.size += entry.size
        if len(self._entries) == 1:
            self._loop = loop
            self._look_soon(loop)

    def connected(self) -> None:
        """Somebody has connected."""
        self._connected = True

    def close(self) -> None:
        """What is here is left to the thread at the next look."""

    def wake(self) -> None:
        """The thread has written; called after it has let go of `Writer.writing`."""
        if self._waits and self._loop is not None:
            self._waits = False
            call_on(self._loop, self._look, True)

    def _look_soon(self, loop: asyncio.AbstractEventLoop, woken: bool = False) -> None:
        """INVARIANT: once in a round, however much is added meanwhile, so that the loop hears what comes."""
        if self._next_look is None:
            self._next_look = loop.call_soon(self._look, woken)

    def _look(self, woken: bool = False) -> None:
        """Write what is there, leave it to the thread, or wait for the thread."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if not self._entries or self._loop is None:
            return
        if self._is_worth_a_round():
            self._put_off += 1
            self._look_soon(self._loop, woken)
            return
        self._put_off = self._seen = 0
        self._before = len(self._entries)
        try:
            if perf_counter() < self._not_before:
                self._writer.take(self._off(len(self._entries)))
            else:
                self._write_or_wait(woken)
        finally:
            if self._entries and not self._waits:
                self._look_soon(self._loop)

    def _is_worth_a_round(self) -> bool:
        """Whether another round of the loop is likely to bring more. Who is alone waits for nobody."""
        if self._put_off == 0:
            self._since = perf_counter()
        connected, self._connected = self._connected, False
        if connected and perf_counter() - self._since < CONNECTING:
            return True
        count, seen = len(self._entries), self._seen
        self._seen = count
        is_alone = count == 1 and self._before == 1
        return seen < count < MOST and not is_alone and self._put_off < MORE_ROUNDS

    def _write_or_wait(self, woken: bool) -> None:
        # INVARIANT: the wish comes before the look at the lock, so the thread that lets go of it sees it.
        self._waits = not woken
        if self._writer.writing.acquire(blocking=False):
            self._waits = False
            try:
                self._write()
            finally:
                self._writer.writing.release()
        elif woken:
            # It has gone on with other work already: these go along with it.
            self._writer.take(self._off(len(self._entries)))

    def _write(self) -> None:
        count = self._group()
        group = self._off(count or 1)
        written = False
        if count and self._writer.is_idle:
            written = self._timed(group)
        if not written:
            # All go along, so that none is told later than the thread tells the first.
            self._writer.take([*group, *self._off(len(self._entries))])

    def _timed(self, group: list[Entry]) -> bool:
        begun, computed = perf_counter(), thread_time()
        written = self._writer.commit_at_once(group)
        took, computed = perf_counter() - begun, thread_time() - computed
        self.cost = cost_of_event(self.cost, computed, len(group), MOST_OF_A_KEY)
        self._disk += (took - computed - self._disk) / 8
        if took > SLOW or self._disk > SLOW_DISK:
            self._not_before = begun + took / SHARE
        return written

    def _group(self) -> int:
        """How many of the entries make one commit on the loop."""
        count = size = 0
        for entry in self._entries:
            size += entry.size
            if size > MOST_BYTES or count == MOST:
                break
            count += 1
        return count

    def _off(self, count: int) -> list[Entry]:
        """Take the first ones off."""
        group = self._entries[:count]
        del self._entries[:count]
        self.size -= sum(entry.size for entry in group)
        return group
