"""The fast path of POST /v1/events: from the wire to the writer and back, without a task or an exchange.

It halves the processor time of an event: without it the service answers 0.48 as many events for the same
time (64 connections, SQLite, 1,000 policies, alternating runs with and without it).

An event as agents send it - one JSON body of a known, moderate length, one valid key, nothing odd - is read,
handed to the writer, and answered when its transaction is committed, all in callbacks of the connection.
Whatever is unusual in any way, and all that is refused, falls back to the endpoint from the start, so there
is one place that words errors. The answer is the same; tests compare the two.

Agents send the same head again and again on a connection, but for the digits of `Content-Length`. The parser
reads it once; afterwards it is known by its bytes, see `Head`.

It stands on the inside of uvicorn's protocol, which `pyproject.toml` therefore pins to the versions tested.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from api import metrics
from api.auth.credentials import key_digest
from api.caller import NOBODY
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.ingestion.evaluation import PutOff
from api.ingestion.event import Answer, EventRefused, Incoming
from api.ingestion.quotas import OverQuota
from api.ingestion.turns import LARGE
from api.ingestion.validation import checked
from api.loops import knowing
from api.server.connections.wire import BoundedProtocol
from api.server.endpoint import SecurityHeaders, problem_for
from api.server.request_observer import request_id_of
from api.telemetry import tracing

STATE: Final = "context"
"""Under this name the application leaves its context in the state of the server."""

PATH: Final = metrics.EVENTS_PATH
_PATH = PATH.encode()
_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    *SecurityHeaders.HEADERS,
)
"""Of every good answer, beside the server's own."""
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,5})\r\n", re.IGNORECASE)
_DIGITS: Final = 5
"""As many as `LARGE` has."""
MOST_HEADS: Final = 16
"""Heads that a connection learns one after the other. Where each request has another one, it is of no use."""


_opened: tuple[object, bytes] = (None, b"")
"""The server's headers of this second, and the lines that every good answer begins with then."""


def _opening(server_state: ServerState) -> bytes:
    global _opened
    headers, opening = _opened
    if headers is not server_state.default_headers:
        headers = server_state.default_headers
        opening = STATUS_LINE[200] + _lines([*headers, *_HEADERS])
        _opened = (headers, opening)
    return opening


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


class NullEvent:
    """Stands for the event that wakes who waits for messages; nobody does in such an exchange."""

    def set(self) -> None:
        pass


class _Exchange(msgspec.Struct, eq=False, weakref=True):
    """Stands where the server keeps its request and response; has what the server asks of them."""

    key: bytes
    request_id: bytes | None
    """As sent."""
    body: bytes | bytearray
    keep_alive: bool
    response_started: bool = False
    response_complete: bool = False
    disconnected: bool = False
    more_body: bool = True
    comes_again: bool = False

    message_event = NullEvent()
    __repr__ = object.__repr__  # the default of a dataclass would show the key


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request that took the fast path, around the digits of its `Content-Length`.

    INVARIANT: the parser has read these very bytes between two requests of this connection, and found in them
    one length, a connection that is kept, and nothing unusual. Data that come between two requests and are
    these bytes, digits of a length that is allowed, and exactly so many bytes, are therefore one request that
    differs in its body alone. The parser never sees it, and so remains between two requests.
    """

    before: bytes
    behind: bytes
    """With the blank line."""
    key: bytes
    request_id: bytes | None

    @classmethod
    def of(cls, data: bytes, exchange: _Exchange) -> Head | None:
        """The head of data that became this exchange, if they are one whole request and nothing else."""
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end)
        if length is None or int(length[1]) != len(data) - end:
            return None
        return cls(data[: length.start(1)], data[length.end(1) : end], exchange.key, exchange.request_id)

    def body(self, data: bytes) -> bytes | None:
        """The body of data that are one whole request with this head; None if they are anything else."""
        before, behind = self.before, self.behind
        if not data.startswith(before):
            return None
        begin = len(before)
        end = data.find(behind, begin, begin + _DIGITS + len(behind))
        digits = data[begin:end]
        if end < 0 or not digits.isdigit():
            return None
        body = data[end + len(behind) :]
        return body if int(digits) == len(body) <= LARGE else None


class EventProtocol(BoundedProtocol):
    """One connection; see the module."""

    _key = b""
    _digest = ""
    """Of the key that was sent last on this connection, which is usually the next one, too."""
    _head: Head | None = None
    """The head that was learnt last."""
    _heads = 0
    """How many were learnt."""
    _observed = False
    """Each request gets a line in the log or a span, which the ordinary way makes."""
    _refused = False
    """The data that the parser is given are a request that cannot take the fast path."""

    def connection_made(self, transport: Any) -> None:
        context: Context | None = self.app_state.get(STATE)
        if context is not None:
            self.request_seconds = context.settings.request_seconds
            self.most_connections = context.settings.most_connections
            self._observed = context.settings.access_log or tracing.is_on()
        super().connection_made(transport)
        if context is not None and not self.beyond:
            context.writer.arrivals.connected()

    def _end_a_wait(self) -> bool:
        context: Context | None = self.app_state.get(STATE)
        return context is not None and context.waits.make_room()

    def _whose(self) -> str:
        context: Context | None = self.app_state.get(STATE)
        held_by = "" if context is None else context.credentials.holder(self._credential.decode("latin-1"))
        return held_by or super()._whose()

    def data_received(self, data: bytes) -> None:
        between = self._between
        ready = between and not self._held and not self.flow.write_paused
        if ready and self._head is not None and self.cycle.response_complete:
            body = self._head.body(data)
            if body is not None:
                self._known_head(self._head, body, data)
                return
        super().data_received(data)
        if between and self._between and not self._held and self._heads < MOST_HEADS:
            self._learn(data)

    def _learn(self, data: bytes) -> None:
        """From data that began and ended between two requests."""
        exchange: Any = self.cycle
        if type(exchange) is _Exchange and exchange.keep_alive:
            head = Head.of(data, exchange)
            if head is not None:
                self._head = head
                self._heads += 1

    def _known_head(self, head: Head, body: bytes, data: bytes) -> None:
        """One whole request with the head of before."""
        exchange = _Exchange(head.key, head.request_id, body, True)
        self._deadline = None
        if self._handed_over(exchange):
            self.cycle = exchange  # type: ignore[assignment]
            return
        self._refused = True
        super().data_received(data)
        self._refused = False

    def on_headers_complete(self) -> None:
        before: Any = self.cycle
        ordinary = self._refused or self.beyond
        if self.url == _PATH and (before is None or before.response_complete) and not ordinary:
            headers = dict(self.headers)
            if len(headers) == len(self.headers) and self._is_plain(headers):
                key, request_id = headers[b"x-api-key"], headers.get(b"x-request-id")
                kept = self.parser.should_keep_alive()
                self.cycle = _Exchange(key, request_id, bytearray(), kept)  # type: ignore[assignment]
                return
        super().on_headers_complete()

    def _is_plain(self, headers: dict[bytes, bytes]) -> bool:
        length = headers.get(b"content-length", b"")
        return (
            headers.get(b"content-type") == b"application/json"
            and b"x-api-key" in headers
            and b"content-encoding" not in headers
            and b"origin" not in headers
            and length.isdigit()
            and int(length) <= LARGE
            and not self.expect_100_continue
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and not self.parser.should_upgrade()
            and not self.flow.write_paused  # the endpoint waits until the client reads
            and not self._observed
            and STATE in self.app_state
        )

    def on_message_complete(self) -> None:
        exchange: Any = self.cycle
        if type(exchange) is not _Exchange or not exchange.more_body:
            super().on_message_complete()
            return
        if not self._handed_over(exchange):
            self._fall_back(exchange)
        super().on_message_complete()

    def _handed_over(self, exchange: _Exchange) -> bool:
        """Hand the event to the writer; False: it must fall back."""
        begun = perf_counter()
        context: Context = self.app_state[STATE]
        exchange.more_body = False
        self._credential, self._holder = exchange.key, None
        event = self._event(exchange, context)
        if event is None:
            return False
        try:
            context.intake.quotas.take(event.caller.key_id, len(exchange.body))
            context.writer.ingest_then(event, self.loop, partial(self._reply, exchange, context, begun))
        except (DatabaseUnavailable, OverQuota):
            return False
        self._running = exchange
        return True

    def _event(self, exchange: _Exchange, context: Context) -> Incoming | None:
        """The checked event; None when there is anything to be said against it."""
        raw = bytes(exchange.body)
        key = exchange.key
        if key != self._key:
            self._key, self._digest = key, key_digest(key.decode("latin-1"))
        caller = context.credentials.known(self._digest)
        if caller is None or len(raw) > context.settings.max_body_bytes:
            return None
        key_id = caller.key_id
        if context.intake.is_dear_event(key_id, len(raw)) or not context.intake.has_room(key_id):
            return None
        try:
            return checked(caller, raw)
        except Exception:
            # The endpoint comes to the same, and finds the words for it.
            return None

    async def _come_again(self, exchange: _Exchange, context: Context, begun: float, put_off: PutOff) -> None:
        """The event's commit had enough to do for its key."""
        try:
            event = await context.intake.evaluated_in_turn(put_off.event)
            answer = await context.intake.answer(event)
        except Exception as error:
            self._reply(exchange, context, begun, error)
        else:
            self._reply(exchange, context, begun, answer)

    def _note(self, exchange: _Exchange, context: Context, refused: EventRefused) -> None:
        """Put on record what was refused only when it was to be committed."""
        caller = context.credentials.known(key_digest(exchange.key.decode("latin-1")))
        context.refusals.note_later(caller or NOBODY, refused, f"POST {PATH}")

    def _fall_back(self, exchange: _Exchange) -> None:
        self.cycle = None  # type: ignore[assignment]
        super().on_headers_complete()
        self.cycle.body += exchange.body

    def _reply(self, exchange: _Exchange, context: Context, begun: float, result: Answer | Exception) -> None:
        """On the event loop, once the event is committed or refused."""
        if not isinstance(result, Answer):
            if isinstance(result, PutOff) and not exchange.comes_again:
                exchange.comes_again = True
                come_again = self._come_again(exchange, context, begun, result)
                # The context here may be that of any request that was committed along with this one.
                task = self.loop.create_task(come_again, context=knowing(lambda: exchange.disconnected))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                return
            if isinstance(result, EventRefused):
                self._note(exchange, context, result)
        if exchange.disconnected or self.transport.is_closing():
            return
        if exchange.request_id is None:
            request_id = context.ids("req")
        else:
            request_id = request_id_of(exchange.request_id.decode("latin-1"), context.ids)
        end = b"" if exchange.keep_alive else b"connection: close\r\n"
        if isinstance(result, Answer):
            content = result.content
            if result.replayed:
                end += b"idempotent-replay: true\r\n"
            opening = _opening(self.server_state)
            self.transport.write(
                b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n%b"
                % (opening, len(content), request_id.encode(), end, content)
            )
            metrics.answered_quickly(perf_counter() - begun)
        else:
            problem = problem_for(result, request_id, f"POST {PATH}")
            headers = [*self.server_state.default_headers, *problem.raw_headers, *SecurityHeaders.HEADERS]
            metrics.requested("POST", PATH, problem.status_code)
            head = STATUS_LINE[problem.status_code] + _lines(headers)
            self.transport.write(b"%b%b\r\n%b" % (head, end, bytes(problem.body)))
        exchange.response_started = exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()
