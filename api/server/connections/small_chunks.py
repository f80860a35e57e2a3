"""Bodies in very small chunks: the connections take turns at them.

Each chunk takes the event loop a microsecond or two, however little stands in it, and a hundred thousand come
at once. So some of them are read together, and the rest is held until it is the connection's turn.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol
from weakref import ref

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

TOGETHER: Final = 512
"""Chunks of one connection."""


class Holding(Protocol):
    """A connection that holds chunks."""

    @property
    def holds_more(self) -> bool: ...


class HeldFlow(FlowControl):
    """INVARIANT: while a connection holds chunks that have come, nothing more is taken from its client,
    though whoever reads the body asks for more of it."""

    def __init__(self, transport: asyncio.Transport, connection: Holding) -> None:
        super().__init__(transport)
        self._connection = ref(connection)

    def resume_reading(self) -> None:
        if (connection := self._connection()) is None or not connection.holds_more:
            super().resume_reading()


def is_full(body: bytes | bytearray) -> bool:
    """Whether more of a body lies here than is taken in before somebody reads it."""
    return len(body) > HIGH_WATER_LIMIT
