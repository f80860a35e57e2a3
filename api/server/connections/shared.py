"""What the connections of one server share: in which order they go on, and which of them give way."""

from __future__ import annotations

import asyncio
from typing import ClassVar
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from api.server.connections.beginnings import Beginnings, NextRequests
from api.server.connections.crowd import Crowd


class Shared:
    """See the module."""

    _of_server: ClassVar[WeakKeyDictionary[ServerState, Shared]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.beginnings = Beginnings(loop)
        self.next_requests = NextRequests(loop)
        """Those that stood behind another one of their connection."""
        self.more_data = NextRequests(loop)
        """Of connections that hold some which they have not read. No request stands behind it, since it takes
        as long as several."""
        self.crowd = Crowd(most)

    @classmethod
    def of(cls, state: ServerState, loop: asyncio.AbstractEventLoop, most: int) -> Shared:
        """`most`: connections that there may be."""
        if (shared := cls._of_server.get(state)) is None:
            shared = cls._of_server[state] = cls(loop, most)
        shared.crowd.most = most  # the files that a process may have open may change
        return shared
