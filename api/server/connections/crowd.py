"""Whose connections give way when all that there may be are at work: those of whoever has most of them.

Who opens connection after connection, and keeps a request at work on each, would have everybody else refused:
health, people who halt agents, hooks of hosts that go ahead then; and one who attacks may be many, with a
key or an address each. So a new connection is let in until its first request says whose it is. If whoever has
most has more than twice as many at work as that one has with it, one of those is ended behind the answer that
it waits for, so that nobody loses one as long as there is room beside them; else it is refused. Kinds of
holders - the keys of an organisation, users, addresses - stand to each other alike.

Who that is must not be what a client may choose: a valid key or token stands for its key or user, and all
else - no credential, a wrong one - for the address that it comes from.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from time import thread_time
from typing import Final, Protocol

from api.server.connections.beginnings import kind_of

UNHEARD: Final = 32
"""Connections beyond the bound of which nobody knows yet whose they are: twice as many as come in a round of
the event loop, so that each is heard before it gives way to others."""
ENDING: Final = 16
"""And those beyond the bound that end behind their answers."""
FEW: Final = 8
"""Connections that have sent nothing yet, or are of nobody who is known, which an address may have before it
counts which has more: whoever has many addresses has one on each."""
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
    def address(self) -> str:
        """Where its client is."""

    @property
    def holder(self) -> str | None:
        """Whose request is at work on it, or was begun last where it ends; None while there is none."""

    @property
    def is_known(self) -> bool:
        """The last request on it came with a valid key or token."""

    @property
    def due(self) -> float | None:
        """When the client must have sent or read what is waited for; None while it waits for us, and once it
        takes no room from the next round of the event loop on."""

    def make_way(self) -> None:
        """It is closed."""

    def end_behind_answer(self) -> None:
        """It `ends`."""


class _AtWork:
    """Those of one kind that are at work, by holder."""

    def __init__(self) -> None:
        self.of: defaultdict[str, list[Connection]] = defaultdict(list)
        self.size = 0
        self._largest: list[tuple[int, str]] = []
        """A heap: of each holder every number that it has, or had, below zero."""

    def add(self, each: Connection, holder: str) -> None:
        self.of[holder].append(each)
        self.size += 1
        heappush(self._largest, (-len(self.of[holder]), holder))

    def most(self) -> int:
        """How many of them one holder has."""
        while self._largest and -self._largest[0][0] > len(self.of[self._largest[0][1]]):
            heappop(self._largest)
        return -self._largest[0][0] if self._largest else 0

    def taken(self) -> Connection | None:
        """One of the holder that has most, of which there are some; None: it was not at work any more."""
        holder = self._largest[0][1]
        each = self.of[holder].pop()
        self.size -= 1
        return each if each.holder == holder and not each.ends else None


class _View:
    """How those that have a place stood when all were looked at last, and what was decided since."""

    def __init__(self, placed: Iterable[Connection], all_of_them: Iterable[Connection]) -> None:
        self.addresses = Counter(each.address for each in all_of_them if not each.is_known)
        """By address, those of nobody who is known."""
        self._at_work: defaultdict[str, _AtWork] = defaultdict(_AtWork)
        """By kind."""
        self._refused: set[str] = set()
        """Holders that have enough of them."""
        idle = []
        for each in placed:
            if not each.ends:
                if (holder := each.holder) is not None:
                    self.begins(each, holder)
                else:
                    idle.append(each)
        self._idle = sorted(
            idle, key=lambda each: (not each.is_known, self.addresses[each.address], -(each.due or 0.0))
        )
        """The last one goes first: those of nobody who is known before others, of the address that has most
        of these, whoever has been waited for the longest."""

    def begins(self, each: Connection, holder: str) -> None:
        """It has a place, and is at work."""
        self._at_work[kind_of(holder)].add(each, holder)

    def next_idle(self) -> Connection | None:
        """Which goes of those that are waited for, if there is any: who has sent a request goes before."""
        while self._idle and self._idle[-1].due is None:
            self._idle.pop()
        return self._idle.pop() if self._idle else None

    def next_at_work(self, holder: str) -> Connection | None:
        """Which ends: one of whoever has most of them, if that is far more than this holder has. Those of one
        kind together may not have far more than those of this one's: else who has many addresses, or makes
        many keys, would keep out all others by few on each."""
        if holder in self._refused:
            return None
        own, kinds = self._at_work[kind_of(holder)], self._at_work.values()
        largest = max(kinds, key=lambda each: each.size)
        if largest is not own and largest.size > TIMES * (1 + own.size):
            found = _taken([largest], 0)
        else:
            mine = sum(each.holder == holder and not each.ends for each in own.of[holder])
            found = _taken(kinds, TIMES * (1 + mine))
        if found is None:
            self._refused.add(holder)
        return found


def _taken(kinds: Collection[_AtWork], more_than: int) -> Connection | None:
    """One of who has most of all these, if it is so many."""
    while (most := max(kinds, key=_AtWork.most)).most() > more_than:
        if (found := most.taken()) is not None:
            return found
    return None


class Crowd:
    """The connections of one server, each of which has a place, is new, or ends; one that is being closed for
    another is none of these.

    To look at a thousand of them takes a millisecond, and whoever is refused comes again at once. So they are
    looked at for all who come in a while, which is some times as long as the look took."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._placed: set[Connection] = set()
        self._new: dict[Connection, None] = {}
        """Those beyond the bound of which nobody knows yet whose they are, the oldest first."""
        self._ending: dict[Connection, None] = {}
        """And those that end behind their answers."""
        self._seen: _View | None = None

    def lets_in(self, new: Connection) -> bool:
        """Whether a new connection may stay; else it is closed. One beyond the bound stays until its first
        request says whose it is, and if these are too many, one goes: of many that come at once all are
        heard."""
        new.beyond = len(self._placed) + len(self._new) + len(self._ending) >= self.most
        if not new.beyond:
            self._placed.add(new)
            return True
        if len(self._new) >= UNHEARD:
            if (goes := self._next_unheard(new.address)) is None:
                return False
            self._close(goes)
        self._new[new] = None
        return True

    def lost(self, each: Connection) -> None:
        """It takes no room any more. INVARIANT: nothing of it lies here until the next crowd comes."""
        self._placed.discard(each)
        self._new.pop(each, None)
        self._ending.pop(each, None)

    def takes_place(self, new: Connection, holder: str, end_a_wait: Callable[[], bool]) -> bool:
        """Whether a connection that was let in beyond the bound gets a place, by whose its first request is.
        One that is waited for gives way to it. If all are at work, one that only waits for news is answered;
        else one of whoever has most of them ends, which keeps a place from nobody but its own holder: others
        that come and go end no more."""
        self.lost(new)
        view, placed = self._view(), len(self._placed)
        if placed >= self.most or any(each.holder == holder for each in self._ending):
            if (idle := view.next_idle()) is not None:
                self._close(idle)
            # Whoever waited may ask again on the same connection: for some time there is one more.
            elif placed >= self.most + ENDING or not end_a_wait():
                if (found := view.next_at_work(holder)) is None:
                    return False
                found.end_behind_answer()
                self.ends(found)
        self._placed.add(new)
        view.begins(new, holder)
        return True

    def ends(self, each: Connection) -> None:
        """It ends behind its answer. If too many do, one waits no longer, of whoever has most of these."""
        self.lost(each)
        self._ending[each] = None
        if len(self._ending) > ENDING:
            holders = Counter(each.holder for each in self._ending)
            self._close(max(self._ending, key=lambda each: holders[each.holder]))

    def _next_unheard(self, to: str) -> Connection | None:
        """Which goes of those that have sent nothing yet: the oldest of the address that has most of these,
        or else most of all, where either is more than a few. None: the one `to` which it gives way would have
        more then. Else those who open one after the other would have each new one closed by the next, before
        its first request is read."""
        new, all_of = Counter(each.address for each in self._new), self._view().addresses

        def rank(address: str, more: int = 0) -> tuple[int, int]:
            return max(new[address] + more, FEW), max(all_of[address], FEW)

        goes = max(self._new, key=lambda each: (*rank(each.address), -(each.due or 0.0)))
        return goes if goes.address == to or rank(goes.address) >= rank(to, 1) else None

    def _close(self, each: Connection) -> None:
        each.make_way()
        self.lost(each)

    def _view(self) -> _View:
        if self._seen is None:
            begun = thread_time()
            self._seen = _View(self._placed, [*self._placed, *self._new, *self._ending])
            asyncio.get_running_loop().call_later(KEPT * (thread_time() - begun), self._forget)
        return self._seen

    def _forget(self) -> None:
        self._seen = None
