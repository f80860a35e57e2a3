"""Server-sent events out of bytes, as the HTML standard reads them; only what MCP uses of them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass

from api.mcp_proxy.pipes import LONGEST_LINE, LineTooLong


@dataclass(frozen=True, slots=True)
class StreamEvent:
    data: bytes
    id: str | None
    retry: float | None
    """Seconds after which to ask again when the stream ends."""


async def events(chunks: AsyncIterable[bytes]) -> AsyncIterator[StreamEvent]:
    """Every event that is complete; what a broken stream leaves unfinished is dropped, as the standard
    says."""
    data: list[bytes] = []
    id: str | None = None
    retry: float | None = None
    size = 0
    async for line in _lines(chunks):
        if not line:
            if data or id is not None or retry is not None:
                yield StreamEvent(b"\n".join(data), id, retry)
            data, id, retry, size = [], None, None, 0
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
            size += len(value) + 1
            if size > LONGEST_LINE:
                raise LineTooLong(f"an event is longer than {LONGEST_LINE} bytes")
        elif name == b"id" and b"\0" not in value:
            id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            retry = float(value) / 1000  # which may be endless, but is no error however long it is


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Lines end with LF, CR, or CR LF, wherever the chunks part them."""
    rest = bytearray()
    after_return = False
    async for chunk in chunks:
        if after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            continue
        after_return = chunk.endswith(b"\r")
        *whole, last = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > LONGEST_LINE:
            raise LineTooLong(f"an event is longer than {LONGEST_LINE} bytes")
