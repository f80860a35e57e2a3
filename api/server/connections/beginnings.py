"""Which requests of one holder are begun now, and which in a later round of the event loop.

Who opens connection after connection would have all that they ask begun before anybody else is heard. So of
each holder - a key, a user, or an address without a valid credential - a few requests are begun in a round,
and of many holders a few together; the rest stands in a queue of its own, and whoever sends one after the
other waits for no such queue. Whose connection is lost leaves it, so that no more stand there than there may
be connections. Requests that stood behind others of their connection are begun a few at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

AT_ONCE: Final = 4
"""Requests of one holder that are begun in one round."""
OF_ALL: Final = 8
"""Requests of all holders in one round, beyond which each that has no other at work there has one begun."""

BEGUN_TOGETHER: Final = 4
"""Requests that stood behind others, of all connections, in one round of the event loop."""

Begin = Callable[[], None]


class NextRequests:
    """What connections of one server go on with, a few of them at a time: the next request, which stood
    behind another one that is answered now; or more of what they hold."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Begin, None] = {}

    def join(self, begin: Begin) -> None:
        if not self._waiting:
            self._loop.call_soon(self._serve)
        self._waiting[begin] = None  # once, where it stands

    def _serve(self) -> None:
        for _ in range(min(BEGUN_TOGETHER, len(self._waiting))):
            self._loop.call_soon(begin := next(iter(self._waiting)))
            del self._waiting[begin]
        if self._waiting:
            self._loop.call_soon(self._serve)


class Beginnings:
    """See the module; one per event loop. Those of one holder keep their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun: Counter[str] = Counter()
        """In this round, by holder. INVARIANT: while it holds any, the next round is called for."""
        self._queues: dict[str, OrderedDict[Hashable, Begin]] = {}
        """By holder and connection, which waits for one request at a time."""

    def add(self, holder: str, connection: Hashable, begin: Begin) -> None:
        """Begin a request, now or in its turn."""
        if holder in self._queues or self._begun[holder] >= AT_ONCE or self._is_full(holder):
            self._queues.setdefault(holder, OrderedDict())[connection] = begin
        else:
            self._begin(holder, begin)

    def leave(self, holder: str, connection: Hashable) -> None:
        """Its connection is lost: if it was not begun by now, it never is."""
        if (queue := self._queues.get(holder)) is not None:
            queue.pop(connection, None)

    def _begin(self, holder: str, begin: Begin) -> None:
        if not self._begun:
            self._loop.call_soon(self._next_round)
        self._begun[holder] += 1
        begin()

    def _is_full(self, holder: str) -> bool:
        """Whether holders together have had enough begun in this round for one more of this one to wait."""
        return self._begun[holder] > 0 and self._begun.total() >= OF_ALL

    def _next_round(self) -> None:
        self._begun.clear()
        for holder in list(self._queues):
            if self._begun.total() >= OF_ALL:
                break
            queue = self._queues.pop(holder)
            for _ in range(min(AT_ONCE, len(queue))):
                self._begin(holder, queue.popitem(last=False)[1])
            if queue:
                self._queues[holder] = queue  # behind the others


def credential_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """What a request authenticates by; empty: by nothing. A key comes first: agents have nothing else, and
    where they send one, most endpoints do not read the other header."""
    sent = {name: value for name, value in headers if name in (b"x-api-key", b"authorization")}
    return sent.get(b"x-api-key") or sent.get(b"authorization", b"")
