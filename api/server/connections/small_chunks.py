"""Bodies in very small chunks: the connections take turns at them.

Each chunk takes the event loop a microsecond or two, however little stands in it, and a hundred thousand come
at once. So some of them are read together, and the rest is held until it is the connection's turn.
"""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

TOGETHER: Final = 512
"""Chunks of one connection."""


class HeldFlow(FlowControl):
    """What is taken from the client of one connection."""

    holds = False
    """INVARIANT: while chunks that have come are held, nothing more is taken, though whoever reads the body
    asks for more of it."""

    def resume_reading(self) -> None:
        if not self.holds:
            super().resume_reading()


def is_full(body: bytes | bytearray) -> bool:
    """Whether more of a body lies here than is taken in before somebody reads it."""
    return len(body) > HIGH_WATER_LIMIT
