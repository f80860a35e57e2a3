"""How API keys read: in turns, on threads of their own, within their quota, and no more than they take in.

What people read, and whatever logging in, tokens and health ask of the database, has other threads
(`Database.read`), so no key stands before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Hashable
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
"""Of which one key has one at a time."""
MOST_OF_A_KEY: Final = 1_000
"""Reads of one key that wait, where there are connections enough."""
SHARE: Final = 0.25
"""Of the connections that one key's reads may keep waiting."""
LARGE_ANSWER: Final = 256 * 2**10
"""Bytes from which an answer is sent piece by piece, as the client reads it."""
PIECE: Final = 64 * 2**10
MOST_UNREAD: Final = 64 * 2**20
"""Bytes of large answers that one key has not taken in; beyond, it is told to read them first."""


class Reads:
    """One per process, used on its event loop."""

    def __init__(
        self, store: Database, quotas: Quotas, processor_time: ProcessorTime, most_connections: int
    ) -> None:
        self._store = store
        self._quotas = quotas
        most = max(1, min(MOST_OF_A_KEY, int(most_connections * SHARE)))
        self.turns = Turns("reads", THREADS, processor_time, most)
        self._unread: Counter[str] = Counter()

    def count(self, caller: Caller) -> None:
        """One request to read. Raises OverQuota."""
        if caller.kind == "key":
            self._quotas.take(caller.key_id, 0)

    async def read(
        self, caller: Caller, function: Callable[..., T], *arguments: Any, name: Hashable = None
    ) -> T:
        """The result of a reading function. What one key asks for by the same name is read once for all who
        wait for it."""
        if caller.kind != "key":
            return await self._store.read(function, *arguments)
        work = partial(self._store.read_here, function, *arguments)
        return await self.turns.run(caller.key_id, work, name=name)

    def bounded(self, caller: Caller, reply: Reply) -> Reply:
        """The reply, a large one of a key as a stream. Raises OverQuota when the key has too many unread."""
        content = reply.body
        if caller.kind != "key" or not isinstance(content, bytes) or len(content) <= LARGE_ANSWER:
            return reply
        unread = self._unread[caller.key_id]
        if unread and unread + len(content) > MOST_UNREAD:
            raise OverQuota("this API key has not read the large answers that it asked for before", 1.0)
        headers = {**reply.headers, "Content-Length": str(len(content))}
        return replace(reply, body=None, headers=headers, stream=self._pieces(caller.key_id, content))

    async def _pieces(self, key_id: str, content: bytes) -> AsyncGenerator[bytes, None]:
        self._unread[key_id] += len(content)
        try:
            for start in range(0, len(content), PIECE):
                yield content[start : start + PIECE]
        finally:
            self._unread[key_id] -= len(content)
            if not self._unread[key_id]:
                del self._unread[key_id]

    def close(self) -> None:
        self.turns.close()
