"""The short way of POST /v1/events: from the wire to the writer and back, without a task or an exchange.

An event as agents send it - one JSON body of a known, moderate length, one valid key, nothing odd - is read,
handed to the writer, and answered when its transaction is committed, all in callbacks of the connection.
Whatever is unusual in any way, and all that is refused, goes the ordinary way from the start, so there is
one place that words errors. The answer is the same, byte for byte; a test compares the two.

It pays: an ordinary exchange costs a third of an event's processor time (`tests/bench/RESULTS-http.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import perf_counter
from typing import Any, Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from api import metrics
from api.auth import key_digest
from api.context import Context
from api.endpoint import SecurityHeaders, problem_for, request_id_of
from api.handlers.events import checked
from api.hot import FIXED, PATH
from api.protocol import BoundedProtocol
from api.store.database import DatabaseUnavailable
from api.store.incoming import Answer, Incoming

STATE: Final = "context"
"""Under this name the application leaves its context in the state of the server."""

_PATH = PATH.encode()


_opened: tuple[object, bytes] = (None, b"")
"""The server's headers of this second, and the lines that every good answer begins with then."""


def _opening(server_state: ServerState) -> bytes:
    global _opened
    headers, opening = _opened
    if headers is not server_state.default_headers:
        headers = server_state.default_headers
        opening = STATUS_LINE[200] + _lines([*headers, *FIXED])
        _opened = (headers, opening)
    return opening


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


class _Nobody:
    """Nobody waits for messages of such an exchange."""

    def set(self) -> None:
        pass


class _Exchange:
    """Stands where the server keeps its request and response; has what the server asks of them."""

    response_started = False
    response_complete = False
    disconnected = False
    more_body = True
    message_event = _Nobody()

    def __init__(self, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = bytearray()


class EventProtocol(BoundedProtocol):
    """One connection; see the module."""

    _key = b""
    _digest = ""
    """Of the key that was sent last on this connection, which is usually the next one, too."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        context: Context | None = self.app_state.get(STATE)
        if context is not None:
            context.writer.arrivals.connected()

    def on_headers_complete(self) -> None:
        before: Any = self.cycle
        if self.url == _PATH and (before is None or before.response_complete):
            headers = dict(self.headers)
            if len(headers) == len(self.headers) and self._is_plain(headers):
                self.cycle = _Exchange(headers, self.parser.should_keep_alive())  # type: ignore[assignment]
                return
        super().on_headers_complete()

    def _is_plain(self, headers: dict[bytes, bytes]) -> bool:
        length = headers.get(b"content-length", b"")
        return (
            headers.get(b"content-type") == b"application/json"
            and b"x-api-key" in headers
            and b"content-encoding" not in headers
            and length.isdigit()
            and int(length) <= HIGH_WATER_LIMIT
            and not self.expect_100_continue
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and not self.parser.should_upgrade()
            and STATE in self.app_state
        )

    def on_message_complete(self) -> None:
        exchange: Any = self.cycle
        if type(exchange) is not _Exchange or not exchange.more_body:
            super().on_message_complete()
            return
        begun = perf_counter()
        context: Context = self.app_state[STATE]
        exchange.more_body = False
        event = self._event(exchange, context)
        if event is not None:
            try:
                context.writer.ingest_then(event, self.loop, partial(self._reply, exchange, context, begun))
            except DatabaseUnavailable:
                event = None
        if event is None:
            self._go_the_ordinary_way(exchange)
        super().on_message_complete()

    def _event(self, exchange: _Exchange, context: Context) -> Incoming | None:
        """The checked event; None when there is anything to be said against it."""
        raw = bytes(exchange.body)
        key = exchange.headers[b"x-api-key"]
        if key != self._key:
            self._key, self._digest = key, key_digest(key.decode("latin-1"))
        caller = context.credentials.known(self._digest)
        if caller is None or len(raw) > context.settings.max_body_bytes:
            return None
        try:
            return checked(caller, raw)
        except Exception:
            # The ordinary way comes to the same, and finds the words for it.
            return None

    def _go_the_ordinary_way(self, exchange: _Exchange) -> None:
        self.cycle = None  # type: ignore[assignment]
        super().on_headers_complete()
        self.cycle.body += exchange.body

    def _reply(self, exchange: _Exchange, context: Context, begun: float, result: Answer | Exception) -> None:
        """On the event loop, once the event is committed or refused."""
        if exchange.disconnected or self.transport.is_closing():
            return
        sent = exchange.headers.get(b"x-request-id")
        if sent is None:
            request_id = context.ids("req")
        else:
            request_id = request_id_of({"x-request-id": sent.decode("latin-1")}, context)
        end = b"" if exchange.keep_alive else b"connection: close\r\n"
        if isinstance(result, Answer):
            content = result.content
            if result.replayed:
                end += b"idempotent-replay: true\r\n"
            head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n"
            self.transport.write(
                head % (_opening(self.server_state), len(content), request_id.encode(), end) + content
            )
            metrics.answered(perf_counter() - begun)
        else:
            problem = problem_for(result, request_id, f"POST {PATH}")
            headers = [*self.server_state.default_headers, *problem.raw_headers, *SecurityHeaders.HEADERS]
            head = STATUS_LINE[problem.status_code] + _lines(headers)
            self.transport.write(b"%b%b\r\n%b" % (head, end, bytes(problem.body)))
        exchange.response_started = exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()
