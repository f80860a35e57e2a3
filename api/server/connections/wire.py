"""HTTP on the wire: uvicorn's protocol, with bounds on what a connection may cost, and problem documents.

The parser keeps a request's first line, headers, chunk sizes and trailers until they are complete, however
long they get. Here they get `MOST_HEAD` bytes, and neither many headers nor a long path, which would be read
on the event loop before anybody is known; whoever sends more is refused and cut off, like whoever sends
no HTTP at all. A request must arrive in time, its answer must be read, and connections are bounded. Trailers
are dropped. Of requests that come before the one in front of them is answered, a few are read, and the rest
lies there as it came: read, each would take a hundred times the room. They are begun a few at a time of all
connections, so that they stand before nobody who sends one after the other. Who stops sending after a
request still gets its answer. And a request that offers an upgrade of the protocol, as some clients always
do, keeps its body, which the parser would take for the first words of the other protocol.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api import metrics
from api.http.problems import ApiError
from api.loops import knowing
from api.server.connections.after_upgrade import parser_behind
from api.server.connections.beginnings import ADDRESSES, credential_of, kind_of
from api.server.connections.crowd import FULL, LEFT, READY
from api.server.connections.last_words import last_words
from api.server.connections.shared import Shared
from api.server.connections.small_chunks import TOGETHER, HeldFlow, is_full
from api.server.connections.unread_answer import UnreadAnswer
from api.server.connections.unsent_body import last_of_its_connection
from api.store.login_limits import network

MOST_HEAD: Final = 65_536
"""Bytes of one request that are no body, beside those that arrive together with its beginning."""
MOST_HEADERS: Final = 100
MOST_PATH: Final = 4_096
"""Bytes. The longest id of ours, of 200 characters, takes 2,400, encoded."""
CHUNK_OVERHEAD: Final = 8
"""Bytes that may frame each byte of a body sent in the smallest chunks."""
PIECE: Final = 2_048
"""Bytes that are read together at most, which end with the second head in them: what is read of many requests
is two or three, each of which takes two kilobytes and as long as thousands of bytes."""
HEAD_END: Final = b"\r\n\r\n"
OF_A_BODY: Final = 256
"""Bytes that are read together at least within a body, which may be full of what ends a head."""
STREAM: Final = "/v1/stream"
HALF_CLOSED_SECONDS: Final = 10.0
"""For the answer to a client that sends no more: it may wait for it, or be gone."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; see the module."""

    request_seconds: float = 60
    """For a request to arrive, from its first byte to the last of its body; for a client to read anything."""
    most_connections = 1_000
    """At once, of this process; the one beyond them takes the place of an idle one, or is refused."""

    flow: HeldFlow
    _spent = 0
    _between = True
    """The parser is between two requests, and has seen nothing of the next one."""
    _data = _rest = b""
    _held = b""
    """What came behind a request that waits for its turn. INVARIANT: while there is anything, nothing more is
    taken from the client but for what comes although it was told to wait."""
    _half_closed = False
    """Behind what is held the client sends no more."""
    _running: Any = None
    """The request that is worked on; `cycle` was read last."""
    _credential = b""
    """Of the request that was begun last."""
    _holder: str | None = None
    """Whose that request is, once that was asked for."""
    address = ""
    beyond = ends = False
    """See `Connection`. What the client still sends to one that ends is of no interest."""
    _deadline: float | None = None
    """When the client must have sent what is waited for; None while it waits for us."""
    _chunks = 0
    """Of a body that were read since it was the connection's turn."""
    _ends_behind_body = False
    """The answer has said that it is the last one."""

    def connection_made(self, transport: Any) -> None:
        self._unread = UnreadAnswer(transport, self.loop)
        super().connection_made(transport)
        self._shared = Shared.of(self.server_state, self.loop, self.most_connections)
        self.address = network(self.client[0]) if self.client else ""
        self.flow = HeldFlow(transport)
        # INVARIANT: writing is paused exactly as long as there are bytes that the client has no room for.
        transport.set_write_buffer_limits(high=0)
        self._wait_for_client(self.request_seconds)
        if not self._shared.crowd.lets_in(self):
            self._cut_off(ApiError("unavailable", FULL))

    def _end_a_wait(self) -> bool:
        """Have a request that waits for news answered; False when there is none."""
        return False

    @property
    def due(self) -> float | None:
        """See `Connection`."""
        unread = self._unread.due
        return self._deadline if unread is None and not self.transport.is_closing() else unread

    @property
    def holder(self) -> str | None:
        """See `Connection`."""
        if self.transport.is_closing() or self.due is not None:
            return None
        return self._last_holder()

    @property
    def is_known(self) -> bool:
        """See `Connection`."""
        return kind_of(self._last_holder()) != ADDRESSES

    def _last_holder(self) -> str:
        if self._holder is None:
            self._holder = self._whose()
        return self._holder

    def _whose(self) -> str:
        """Who sent the request that was begun last, as far as that is certain."""
        return f"{ADDRESSES} {self.address}"

    def end_behind_answer(self) -> None:
        """See `Connection`."""
        cycle = self._running or self.cycle
        cycle.keep_alive, self.ends = False, True
        if cycle.response_complete:  # and the next one was not begun
            self.transport.close()

    def make_way(self) -> None:
        """See `Connection`."""
        request = self._running or self.cycle
        if self.ends and not request.response_started:
            self.transport.write(last_words(ApiError("unavailable", FULL if self.beyond else LEFT)))
        unread = self._unread.due is not None  # to close would wait for the client to read it
        self._deadline = None  # nobody else takes its place as well
        self._unread.ends()
        if unread:
            self.transport.abort()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begins(self.request_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.ends()

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._hold(self._held + data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        """In pieces, until a request waits for its turn, or small chunks do."""
        start = self._chunks = 0
        while start < len(data):
            if self.ends or self.transport.is_closing():
                return
            if self.pipeline or self._chunks > TOGETHER:
                self._hold(data[start:])
                if not self.pipeline:
                    self._shared.more_data.join(self._read_on)
                return
            end = start + PIECE
            first = data.find(HEAD_END, start, end)
            least = start + OF_A_BODY if self.cycle is not None and self.cycle.more_body else start
            second = data.find(HEAD_END, max(first + len(HEAD_END), least), end) if first >= 0 else -1
            if second >= 0:
                end = second + len(HEAD_END)
            self._read_piece(data[start:end])
            start = end

    def _hold(self, data: bytes) -> None:
        self._held, self.flow.holds = data, not self.pipeline
        self.flow.pause_reading()

    def _read_on(self) -> None:
        """A request that waited for its turn has got it."""
        held, self._held, self.flow.holds = self._held, b"", False
        if self.pipeline:
            self._hold(held)
        elif held:
            self._read(held)
        if not (self.pipeline or self.transport.is_closing() or is_full(self.cycle.body)):
            self.flow.resume_reading()
        if self._half_closed and not self._held and not self.eof_received():
            self.transport.close()

    def _read_piece(self, data: bytes) -> None:
        between, self._between = self._between, False
        if not between:
            self._spent += len(data)
        self._rest = data
        while self._rest:
            self._data, self._rest = self._rest, b""
            super().data_received(self._data)
        self._data = b""  # an idle connection keeps nothing of what it was sent
        if self._spent > MOST_HEAD and not self.transport.is_closing():
            error = ApiError("invalid_request", f"a request may have at most {MOST_HEAD} bytes of headers")
            self._cut_off(error)

    def on_message_begin(self) -> None:
        self._spent, self._between = 0, False
        self._wait_for_client(self.request_seconds)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MOST_PATH and len(self.url.partition(b"?")[0]) > MOST_PATH:
            raise ApiError("not_found", f"no path of ours has more than {MOST_PATH} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ApiError("invalid_request", f"a request may have at most {MOST_HEADERS} headers")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # INVARIANT: what the parser finds behind the body (trailers) never reaches the headers of a request.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._chunks += 1
        self._spent = max(self._spent - len(body) * (1 + CHUNK_OVERHEAD), -MOST_HEAD)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body is still to come, see below
        self._spent, self._between = 0, True
        self._deadline = None
        if self.cycle.response_complete:  # before it was complete
            self.cycle.more_body = False
            self._wait_for_client(self.timeout_keep_alive)
            if self._ends_behind_body:
                self.transport.close()
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. True: it still gets the answer to its last request, and then the end."""
        running = self._running
        if running is not None and running.response_started and running.scope["path"] == STREAM:
            return False  # it never ends, so nobody waits for the end of it
        self._half_closed = bool(self._held)
        if self._half_closed:
            return True
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.transport.is_closing():
            return False
        cycle.keep_alive = False
        self._wait_for_client(HALF_CLOSED_SECONDS)
        return True

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        self._credential = credential_of(cycle.scope["headers"])
        holder = self._holder = self._whose()
        start = super()._start_asgi_task
        if cycle.waiting_for_100_continue:
            app = last_of_its_connection(cycle, app, self._end_behind_body)
        if self.beyond:
            self.ends = not self._shared.crowd.takes_place(self, holder, self._end_a_wait)
            if self.ends and cycle.scope["path"] != READY:
                metrics.requested("", "", 503)
                self.make_way()
                return
            self.beyond = False
            if self.ends:
                self._shared.crowd.ends(self)
                cycle.keep_alive = False
                start(cycle, app)  # in no queue, which keeps others out
                return
        context = knowing(lambda: cycle.disconnected)
        self._shared.beginnings.add(holder, self, lambda: context.run(start, cycle, app))

    def _end_behind_body(self) -> None:
        self._ends_behind_body = True

    # One timer watches over a connection for all of its requests, instead of a new one for each.

    def _unset_keepalive_if_required(self) -> None:
        """Each piece of a request must not win it more time, so nothing happens here."""

    def on_response_complete(self) -> None:
        self._running = None
        if self.transport.is_closing():
            super().on_response_complete()
            return
        if self.pipeline:
            self._shared.next_requests.join(self.begin_next)
            return
        self.server_state.total_requests += 1
        self.cycle.body = bytearray()  # nobody reads any more what came of it
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._between:
            self._wait_for_client(self.timeout_keep_alive)

    def begin_next(self) -> None:
        """The request behind the one that was answered last."""
        super().on_response_complete()
        if not self.transport.is_closing():
            if not self._between:
                self._wait_for_client(self.request_seconds)  # it was not read while it stood in the queue
            self._read_on()

    def _wait_for_client(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self.timeout_keep_alive_task is None:
            self._watch(seconds)

    def _watch(self, seconds: float) -> None:
        # The next deadline may be sooner than this one, and does not set the timer again.
        seconds = min(seconds, self.request_seconds, self.timeout_keep_alive, HALF_CLOSED_SECONDS)
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._deadline is None:
            return  # the next deadline sets the timer again
        left = self._deadline - self.loop.time()
        if left > 0:
            self._watch(left)
        elif (self.flow.read_paused or self._held) and (self._between or not self.cycle.response_complete):
            self._wait_for_client(self.request_seconds)  # it is us who do not read, of what is of interest
        elif self._between:
            super().timeout_keep_alive_handler()
        else:
            seconds = f"{self.request_seconds:g} seconds"
            self._cut_off(ApiError("request_timeout", f"the request did not arrive within {seconds}"))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._shared.crowd.lost(self)
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
            self._shared.beginnings.leave(self._holder or "", self)
        self._unread.ends()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        # INVARIANT: nothing that it has refers to it, so that it goes at once. The collector would take some
        # tenths of a second for a thousand of them, in which nobody is served.
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if isinstance(cycle, RequestResponseCycle):
                cycle.on_response = lambda: None

    def _unsupported_upgrade_warning(self) -> None:
        """The parser has stopped behind the head of a request that offers an upgrade: a new one goes on."""
        stopped = sys.exc_info()[1]
        self._rest = self._data[int(stopped.args[0]) :] if stopped is not None else b""
        self.parser, head = parser_behind(self, self.scope["headers"])
        self.parser.feed_data(head)

    def send_400_response(self, msg: str) -> None:
        stopped = sys.exc_info()[1]  # by the parser, or within it by us
        ours = stopped.__context__ if stopped is not None else None
        if not isinstance(ours, ApiError):
            ours = ApiError("invalid_request", "this is no HTTP request that can be read")
        self._cut_off(ours)

    def _cut_off(self, error: ApiError) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive, self.ends = False, True  # the request before is answered first
            self._deadline = None
            return
        # While an earlier request of the connection waits for its answer, ours would be taken for it.
        own = cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline
        if cycle is None or own or (cycle.response_complete and not cycle.more_body):
            metrics.requested("", "", error.status)
            self.transport.write(last_words(error))
        if own:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
