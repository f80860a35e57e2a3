"""Whose connections give way when all that there may be are at work: those of whoever has most of them.

Who opens connection after connection, and keeps a request at work on each, would have everybody else refused:
health, people who halt agents, hooks of hosts that go ahead then; and one who attacks may be many, with a
key or an address each. So a new connection is let in until its first request says whose it is. If whoever has
most has more than twice as many at work as that one has with it, one of those is ended behind the answer that
it waits for, so that nobody loses one; else it is refused.

Who that is must not be what a client may choose: a valid key or token stands for its key or user, and all
else - no credential, a wrong one - for the address that it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from secrets import token_hex
from typing import Any, Final, Protocol

from api import metrics
from api.http.problems import ApiError
from api.server.endpoint import problem

RESERVED: Final = 32
"""Connections beyond the bound, until those that end behind their answers can be closed."""
TIMES: Final = 2
"""As many connections at work as one who gets in must have whoever gives way. Else those of a crowd would
take turns with one another, and what ends behind its answer would fill what is reserved."""
READY: Final = "/health/ready"
"""Is answered all the same: agents and hooks in the fail mode `open` let a call through only where that is
not there, and none may get there by a crowd of its own."""
FULL: Final = "too many connections are open; try again"


class Connection(Protocol):
    """One of those that share the room."""

    beyond: bool
    """It was let in beyond the bound, until its first request says whose it is."""

    @property
    def address(self) -> str:
        """Where its client is."""

    @property
    def holder(self) -> str | None:
        """Whose request is at work on it; None while there is none."""

    @property
    def due(self) -> float | None:
        """When the client must have sent or read what is waited for; None while it waits for us."""

    def make_way(self) -> None:
        """It is closed."""

    def end_behind_answer(self) -> None:
        """It takes no more requests, and is closed once the one at work is answered."""


class Room(Enum):
    """Of a connection that comes when there are as many as there may be."""

    OF_ANOTHER = auto()
    BEYOND = auto()
    NONE = auto()


def room_for_one_more(
    address: str, others: Sequence[Connection], most: int, end_a_wait: Callable[[], bool]
) -> Room:
    """One that is waited for gives way to the new one of this address. If all are at work, one that only
    waits for news is answered; else whoever has most of them may have to give way, or there is no place."""
    # Those beyond the bound give way to each other last: of many that come at once all are heard.
    if _idle_gives_way(others, beyond=False, to=address):
        return Room.OF_ANOTHER
    if len(others) >= most + RESERVED:
        return Room.BEYOND if _idle_gives_way(others, beyond=True, to=address) else Room.NONE
    if end_a_wait():
        return Room.OF_ANOTHER
    return Room.BEYOND if _most_at_work(others)[1] > TIMES else Room.NONE


def takes_place(holder: str, address: str, others: Sequence[Connection], most: int) -> bool:
    """Whether a connection beyond those that there may be stays, by whose its first request is: then one of
    whoever has most of the others ends."""
    if len(others) < most or _idle_gives_way(others, beyond=False, to=address):
        return True
    found, count = _most_at_work(others)
    if count <= TIMES * (1 + sum(each.holder == holder for each in others)):
        return False
    next(each for each in others if each.holder == found).end_behind_answer()
    return True


def _idle_gives_way(connections: Sequence[Connection], *, beyond: bool, to: str) -> bool:
    """Close the one that has been waited for the longest, of the address that has most; False: there is none
    of an address that has as many as the one `to` which it gives way. Else those who open one after the other
    would have each new one closed by the next, before its first request is read."""
    idle = [each for each in connections if each.due is not None and each.beyond is beyond]
    if not idle:
        return False
    counts = Counter(each.address for each in connections)
    found = min(idle, key=lambda each: (-counts[each.address], each.due))
    if counts[found.address] < counts[to]:
        return False
    found.make_way()
    return True


def _most_at_work(connections: Sequence[Connection]) -> tuple[str | None, int]:
    """Who has most of the connections at work, and how many."""
    counts = Counter(each.holder for each in connections)
    del counts[None]
    return counts.most_common(1)[0] if counts else (None, 0)


def without_place(scope: Any, app: Any) -> Any:
    """The application of a request for which there is no connection."""
    return app if scope["path"] == READY else _refuse


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    metrics.requested("", "", 503)
    error = ApiError("unavailable", FULL, headers={"Connection": "close"})
    await problem(error, f"req_{token_hex(16)}")(scope, receive, send)
