"""How callers read what may be long: in turns, on threads of their own, and no more than they take in; API
keys within their quota. What people try out, simulations and backtests, is done in turns as well; so is
searching a log, or verifying all of it. And how much of what they send may lie here, unfinished.

Keys and people have different threads, so no key stands before a person; and whatever logging in, tokens and
health ask of the database has others still (`Database.read_first`), so nobody stands before those.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from api.caller import Caller
from api.database.connection import Database
from api.http.exchange import Reply
from api.ingestion.quotas import OverQuota, ProcessorTime, Quotas
from api.ingestion.turns import Turns

T = TypeVar("T")

THREADS: Final = 2
"""For each kind of work, of which one caller has one at a time."""
MOST_OF_ONE: Final = 1_000
"""Reads of one caller that wait, where there are connections enough."""
SHARE: Final = 0.25
"""Of the connections that one caller's reads may keep waiting."""
MOST_TRIED: Final = 8
"""Simulations of one person that wait, and as many backtests."""
LARGE_ANSWER: Final = 256 * 2**10
"""Bytes from which an answer is sent piece by piece, as the client reads it."""
PIECE: Final = 64 * 2**10
ENDING: Final = 1.0
"""Seconds that a stop waits for reads of each kind which have begun."""
MOST_UNREAD: Final = 64 * 2**20
"""Bytes of large answers that one caller has not taken in; beyond, it is told to read them first."""
MOST_COMING: Final = 64 * 2**20
"""Bytes of large bodies that one caller has not sent wholly yet; a single one may be larger."""
MOST_OF_ALL: Final = 512 * 2**20
"""The same of all callers together, in either way: the more they are, the less each may have."""


class Reads:
    """One per process, used on its event loop."""

    def __init__(
        self, store: Database, quotas: Quotas, processor_time: ProcessorTime, most_connections: int
    ) -> None:
        self._store = store
        self._quotas = quotas
        most = max(1, min(MOST_OF_ONE, int(most_connections * SHARE)))
        self.turns = Turns("reads", THREADS, processor_time, most)
        self.people = Turns("people", THREADS, processor_time, most)
        self.simulations = Turns("simulations", THREADS, processor_time, MOST_TRIED)
        self.backtests = Turns("backtests", THREADS, processor_time, MOST_TRIED)
        self.searches = Turns("searches", THREADS, processor_time, most)
        self.verifications = Turns("verifications", 1, processor_time, MOST_TRIED)
        self._unread: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()
        """Caller to the bytes of its bodies that are still coming."""

    def count(self, caller: Caller, size: int = 0) -> None:
        """One request, with so many bytes to be kept. Raises OverQuota."""
        if caller.kind == "key":
            self._quotas.take(caller.key_id, size)

    @contextlib.contextmanager
    def coming(self, caller: Caller) -> Iterator[Callable[[int], None]]:
        """While a body of this caller comes: what is given is told how many bytes of it there are so far, and
        raises OverQuota when those that the caller has begun to send are too many."""
        who, own = caller.holder, 0

        def so_far(size: int) -> None:
            nonlocal own
            self._coming[who] += size - own
            own = size
            if own < self._coming[who] > min(MOST_COMING, MOST_OF_ALL // len(self._coming)):
                raise OverQuota(
                    "the large bodies that you began to send before have not come wholly yet", 1.0
                )

        try:
            yield so_far
        finally:
            self._coming[who] -= own
            if not self._coming[who]:
                del self._coming[who]

    async def read(
        self, caller: Caller, function: Callable[..., T], *arguments: Any, name: Hashable = None
    ) -> T:
        """The result of a reading function. What one caller asks for by the same name is read once for all
        who wait for it."""
        turns = self.turns if caller.kind == "key" else self.people
        return await self._run(turns, caller, name, function, *arguments)

    async def search(self, caller: Caller, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that may have to read a log from its beginning to find something."""
        return await self._run(self.searches, caller, None, function, *arguments)

    async def verify(self, caller: Caller, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a reading function that goes through a whole log."""
        return await self._run(self.verifications, caller, caller.organisation_id, function, *arguments)

    async def _run(
        self, turns: Turns, caller: Caller, name: Hashable, function: Callable[..., T], *arguments: Any
    ) -> T:
        work = partial(self._store.read_here, function, *arguments)
        with self._store.reading.watched():
            return await turns.run(caller.holder, work, name=name)

    def bounded(self, caller: Caller, reply: Reply) -> Reply:
        """The reply, a large one as a stream. Raises OverQuota when the caller has too many unread."""
        content, who = reply.body, caller.holder
        if not who or not isinstance(content, bytes) or len(content) <= LARGE_ANSWER:
            return reply
        unread, callers = self._unread[who], max(1, len(self._unread))
        if unread and unread + len(content) > min(MOST_UNREAD, MOST_OF_ALL // callers):
            raise OverQuota("the large answers that you asked for before are not read yet", 1.0)
        headers = {**reply.headers, "Content-Length": str(len(content))}
        return replace(reply, body=None, headers=headers, stream=self._pieces(who, content))

    async def _pieces(self, who: str, content: bytes) -> AsyncGenerator[bytes, None]:
        self._unread[who] += len(content)
        try:
            for start in range(0, len(content), PIECE):
                yield content[start : start + PIECE]
        finally:
            self._unread[who] -= len(content)
            if not self._unread[who]:
                del self._unread[who]

    def close(self) -> None:
        """Reads that go on for long end with the process: nobody waits for them any more."""
        tried = self.simulations, self.backtests
        for turns in (self.turns, self.people, *tried, self.searches, self.verifications):
            turns.close(within=ENDING)
