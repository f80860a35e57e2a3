"""HTTP/1.1 on one connection to a receiver: a request goes out, its answer comes in, the next may follow.

Only what deliveries need: one POST at a time, and of the answer the status, the headers and the beginning of
the body. Knows nothing of names, addresses or webhooks.

It stands in for a general client because each event may have to be delivered: this costs the processor a
tenth of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httptools

MOST_BODY_BYTES: Final = 2048
MOST_BYTES: Final = 131_072
"""Of a whole answer: interim answers, headers, the body's beginning in however small chunks."""


class Broken(Exception):
    """The answer is not HTTP, or the connection ended before it came."""


@dataclass(slots=True)
class Response:
    """What has come so far. `status` is None until the head is complete."""

    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)


def request(target: str, host: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a POST. INVARIANT: nothing in it can begin a line of its own."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not all(line.isascii() and line.isprintable() for line in lines) or " " in target or " " in host:
        raise ValueError("the address or a header holds a character that cannot be sent")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class Connection(asyncio.Protocol):
    """See the module. `gone` is called once when it has ended, whoever ended it."""

    def __init__(self, gone: Callable[[Connection], None]) -> None:
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answered: asyncio.Future[None] | None = None
        self._response = Response()
        self._headers: list[tuple[bytes, bytes]] = []
        self._received = 0
        self._keep = False
        self.closed = False

    async def exchange(self, sent: bytes, response: Response) -> None:
        """Send a request and fill `response`; what is in it counts even if this ends early.

        Raises Broken, OSError.
        """
        assert self._transport is not None
        self._response, self._headers, self._received, self._keep = response, [], 0, False
        if self.closed:
            raise Broken("the connection broke")
        self._parser = httptools.HttpResponseParser(self)
        self._answered = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(sent)
            await self._answered
        finally:
            self._answered = None
            if not self._keep:
                self.close()

    @property
    def silent(self) -> bool:
        """Not a byte has come since the request went out."""
        return self._received == 0

    @property
    def reusable(self) -> bool:
        return self._keep and not self.closed

    def close(self) -> None:
        if self._transport is not None and not self.closed:
            # Nothing of a refused or endless answer is waited for.
            self._transport.abort()

    # What the transport tells ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._waiting:
            self._keep = False  # nobody asked
            self.close()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._keep = False
            self._end(Broken("the answer is not HTTP, or broke off"))
        else:
            if self._received > MOST_BYTES:
                self._end(Broken("the answer has no end"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        # Where the body has no length, the end of the connection is its end.
        self._end(error or Broken("the answer is not HTTP, or broke off"))
        self._gone(self)

    @property
    def _waiting(self) -> bool:
        return self._answered is not None and not self._answered.done()

    def _end(self, error: Exception | None) -> None:
        """The answer is there, or all of it that will come. A status is one."""
        if self._answered is None or self._answered.done():
            return
        if error is None or self._response.status is not None:
            self._answered.set_result(None)
        else:
            self._answered.set_exception(error)

    # What the parser tells ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = []
        if not self._waiting:
            self._keep = False  # a second answer

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._waiting:
            self._response.headers, self._response.status = self._headers, status

    def on_body(self, data: bytes) -> None:
        if self._waiting:
            self._response.body += data[: MOST_BODY_BYTES - len(self._response.body)]
            if len(self._response.body) >= MOST_BODY_BYTES:
                self._end(None)

    def on_message_complete(self) -> None:
        if self._response.status is not None and self._waiting:
            self._keep = bool(self._parser.should_keep_alive())
            self._end(None)
