"""Whose connections give way when all that there may be are at work: those of whoever has most of them.

Who opens connection after connection, and keeps a request at work on each, would have everybody else refused:
health, people who halt agents, hooks of hosts that go ahead then; and one who attacks may be many, with a
key or an address each. So a new connection is let in until its first request says whose it is. If whoever has
most has more than twice as many at work as that one has with it, one of those is ended behind the answer that
it waits for, so that nobody loses one as long as there is room beside them; else it is refused.

Who that is must not be what a client may choose: a valid key or token stands for its key or user, and all
else - no credential, a wrong one - for the address that it comes from.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Set
from time import thread_time
from typing import Final, Protocol

RESERVED: Final = 32
"""Connections beyond the bound: some that end behind their answers, and new ones that nobody knows yet. They
are twice as many as come in a round of the event loop: each is heard before it gives way to others."""
TIMES: Final = 2
"""As many connections at work as one who gets in must have whoever gives way. Else those of a crowd would
take turns with one another, and what ends behind its answer would fill what is reserved."""
KEPT: Final = 10
"""Times as long as a look at all connections took, of the processor's time."""
READY: Final = "/health/ready"
"""Is answered all the same: agents and hooks in the fail mode `open` let a call through only where that is
not there, and none may get there by a crowd of its own."""
FULL: Final = "too many connections are open; try again"
LEFT: Final = (
    "too many connections are open, and the answer took long: what was asked may be done all the same; "
    "send the same event again, and look first whether anything else was done"
)
"""Of a request that is at work, and goes on."""


class Connection(Protocol):
    """One of those that share the room."""

    beyond: bool
    """It was let in beyond the bound, until its first request says whose it is."""
    ends: bool
    """It takes no more requests, and is closed behind the answer that it waits for."""

    @property
    def is_gone(self) -> bool:
        """It takes no room from the next round of the event loop on."""

    @property
    def address(self) -> str:
        """Where its client is."""

    @property
    def holder(self) -> str | None:
        """Whose request is at work on it, or was begun last where it ends; None while there is none."""

    @property
    def due(self) -> float | None:
        """When the client must have sent or read what is waited for; None while it waits for us."""

    def make_way(self) -> None:
        """It is closed."""

    def end_behind_answer(self) -> None:
        """It `ends`."""


class _View:
    """How those that have a place stood when all were looked at last, and what was decided since."""

    def __init__(self, connections: Iterable[Connection]) -> None:
        self.addresses: Counter[str] = Counter()
        self.at_work: dict[str | None, list[Connection]] = {}
        """By holder."""
        self._refused: set[str] = set()
        """Holders that have enough of them."""
        idle = []
        for each in connections:
            self.addresses[each.address] += 1
            if not (each.beyond or each.ends):
                if each.due is None:
                    self.at_work.setdefault(each.holder, []).append(each)
                else:
                    idle.append(each)
        self._idle = sorted(idle, key=lambda each: (self.addresses[each.address], -(each.due or 0.0)))
        """The last one goes first: of the address that has most, whoever has been waited for the longest."""

    def next_idle(self, to: str) -> Connection | None:
        """Which goes of those that are waited for; None: there is none of an address that has as many as the
        one `to` which it gives way."""
        while self._idle and (self._idle[-1].due is None or self._idle[-1].is_gone):
            self._idle.pop()
        if not self._idle or self.addresses[self._idle[-1].address] < self.addresses[to]:
            return None
        return self._idle.pop()

    def next_at_work(self, holder: str) -> Connection | None:
        """Which ends: one of whoever has most of them, if that is far more than this holder has."""
        if holder in self._refused:
            return None
        own = sum(each.holder == holder and not each.ends for each in self.at_work.get(holder, ()))
        while self.at_work:
            found, most = max(self.at_work.items(), key=lambda each: len(each[1]))
            if len(most) <= TIMES * (1 + own):
                break
            each = most.pop()
            if each.holder == found and not each.ends:
                return each
        self._refused.add(holder)
        return None


class Crowd:
    """The connections of one server, while there are as many as there may be.

    To look at a thousand of them takes a millisecond, and whoever is refused comes again at once. So they are
    looked at for all who come in a while, which is some times as long as the look took."""

    def __init__(self, connections: Set[Connection], most: int) -> None:
        self._connections, self._most = connections, most
        self._seen: _View | None = None
        # Of the connections:
        self._new: list[Connection] = []
        self._ending: list[Connection] = []
        self._closed: set[Connection] = set()

    def gets_in(self, new: Connection) -> bool:
        """Whether a new connection, which is one of them, may stay until its first request says whose it is;
        else it is closed. If what is reserved is taken, one that ends behind its answer waits no longer, of
        whoever has most of these; or, where they are more, one goes that has sent nothing yet: of many that
        come at once all are heard."""
        self._count()
        if len(self._connections) - len(self._closed) > self._most + RESERVED:
            if len(self._new) > len(self._ending):
                goes = self._next_unheard(new.address) or self._next_ending()
            else:
                goes = self._next_ending() or self._next_unheard(new.address)
            if goes is None:
                self._closed.add(new)
                return False
            self._close(goes)
        self._new.append(new)
        return True

    def takes_place(self, new: Connection, holder: str, end_a_wait: Callable[[], bool]) -> bool:
        """Whether a connection that was let in beyond the bound gets a place, by whose its first request is.
        One that is waited for gives way to it. If all are at work, one that only waits for news is answered;
        else one of whoever has most of them ends, which keeps a place from nobody but its own holder: others
        that come and go end no more. Where it gets none, it `ends`."""
        self._count()
        placed = len(self._connections) - len(self._new) - len(self._ending) - len(self._closed)
        view = self._view()
        if placed >= self._most or any(each.holder == holder for each in self._ending):
            if (idle := view.next_idle(new.address)) is not None:
                self._close(idle)
            # Whoever waited may ask again on the same connection: for some time there is one more.
            elif placed >= self._most + RESERVED // 2 or not end_a_wait():
                if (ends := view.next_at_work(holder)) is None:
                    self._ending.append(new)
                    return False
                ends.end_behind_answer()
                self._ending.append(ends)
        view.at_work.setdefault(holder, []).append(new)
        return True

    def _next_ending(self) -> Connection | None:
        """Which waits no longer for its answer."""
        holders = Counter(each.holder for each in self._ending)
        return max(self._ending, key=lambda each: holders[each.holder], default=None)

    def _next_unheard(self, to: str) -> Connection | None:
        """Which goes of those that have sent nothing yet: the oldest of the address that has most of these,
        or else most of all. None: the one `to` which it gives way would have more then. Else those who open
        one after the other would have each new one closed by the next, before its first request is read."""
        new, all_of = Counter(each.address for each in self._new), self._view().addresses

        def rank(address: str, more: int = 0) -> tuple[int, int]:
            return new[address] + more, all_of[address]

        goes = max(self._new, key=lambda each: (*rank(each.address), -(each.due or 0.0)), default=None)
        if goes is None or (goes.address != to and rank(goes.address) < rank(to, 1)):
            return None
        return goes

    def _count(self) -> None:
        """What became of those that are told apart from the others."""
        gone = {each for each in (*self._new, *self._ending) if each.is_gone}
        self._closed = (self._closed | gone) & self._connections
        self._new = [each for each in self._new if each.beyond and not each.is_gone]
        self._ending = [each for each in self._ending if not each.is_gone]

    def _close(self, each: Connection) -> None:
        each.make_way()
        self._closed.add(each)

    def _view(self) -> _View:
        if self._seen is None:
            begun = thread_time()
            self._seen = _View(each for each in self._connections if not each.is_gone)
            asyncio.get_running_loop().call_later(KEPT * (thread_time() - begun), self._forget)
        return self._seen

    def _forget(self) -> None:
        """INVARIANT: what is lost does not lie here, with all that it sent, until the next crowd comes."""
        self._seen = None
        self._count()
