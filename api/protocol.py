"""HTTP on the wire: uvicorn's protocol, with a bound on what is not body and problem documents for noise.

The parser keeps a request's first line, headers, chunk sizes and trailers until they are complete, however
long they get. Here they get `MOST_HEAD` bytes; whoever sends more is answered 400 and cut off, like whoever
sends no HTTP at all.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.errors import ApiError

MOST_HEAD: Final = 65_536
"""Bytes of one request that are no body, beside those that arrive together with its beginning."""
CHUNK_OVERHEAD: Final = 8
"""Bytes that may frame each byte of a body sent in the smallest chunks."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; see the module."""

    _spent = 0
    _between = True
    """Between two requests, or at the beginning of one."""

    def data_received(self, data: bytes) -> None:
        between, self._between = self._between, False
        if not between:
            self._spent += len(data)
        super().data_received(data)
        if self._spent > MOST_HEAD and not self.transport.is_closing():
            self._cut_off(f"a request may have at most {MOST_HEAD} bytes of headers")

    def on_message_begin(self) -> None:
        self._spent = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._spent = max(self._spent - len(body) * (1 + CHUNK_OVERHEAD), -MOST_HEAD)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._spent, self._between = 0, True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._cut_off("this is no HTTP request that can be read")

    def _cut_off(self, detail: str) -> None:
        cycle = self.cycle
        # While an earlier request of the connection waits for its answer, ours would be taken for it.
        own = cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline
        if cycle is None or cycle.response_complete or own:
            error = ApiError("invalid_request", detail)
            content = msgspec.json.encode(error.body(f"req_{token_hex(16)}"))
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
                b"content-length: %d\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
                b"connection: close\r\n\r\n%b" % (len(content), content)
            )
        if own:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
