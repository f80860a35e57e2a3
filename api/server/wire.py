"""HTTP on the wire: uvicorn's protocol, with a bound on what is not body and problem documents for noise.

The parser keeps a request's first line, headers, chunk sizes and trailers until they are complete, however
long they get. Here they get `MOST_HEAD` bytes; whoever sends more is answered 400 and cut off, like whoever
sends no HTTP at all. And a request that offers an upgrade of the protocol, as some clients always do, keeps
its body, which the parser would take for the first words of the other protocol.
"""

from __future__ import annotations

import sys
from secrets import token_hex
from typing import Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.problems import ApiError

MOST_HEAD: Final = 65_536
"""Bytes of one request that are no body, beside those that arrive together with its beginning."""
CHUNK_OVERHEAD: Final = 8
"""Bytes that may frame each byte of a body sent in the smallest chunks."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; see the module."""

    _spent = 0
    _between = True
    """The parser is between two requests, and has seen nothing of the next one."""
    _data = _rest = b""
    _idle_since: float | None = None
    """When the last answer was complete; None while a request is under way."""

    def data_received(self, data: bytes) -> None:
        between, self._between = self._between, False
        if not between:
            self._spent += len(data)
        self._rest = data
        while self._rest:
            self._data, self._rest = self._rest, b""
            super().data_received(self._data)
        if self._spent > MOST_HEAD and not self.transport.is_closing():
            self._cut_off(f"a request may have at most {MOST_HEAD} bytes of headers")

    def on_message_begin(self) -> None:
        self._spent, self._between = 0, False
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._spent = max(self._spent - len(body) * (1 + CHUNK_OVERHEAD), -MOST_HEAD)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body is still to come, see below
        self._spent, self._between = 0, True
        super().on_message_complete()

    # One timer watches over an idle connection for all of its requests, instead of a new one after each.

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        if self.transport.is_closing() or self.pipeline:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch(self.timeout_keep_alive)

    def _watch(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # the next answer sets the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._watch(left)
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _unsupported_upgrade_warning(self) -> None:
        """The parser has stopped behind the head of a request that offers an upgrade: a new one goes on."""
        stopped = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        self._rest = self._data[int(stopped.args[0]) :] if stopped is not None else b""
        framing = (b"content-length", b"transfer-encoding")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] in framing]
        callbacks = _BehindTheHead(self)
        self.parser = httptools.HttpRequestParser(callbacks)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))

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


class _BehindTheHead:
    """The callbacks of a connection, from the body of a request on whose head it knows already."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection
        self._head_is_known = True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        callback = getattr(self._connection, name)

        def call(*arguments: Any) -> None:
            if not self._head_is_known or name in ("on_body", "on_message_complete"):
                callback(*arguments)
            elif name == "on_headers_complete":
                self._head_is_known = False

        return call
