"""How much of an answer is taken in: a receiver that goes on and on would keep the event loop busy otherwise.

What a library reads past without telling anybody - interim answers (1xx) without end, bodies in the smallest
of chunks - is counted here, below it and above TLS. Knows nothing of HTTP.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

import httpcore

MOST_ANSWER_BYTES: Final = 32 << 10
"""Of one answer, its head and all that comes before it included."""
AT_ONCE: Final = 4 << 10
"""Bytes after which the event loop goes on with others."""


class AnswerTooLong(httpcore.ReadError):
    """More came than is taken in."""


class BoundedAnswer(httpcore.AsyncNetworkStream):
    """A connection on which each request is answered by so many bytes at most. INVARIANT: what is read is
    counted from the last byte that was sent."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = MOST_ANSWER_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._left <= 0:
            raise AnswerTooLong
        found = await self._stream.read(min(max_bytes, self._left, AT_ONCE), timeout)
        self._left -= len(found)
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._left = MOST_ANSWER_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return BoundedAnswer(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
