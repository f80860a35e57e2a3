"""Wakes those who wait: long polls and event streams of this process, after a commit.

Knows nothing of the database; `publish` is called with the changes of a committed transaction, from any
thread: by the writer with its own, by the feed with those of other processes. Waiting costs one future each,
so a thousand waiting agents are cheap, and what nobody waits for costs a look.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from api.database.transaction import CREDENTIAL, Change
from api.loops import call_on

MOST_QUEUED = 10_000
"""A stream reader this far behind is cut off; it reconnects and reads the current state."""
PIECE: Final = 64 * 2**10
"""Bytes that a stream is told together."""
PAUSE_OF_EACH: Final = 0.0005
"""Seconds for which a stream that was told something is told nothing more, times the streams there are: so
what happens costs the process little, however many follow it."""
LONGEST_PAUSE: Final = 1.0


class _News:
    """A change, as all streams that follow it are told: written once."""

    __slots__ = ("_written", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._written = b""

    def written(self, write: Callable[[Change], bytes]) -> bytes:
        if not self._written:
            self._written = write(self.change)
        return self._written


@dataclass(eq=False, slots=True)
class _Stream:
    """One that follows an organisation's changes of some topics."""

    organisation_id: str
    topics: frozenset[str]
    news: deque[_News] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    def next_piece(self, write: Callable[[Change], bytes]) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while self.news and size < PIECE:
            pieces.append(self.news.popleft().written(write))
            size += len(pieces[-1])
        return b"".join(pieces)


class Hub:
    """One per process; made on its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, str, str], dict[asyncio.Future[None], str]] = {}
        """What is waited for, by whom; see `Caller.holder`."""
        self._streams: set[_Stream] = set()
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
        return any(each.organisation_id == organisation_id for each in list(self._streams))

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
        if self._streams:
            self._tell_streams([_News(change) for change in changes])

    def _tell_streams(self, news: list[_News]) -> None:
        of_organisation: defaultdict[str, list[_News]] = defaultdict(list)
        for each in news:
            of_organisation[each.change.organisation_id].append(each)
        followed: dict[Hashable, list[_News]] = {}
        for stream in list(self._streams):
            name = stream.organisation_id, stream.topics
            if name not in followed:
                own = of_organisation.get(stream.organisation_id, ())
                followed[name] = [each for each in own if each.change.topic in stream.topics]
            if wanted := followed[name]:
                stream.news += wanted
                stream.woken.set()
                if len(stream.news) > MOST_QUEUED:
                    self._drop(stream)

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

    async def stream(
        self, organisation_id: str, topics: frozenset[str], write: Callable[[Change], bytes]
    ) -> AsyncGenerator[bytes, None]:
        """An organisation's changes of these topics from now on, as `write` writes each, some at a time; ends
        when the reader falls far behind."""
        stream = _Stream(organisation_id, topics)
        self._streams.add(stream)
        self.busy.set()
        try:
            while not self._closed:
                await stream.woken.wait()
                if stream.over:
                    return
                yield stream.next_piece(write)
                if not stream.news and not stream.over:
                    stream.woken.clear()
                await asyncio.sleep(min(PAUSE_OF_EACH * len(self._streams), LONGEST_PAUSE))
        finally:
            self._streams.discard(stream)
            self._update_busy()

    def _update_busy(self) -> None:
        if not self._waiting and not self._streams:
            self.busy.clear()

    def _drop(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        stream.news.clear()
        stream.over = True
        stream.woken.set()

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
        for stream in list(self._streams):
            self._drop(stream)
