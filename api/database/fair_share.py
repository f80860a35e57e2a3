"""Events that wait because many of their key are under way, so that nobody else's stand behind all of them.

Who opens connection after connection has an event of each under way. Commits take events in the order in
which they came, so others would wait for as many as somebody else has connections. Here each key has a share
of what is under way; beyond it its events wait for its own ones. A key that is alone has as many under way as
one commit takes, since small ones cost more.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from api.database.errors import DatabaseUnavailable
from api.database.hand_over import settle_all
from api.database.inline_commit import Entry

SECONDS: Final = 10.0
"""For which another key counts as there after its last event."""
LEAST_OF_A_KEY: Final = 4
SECONDS_OF_A_KEY: Final = 0.02
"""Of the processor. As many events as take so long are under way while other keys are there, which wait for
them."""

WHOLE_SHARES: Final = 2
"""Keys beyond which the shares get smaller."""


class UnderWay(Protocol):
    """What takes the events that are under way: `inline_commit.py` or `lanes/dispatch.py`."""

    most: int
    most_of_a_key: int
    size: int
    cost: float
    """Seconds of the processor that an event takes: a moving average."""

    def __len__(self) -> int: ...

    def add(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None: ...


class FairShare:
    """One per writer, used on one event loop. INVARIANT: events of one key keep their order."""

    def __init__(self, arrivals: UnderWay) -> None:
        self._arrivals = arrivals
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[Entry]] = {}
        """By key. INVARIANT: none waits while nothing of its key is under way."""
        self._size = 0
        self._alone_from = 0.0
        """When who is alone counts as that (monotonic)."""
        self._crowded_until = 0.0

    def __len__(self) -> int:
        """Events that are on the loop."""
        return len(self._arrivals) + sum(map(len, self._waiting.values()))

    def of_key(self, key_id: str) -> int:
        """Events of a key that wait here or are under way."""
        return self._under_way[key_id] + len(self._waiting.get(key_id, ()))

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._arrivals.size + self._size

    @property
    def is_crowded(self) -> bool:
        """Whether so many keys have had something under way lately that each has less."""
        return monotonic() < self._crowded_until

    def add(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        key_id = entry.event.caller.key_id
        if key_id not in self._waiting and self._under_way[key_id] < self._share():
            self._hand_on(key_id, entry, loop)
        else:
            self._waiting.setdefault(key_id, deque()).append(entry)
            self._size += entry.size

    def _share(self) -> int:
        """Of each key."""
        if len(self._under_way) > 1:
            self._alone_from = monotonic() + SECONDS
        if len(self._under_way) > WHOLE_SHARES:
            self._crowded_until = monotonic() + SECONDS
        if monotonic() >= self._alone_from:
            return self._arrivals.most
        most, cost = self._arrivals.most_of_a_key, self._arrivals.cost
        share = most if most * cost <= SECONDS_OF_A_KEY else int(SECONDS_OF_A_KEY / cost)
        # Of many keys each has less, so that their events together do not take as long as they are many.
        share = share * WHOLE_SHARES // max(WHOLE_SHARES, len(self._under_way))
        return min(most, max(LEAST_OF_A_KEY, share))

    def _hand_on(self, key_id: str, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        self._under_way[key_id] += 1
        entry.settle = partial(self._settled, key_id, loop, entry.settle)
        self._arrivals.add(entry, loop)

    def _settled(
        self, key_id: str, loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None], result: Any
    ) -> None:
        """One is under way no more; the next of its key take its place."""
        try:
            settle(result)
        finally:
            if isinstance(result, DatabaseUnavailable):
                # INVARIANT: nobody waits for others to be told the same first.
                failed = self._waiting.pop(key_id, ())
                self._size -= sum(entry.size for entry in failed)
                settle_all([(entry.settle, result) for entry in failed])
            share = self._share()
            self._under_way[key_id] -= 1
            waiting = self._waiting.get(key_id, deque())
            while waiting and self._under_way[key_id] < share:
                entry = waiting.popleft()
                self._size -= entry.size
                self._hand_on(key_id, entry, loop)
            if not waiting:
                self._waiting.pop(key_id, None)
            if not self._under_way[key_id]:
                del self._under_way[key_id]
