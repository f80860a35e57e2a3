"""Noise on the wire: what the web server itself must refuse, over a real socket to a real server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from api.http import bodies
from api.server.connections.wire import MOST_HEAD, MOST_HEADERS, MOST_PATH, BoundedProtocol
from api.server.endpoint import PROBLEM
from tests.harness.running_service import Served

HOST = b"Host: service.example\r\n"
LOGIN = b"POST /auth/login HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = LOGIN + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /v1/me HTTP/1.1\r\n" + HOST
EVENT = (
    b"POST /v1/events HTTP/1.1\r\n"
    + HOST
    + b"Content-Type: application/json\r\nX-API-Key: k\r\nContent-Length: 0\r\n"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("wire")) as made:
        yield made


def exchange(service: Served, *pieces: bytes, seconds: float = 5) -> tuple[bytes, bool]:
    """All that comes back until the server closes or falls silent; whether it closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", service.http.base_url.port or 0), timeout=seconds) as wire:
        try:
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(0.02)
                wire.sendall(piece)
        except OSError:
            pass  # it has hung up before the end; what it said is read below
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wire.settimeout(0.3 if received else seconds)
            try:
                piece = wire.recv(65_536)
            except TimeoutError:
                return received, False
            except ConnectionError:
                return received, True
            if not piece:
                return received, True
            received += piece
    return received, False


def answers(received: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """The answers in a stream of bytes, each complete."""
    found = []
    while received:
        head, blank, received = received.partition(b"\r\n\r\n")
        assert blank, head
        first, *lines = head.split(b"\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
        length = int(headers[b"content-length"])
        found.append((int(first.split()[1]), headers, received[:length]))
        assert len(received) >= length
        received = received[length:]
    return found


def refused(received: bytes, status: int, code: str = "") -> None:
    (answer,) = answers(received)
    assert answer[0] == status, received[:500]
    assert answer[1][b"content-type"] == PROBLEM.encode()
    document = json.loads(answer[2])
    bodies.validate("problem", document)
    assert document["status"] == status
    assert not code or document["code"] == code


NOISE = {
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "the HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "a method nobody knows": b"BREW /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT a.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /v1/a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "UTF-8 in the path": "GET /v1/ü HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "a NUL in a header": GET + b"X: a\0b\r\n\r\n",
    "a folded header": GET + b"X: a\r\n b\r\n\r\n",
    "a header without a colon": GET + b"nonsense\r\n\r\n",
    "a blank in a header's name": GET + b"X : a\r\n\r\n",
    "bare line feeds": b"GET /v1/me HTTP/1.1\nHost: a\n\n",
    "length and chunks": LOGIN + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": LOGIN + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "a negative length": LOGIN + b"Content-Length: -2\r\n\r\n{}",
    "a length with a sign": LOGIN + b"Content-Length: +2\r\n\r\n{}",
    "a length in hex": LOGIN + b"Content-Length: 0x2\r\n\r\n{}",
    "a length of 100 digits": LOGIN + b"Content-Length: " + b"9" * 100 + b"\r\n\r\n{}",
    "an unknown encoding": LOGIN + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked, but not last": LOGIN + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond all bounds": CHUNKED + b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", NOISE)
def test_noise_is_answered_once_and_cut_off(service: Served, kind: str) -> None:
    received, closed = exchange(service, NOISE[kind])
    assert closed
    refused(received, 400, "invalid_request")


def many(line: bytes, times: int = 40) -> Sequence[bytes]:
    return [line] * times


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /", *many(b"a" * MOST_HEAD)],
        [GET, *many(b"X: " + b"a" * 8_000 + b"\r\n")],
        [GET, b"X: ", *many(b"a" * MOST_HEAD)],
        [GET, *many(b"X: a\r\n" * 4_000)],
        [CHUNKED, b"2\r\n[]\r\n0\r\n", *many(b"X: " + b"a" * 8_000 + b"\r\n")],
        [CHUNKED, b"2;", *many(b"a" * MOST_HEAD)],
    ],
    ids=["path", "headers", "one header", "many headers", "trailers", "chunk extension"],
)
def test_heads_without_end_are_cut_off(service: Served, pieces: Sequence[bytes]) -> None:
    received, closed = exchange(service, *pieces)
    assert closed
    if received:  # the answer is lost when the sender is in the middle of sending
        is_path = pieces[0] == b"GET /"
        refused(received, *((404, "not_found") if is_path else (400, "invalid_request")))


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /v1/runs/%b HTTP/1.1\r\n" % (b"%41" * 1_400), 404, "not_found"),
        (GET + b"X:\r\n" * MOST_HEADERS, 400, "invalid_request"),
        (EVENT + b"X:\r\n" * MOST_HEADERS, 400, "invalid_request"),
        (GET + b"X:\r\n" * 14_000, 400, "invalid_request"),
    ],
    ids=["path", "headers", "of the fast path", "very many headers"],
)
def test_many_headers_and_long_paths_are_refused(
    service: Served, head: bytes, status: int, code: str
) -> None:
    """They are read on the event loop, before anybody is known."""
    received, closed = exchange(service, head + b"\r\n")
    assert closed
    if len(head) < MOST_HEAD or received:  # a larger one may be in the middle of being sent
        refused(received, status, code)
        assert str(MOST_HEADERS if status == 400 else MOST_PATH).encode() in received


def test_the_longest_ids_and_many_headers_are_read(service: Served) -> None:
    path = quote("\U0001f9ff" * 300).encode()
    received, _ = exchange(service, b"GET /v1/runs/%b HTTP/1.1\r\nHost: h\r\n\r\n" % path)
    refused(received, 401)
    spare = MOST_HEADERS - GET.count(b"\r\n") + 1
    refused(exchange(service, GET + b"X:\r\n" * spare + b"\r\n")[0], 401)
    long_query = b"GET /v1/runs?cursor=%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"a" * 30_000)
    refused(exchange(service, long_query)[0], 401)


def test_usual_heads_are_read(service: Served) -> None:
    received, _ = exchange(service, GET + b"X: " + b"a" * 30_000 + b"\r\n\r\n")
    refused(received, 401)
    pieces = [GET + b"X: " + b"a" * 30_000, b"\r\n\r\n"]
    refused(exchange(service, *pieces)[0], 401)


def test_two_megabytes_are_too_much(service: Served) -> None:
    body = b'{"email":"' + b"a" * 2_000_000 + b'"}'
    refused(exchange(service, LOGIN + b"Content-Length: %d\r\n\r\n" % len(body) + body)[0], 413)
    refused(exchange(service, CHUNKED + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")[0], 413)
    # Said to be too large: refused before it is sent.
    refused(exchange(service, LOGIN + b"Content-Length: 99999999999999\r\n\r\n")[0], 413)
    waits = LOGIN + b"Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n"
    refused(exchange(service, waits)[0], 413)


def test_a_connection_is_good_after_a_refusal(service: Served) -> None:
    body = b"x" * 1_500_000
    large = LOGIN + b"Content-Length: %d\r\n\r\n" % len(body) + body
    received, _ = exchange(service, large, GET + b"\r\n")
    assert [answer[0] for answer in answers(received)] == [413, 401]


def test_the_smallest_chunks_are_read(service: Served) -> None:
    body = b'{"email": "a@b.example", "password": "%b"}' % (b"x" * 1_000)
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    refused(exchange(service, CHUNKED + pieces + b"0\r\n\r\n")[0], 401)
    spread = [CHUNKED, *(b"1;x=%b\r\n%c\r\n" % (b"y" * 3, byte) for byte in b'{"a":1}'), b"0\r\nX: y\r\n\r\n"]
    refused(exchange(service, *spread)[0], 422)


def test_five_hundred_requests_at_once_are_answered_in_order(service: Served) -> None:
    requests = [
        b"GET /%d HTTP/1.1\r\n" % number + HOST + b"X-Request-Id: r%d\r\n\r\n" % number
        for number in range(500)
    ]
    received, _ = exchange(service, b"".join(requests))
    ids = [answer[1][b"x-request-id"] for answer in answers(received)]
    assert ids == [b"r%d" % number for number in range(500)]


def test_noise_behind_a_request_is_never_taken_for_its_answer(service: Served) -> None:
    key = service.key()["key"].encode()
    body = b'{"eventId":"e","runId":"r","agentId":"a","timestamp":"2026-01-01T00:00:00Z",'
    body += b'"eventType":"run.started"}'
    event = b"POST /v1/events HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nX-API-Key: " + key
    event += b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for sent in ([event + b"\x00\x01nonsense\r\n\r\n"], [event + b"junk", b"more junk"]):
        received, closed = exchange(service, *sent)
        assert closed
        ((status, _, content),) = answers(received)
        assert status == 200 and json.loads(content)["eventId"] == "e"
    received, closed = exchange(service, GET + b"\r\n" + event + GET + b"\r\n" + b"\x00junk")
    assert closed
    assert [answer[0] for answer in answers(received)] == [401, 200, 401]


def test_upgrades_are_not_made(service: Served) -> None:
    websocket = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
    refused(exchange(service, GET + websocket)[0], 401)
    # Some clients offer HTTP/2 with every request; its body is a body all the same.
    offer = LOGIN + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    whole = offer + b"Content-Length: 7\r\n\r\n" + b'{"a":1}'
    chunked = offer + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    for sent in ([whole], [whole[:-3], whole[-3:]], [chunked], [chunked[:-12], chunked[-12:]]):
        refused(exchange(service, *sent)[0], 422)
    received, _ = exchange(service, whole + GET + b"\r\n" + chunked + whole + GET + b"\r\n" + whole * 300)
    assert [answer[0] for answer in answers(received)] == [422, 401, 422, 422, 401, *[422] * 300]
    large = offer + b"Content-Length: 2000000\r\n\r\n" + b"x" * 2_000_000 + GET + b"\r\n"
    assert [answer[0] for answer in answers(exchange(service, large)[0])] == [413, 401]


def test_answers_cannot_be_split(service: Served) -> None:
    target = b"/v1/%0d%0aSet-Cookie:%20a=b%0d%0a%0d%0aHTTP/1.1%20200%20OK"
    headers = b"X-Request-Id: a%0d%0ab\r\n"
    received, _ = exchange(service, b"GET " + target + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n")
    refused(received, 404)
    assert b"set-cookie" not in answers(received)[0][1]


def test_half_requests_leave_nothing_behind(service: Served) -> None:
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", service.http.base_url.port or 0)) as wire:
            wire.sendall(LOGIN + b"Content-Length: 1000\r\n\r\n{")
    assert service.call("nobody", "GET", "/health").json()["status"] == "ok"


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def answered(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.4)  # longer than a connection may be idle
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = Config(answered, http=BoundedProtocol, lifespan="off", timeout_keep_alive=0.2)  # type: ignore[arg-type]
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for _ in range(3):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 204")
    assert await asyncio.wait_for(reader.read(), 20) == b"", "it was not closed"
    assert state.total_requests == 3
    writer.close()
    server.close()
