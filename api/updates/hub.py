"""Wakes those who wait: long polls and event streams of this process, after a commit.

Knows nothing of the database; `publish` is called with the changes of a committed transaction, from any
thread: by the writer with its own, by the feed with those of other processes. Waiting costs one future each,
so a thousand waiting agents are cheap, and what nobody waits for costs a look.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator

from api.database.transaction import CREDENTIAL, Change
from api.loops import call_on

MOST_QUEUED = 10_000
"""A stream reader this far behind is cut off; it reconnects and reads the current state."""


class Hub:
    """One per process; made on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, str, str], dict[asyncio.Future[None], str]] = {}
        """What is waited for, by whom; see `Caller.holder`."""
        self._streams: dict[asyncio.Queue[Change | None], tuple[str, Collection[str]]] = {}
        self._closed = False
        self.busy = threading.Event()
        """Set while anybody waits; may be read and waited for by any thread."""

    @property
    def closed(self) -> bool:
        """True once the process is stopping; nobody waits any more."""
        return self._closed

    def publish(self, changes: Iterable[Change]) -> None:
        """Tell everyone concerned; may be called from any thread.

        INVARIANT: called after the commit. Whoever begins to wait too late to be seen here reads the state
        after that, and so the committed one.
        """
        if not self.busy.is_set():
            return
        waiting, streams = self._waiting, self._streams
        wanted = []
        for change in changes:
            if change.topic == CREDENTIAL:
                call_on(self._loop, self._wake_waiting, change.key)
            elif streams or (change.organisation_id, change.topic, change.key) in waiting:
                wanted.append(change)
        if wanted:
            call_on(self._loop, self._deliver, wanted)

    def streaming(self, organisation_id: str) -> bool:
        """True while somebody follows what happens in the organisation; for any thread."""
        return any(each == organisation_id for each, _ in list(self._streams.values()))

    def waiting_for(self, organisation_id: str, topic: str, key: str) -> bool:
        """True while somebody waits for this one thing; for any thread."""
        return (organisation_id, topic, key) in self._waiting

    def wake_all(self) -> None:
        """Too much has changed to publish: everyone is woken and reads the state anew. For any thread."""
        call_on(self._loop, self._wake_all)

    def _deliver(self, changes: list[Change]) -> None:
        for change in changes:
            for future in self._waiting.pop((change.organisation_id, change.topic, change.key), ()):
                if not future.done():
                    future.set_result(None)
            for queue, (organisation_id, topics) in list(self._streams.items()):
                if organisation_id == change.organisation_id and change.topic in topics:
                    try:
                        queue.put_nowait(change)
                    except asyncio.QueueFull:
                        self._drop(queue)

    @contextlib.contextmanager
    def listening(
        self, organisation_id: str, topic: str, key: str, holder: str
    ) -> Iterator[asyncio.Future[None]]:
        """Listen for the next change of one thing, and for the end of the credential of whoever listens;
        start BEFORE reading its state, so that none is missed."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._closed:
            future.set_result(None)
        place = (organisation_id, topic, key)
        self._waiting.setdefault(place, {})[future] = holder
        self.busy.set()
        try:
            yield future
        finally:
            future.cancel()
            waiting = self._waiting.get(place)
            if waiting is not None:
                waiting.pop(future, None)
                if not waiting:
                    del self._waiting[place]
            self._update_busy()

    async def stream(self, organisation_id: str, topics: Collection[str]) -> AsyncGenerator[Change, None]:
        """An organisation's changes of these topics from now on; ends when the reader falls far behind."""
        queue: asyncio.Queue[Change | None] = asyncio.Queue(MOST_QUEUED)
        self._streams[queue] = (organisation_id, topics)
        self.busy.set()
        try:
            while not self._closed:
                change = await queue.get()
                if change is None:
                    return
                yield change
        finally:
            self._streams.pop(queue, None)
            self._update_busy()

    def _update_busy(self) -> None:
        if not self._waiting and not self._streams:
            self.busy.clear()

    def _drop(self, queue: asyncio.Queue[Change | None]) -> None:
        self._streams.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def close(self) -> None:
        """End all waits and streams, so that a stopping server does not wait for long polls."""
        self._closed = True
        self._wake_all()

    def _wake_waiting(self, whose: str | None = None) -> None:
        """Whoever waits, or waits by one credential that has ended: it is no news for all others, of whom
        there may be thousands, and each would look for itself."""
        for waiting in list(self._waiting.values()):
            for future, holder in waiting.items():
                if not future.done() and whose in (None, holder):
                    future.set_result(None)

    def _wake_all(self) -> None:
        self._wake_waiting()
        for queue in list(self._streams):
            self._drop(queue)
