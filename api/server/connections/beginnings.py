"""Which requests of one holder are begun now, and which in a later round of the event loop.

Who opens connection after connection would have all that they ask begun before anybody else is heard. So of
each holder - a key, a user, or an address without a valid credential - a few requests are begun in a round,
and of all holders of one kind - the keys of an organisation, users, addresses - some more together; the rest
stands in queues, where they take turns. Whose connection is lost leaves it, so that no more stand there than
there may be connections. Requests that stood behind others of their connection are begun a few at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final

AT_ONCE: Final = 4
"""Requests of one holder that are begun in one round."""
OF_ALL: Final = 8
"""Requests of all holders of one kind in one round, beyond which `AT_ONCE` more of them that have no other
there have one begun as it comes."""
ADDRESSES: Final = "address"
"""The kind of all who have no valid credential."""

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


def kind_of(holder: str) -> str:
    """What stands before the last word of a holder."""
    return holder.rpartition(" ")[0]


class Beginnings:
    """See the module; one per event loop. Those of one holder keep their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun: Counter[str] = Counter()
        """In this round, by holder. INVARIANT: while it holds any, the next round is called for."""
        self._of_kind: Counter[str] = Counter()
        """The same by kind."""
        self._queues: dict[str, dict[str, OrderedDict[Hashable, Begin]]] = {}
        """By kind, holder and connection, which waits for one request at a time."""

    def add(self, holder: str, connection: Hashable, begin: Begin) -> None:
        """Begin a request, now or in its turn."""
        kind = kind_of(holder)
        if holder in self._queues.get(kind, ()) or self._is_full(kind, holder):
            self._queues.setdefault(kind, {}).setdefault(holder, OrderedDict())[connection] = begin
        else:
            self._begin(kind, holder, begin)

    def leave(self, holder: str, connection: Hashable) -> None:
        """Its connection is lost: if it was not begun by now, it never is."""
        if (queue := self._queues.get(kind_of(holder), {}).get(holder)) is not None:
            queue.pop(connection, None)

    def _begin(self, kind: str, holder: str, begin: Begin) -> None:
        if not self._begun:
            self._loop.call_soon(self._next_round)
        self._begun[holder] += 1
        self._of_kind[kind] += 1
        begin()

    def _is_full(self, kind: str, holder: str) -> bool:
        """Whether enough was begun in this round for one more of this holder to wait."""
        own, all_of_them = self._begun[holder], self._of_kind[kind]
        most = OF_ALL if own else OF_ALL + AT_ONCE
        return own >= AT_ONCE or all_of_them >= most

    def _next_round(self) -> None:
        self._begun.clear()
        self._of_kind.clear()
        for kind in list(self._queues):
            queues = self._queues[kind]
            for holder in list(islice(queues, OF_ALL)):
                if self._of_kind[kind] >= OF_ALL:
                    break
                queue = queues.pop(holder)
                for _ in range(min(AT_ONCE, len(queue))):
                    self._begin(kind, holder, queue.popitem(last=False)[1])
                if queue:
                    queues[holder] = queue  # behind the others
            if not queues:
                del self._queues[kind]
        if self._queues and not self._begun:  # all that stood first have left
            self._loop.call_soon(self._next_round)


def credential_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """What a request authenticates by; empty: by nothing. A key comes first: agents have nothing else, and
    where they send one, most endpoints do not read the other header."""
    sent = {name: value for name, value in headers if name in (b"x-api-key", b"authorization")}
    return sent.get(b"x-api-key") or sent.get(b"authorization", b"")
