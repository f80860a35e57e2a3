"""What a connection may cost: trailers, half-closed clients, requests that never end, answers that nobody
reads, too many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from api.server.connections.wire import BoundedProtocol
from tests.api.hostile.test_wire import HOST, LOGIN, answers, exchange, refused
from tests.harness.application import event as event_body
from tests.harness.running_service import Served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    few = {"GOVERNANCE_REQUEST_SECONDS": "1", "GOVERNANCE_CONNECTIONS": "8"}
    with Served(tmp_path_factory.mktemp("connections"), **few) as made:
        yield made


def event(number: str, key: str) -> bytes:
    started = event_body(number, "run.started", "2026-01-01T00:00:00Z", {"runId": f"run-{number}"})
    body = json.dumps(started).encode()
    head = b"POST /v1/events HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nX-API-Key: "
    return head + key.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def connected(service: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.http.base_url.port or 0), timeout=60)


def rest_of(wire: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := wire.recv(65_536):
            received += piece
    return received


CREDENTIALS: dict[str, Callable[[Served], bytes]] = {
    "an API key": lambda service: b"X-API-Key: " + service.key()["key"].encode(),
    "a token": lambda service: b"Authorization: " + service.credentials["admin"]["Authorization"].encode(),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("offer", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"], ids=["", "upgrade"])
def test_what_follows_a_body_authenticates_nobody(service: Served, kind: str, offer: bytes) -> None:
    credential = CREDENTIALS[kind](service)
    head = b"GET /v1/runs HTTP/1.1\r\n" + HOST + offer
    assert answers(exchange(service, head + credential + b"\r\n\r\n")[0])[0][0] == 200
    sent = head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + credential + b"\r\n\r\n"
    refused(exchange(service, sent)[0], 401, "unauthenticated")


def test_a_media_type_behind_the_body_is_none(service: Served) -> None:
    head = b"POST /auth/login HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    sent = head + b"2\r\n{}\r\n0\r\nContent-Type: application/json\r\n\r\n"
    refused(exchange(service, sent)[0], 415)


def test_who_sends_no_more_gets_the_answers(service: Served) -> None:
    key = service.key()["key"]
    login = LOGIN + b"Content-Length: 2\r\n\r\n{}"
    with connected(service) as wire:
        wire.sendall(event("half-1", key) + event("half-2", key))
        wire.shutdown(socket.SHUT_WR)
        assert [answer[0] for answer in answers(rest_of(wire))] == [200, 200]
    for number, sent in enumerate((event("half-3", key), login, event("half-4", key) + b"POST /v1")):
        with connected(service) as wire:
            wire.sendall(sent)
            wire.shutdown(socket.SHUT_WR)
            assert [answer[0] for answer in answers(rest_of(wire))] == [422 if number == 1 else 200]


def test_who_sends_half_a_request_and_no_more_is_let_go(service: Served) -> None:
    def waited(sent: bytes) -> float:
        with connected(service) as wire:
            wire.sendall(sent)
            wire.shutdown(socket.SHUT_WR)
            begun = time.monotonic()
            assert rest_of(wire) == b""
            return time.monotonic() - begun

    for sent in (b"", LOGIN, LOGIN + b"Content-Length: 2\r\n\r\n{"):
        # Before its time is over; a machine that is busy may be late, not always.
        assert any(waited(sent) < 0.9 for _ in range(10))


@pytest.mark.parametrize(
    "begin", [b"GET /heal", LOGIN, LOGIN + b"Content-Length: 2\r\n\r\n{"], ids=["line", "head", "body"]
)
@pytest.mark.parametrize("drips", [False, True], ids=["silent", "dripping"])
def test_a_request_that_never_ends_is_timed_out(service: Served, begin: bytes, drips: bool) -> None:
    drop = b"" if not drips else b" " if begin.endswith(b"{") else b"X: y\r\n" if b"Host" in begin else b"a"
    body_length = b"2000" if drips else b"2"
    with connected(service) as wire:
        wire.sendall(begin.replace(b"Length: 2", b"Length: " + body_length))
        wire.settimeout(0.1)
        received, begun = b"", time.monotonic()
        while b"}" not in received and time.monotonic() - begun < 60:
            with contextlib.suppress(TimeoutError):
                received += wire.recv(65_536)
            if drop and not received:
                wire.sendall(drop)
        refused(received, 408, "request_timeout")
        assert time.monotonic() - begun > 0.9


def test_a_connection_that_says_nothing_is_closed(service: Served) -> None:
    key = service.key()["key"]
    with connected(service) as wire:
        assert rest_of(wire) == b""
    with connected(service) as wire:  # what was answered before it was complete
        wire.sendall(LOGIN + b"Content-Length: 99999999\r\n\r\n{")
        refused(rest_of(wire), 413)
    with connected(service) as wire:  # a good one is idle for longer than a request may take
        wire.sendall(event("idle-1", key))
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200")
        time.sleep(1.5)
        wire.sendall(event("idle-2", key))
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200")


def test_idle_connections_make_room(service: Served) -> None:
    wires = [connected(service) for _ in range(40)]
    try:
        for number in range(5):
            with connected(service) as wire:
                wire.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
                assert rest_of(wire).startswith(b"HTTP/1.1 200"), number
        assert sum(rest_of(wire) == b"" for wire in wires) == 40
    finally:
        for wire in wires:
            wire.close()


def test_more_connections_at_work_than_there_may_be_are_refused(service: Served) -> None:
    # Streams, long polls and clients that are waited for give way; whose event is being written does not.
    key = service.key()["key"]
    writer, gate, held = service.context.writer, threading.Event(), threading.Event()
    job = threading.Thread(target=service.write, args=(lambda transaction: held.set() or gate.wait(60),))
    wires = []
    try:
        job.start()
        assert held.wait(60)
        for number in range(8):
            wires.append(connected(service))
            wires[-1].sendall(event(f"at-work-{number}", key))
        deadline = time.monotonic() + 60
        while len(writer.arrivals) + writer._handed_over < 9 and time.monotonic() < deadline:
            time.sleep(0.02)
        received, closed = exchange(service, event("at-work-more", key))
        gate.set()
        job.join()
        refused(received, 503, "unavailable")
        assert closed
        assert all(wire.recv(65_536).startswith(b"HTTP/1.1 200") for wire in wires)
    finally:
        gate.set()
        for wire in wires:
            wire.close()


def test_requests_that_wait_for_news_leave_room(service: Served) -> None:
    """One key asks for more waits than there are connections: the oldest are answered early with the present
    state, and everybody else gets in."""
    key = service.key()["key"]
    assert answers(exchange(service, event("busy", key))[0])[0][0] == 200
    waiting = b"GET /v1/runs/run-busy?wait=240 HTTP/1.1\r\n" + HOST + b"X-API-Key: " + key.encode()
    wires = []
    try:
        for _ in range(40):
            wires.append(connected(service))
            wires[-1].sendall(waiting + b"\r\n\r\n")
            time.sleep(0.01)
        for number in range(5):
            with connected(service) as wire:
                wire.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
                assert rest_of(wire).startswith(b"HTTP/1.1 200"), number
        assert wires[0].recv(65_536).startswith(b"HTTP/1.1 200")
    finally:
        for wire in wires:
            wire.close()


LARGE = b"GET /api/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
MANY = 60
"""Large answers that the system does not keep for a client that reads none of them."""


def reading_little(address: tuple[str, int]) -> socket.socket:
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    wire.settimeout(60)
    wire.connect(address)
    return wire


def unread(service: Served) -> socket.socket:
    """A connection that asks for much and has read nothing of it."""
    wire = reading_little(("127.0.0.1", service.http.base_url.port or 0))
    wire.sendall(LARGE * MANY)
    return wire


def test_who_reads_no_answers_is_cut_off(service: Served) -> None:
    whole = len(exchange(service, LARGE)[0])
    with unread(service) as wire:
        time.sleep(3.5)
        assert 0 < len(rest_of(wire)) < whole * MANY


def test_who_reads_no_answers_makes_room(service: Served) -> None:
    with contextlib.ExitStack() as wires:
        for _ in range(8):
            wires.enter_context(unread(service))
        time.sleep(0.4)
        for number in range(5):
            with connected(service) as wire:
                wire.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
                assert rest_of(wire).startswith(b"HTTP/1.1 200"), number


def served(seconds: float, length: int, play: Callable[[socket.socket, ServerState], Any]) -> None:
    """One answer of this length, for which the system keeps next to nothing; `play` is the client's part."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % length), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * length})

    async def both() -> None:
        config = Config(answered, lifespan="off")  # type: ignore[arg-type]
        config.load()
        state = ServerState()

        def protocol() -> BoundedProtocol:
            made = BoundedProtocol(config, state, {})
            made.request_seconds = seconds
            return made

        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(protocol, sock=listener)
        with reading_little(listener.getsockname()) as wire:
            wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.to_thread(play, wire, state)
        server.close()

    asyncio.run(both())


def test_to_close_waits_for_nobody_who_does_not_read() -> None:
    def play(wire: socket.socket, state: ServerState) -> None:
        wire.recv(1)
        deadline = time.monotonic() + 60
        while state.connections:
            assert time.monotonic() < deadline, "it is still open"
            time.sleep(0.05)

    served(0.3, 50_000, play)


def test_who_reads_slowly_gets_the_whole_answer() -> None:
    def play(wire: socket.socket, state: ServerState) -> None:
        received, begun = b"", time.monotonic()
        while piece := wire.recv(16_384):
            received += piece
            time.sleep(0.02)
        assert received.endswith(b"x" * 400_000)
        assert time.monotonic() - begun > 1.2

    served(0.4, 400_000, play)
