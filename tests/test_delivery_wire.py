"""What comes back on a connection, byte for byte: receivers that answer in every odd way that HTTP allows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from api.delivery import address, wire
from api.delivery.dial import Answer, Sender

T = TypeVar("T")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[int, int], Sequence[bytes | None]]
"""Number of the connection and of the request on it -> what to send, piece by piece; None ends it."""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


async def resolve(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


class Wire:
    """A server that follows a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0
        self.requests: list[bytes] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection, number = self.connections, 0
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                number += 1
                self.requests.append(head + await reader.readexactly(length))
                for piece in self._script(connection, number):
                    if piece is None:
                        writer.close()
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)

    async def posts(self, count: int, path: str = "/hook?a=b", seconds: float = 5) -> list[Answer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        sender = Sender(resolve, address.places([place]), seconds=seconds)
        try:
            found = []
            for number in range(count):
                body = b'{"number":%d}' % number
                found.append(await sender.post(f"http://{place}{path}", {"webhook-id": "dlv_1"}, body))
                await asyncio.sleep(0.05)
            return found
        finally:
            await sender.close()
            server.close()


def posts(script: Script, count: int = 1, **options: Any) -> tuple[Wire, list[Answer]]:
    async def work() -> tuple[Wire, list[Answer]]:
        server = Wire(script)
        return server, await server.posts(count, **options)

    return run(work())


def one(*pieces: bytes | None, **options: Any) -> Answer:
    return posts(lambda _connection, _number: pieces, **options)[1][0]


def test_a_request_is_what_http_says() -> None:
    server, _ = posts(lambda *_: [OK])
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /hook?a=b HTTP/1.1"
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert b"Content-Length: 12" in lines and b"webhook-id: dlv_1" in lines
    assert body == b'{"number":0}'


def test_a_connection_is_kept_for_the_next_delivery() -> None:
    server, answers = posts(lambda *_: [OK], 5)
    assert [answer.status for answer in answers] == [200] * 5
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", None],
        [b"HTTP/1.0 200 OK\r\n\r\nok", None],
        [b"HTTP/1.1 200 OK\r\n\r\nok", None],
    ],
)
def test_a_connection_that_says_so_is_not_kept(answer: list[bytes | None]) -> None:
    server, answers = posts(lambda *_: answer, 2)
    assert [(answer.status, answer.body, answer.error) for answer in answers] == [(200, "ok", None)] * 2
    assert server.connections == 2


def test_a_kept_connection_that_ended_under_us_is_dialled_anew() -> None:
    """The receiver closes it at the very moment of the second request, which is no failure."""
    server, answers = posts(lambda connection, number: [OK] if number == 1 else [None], 3)
    assert [answer.status for answer in answers] == [200] * 3
    assert server.connections == 3 and len(server.requests) == 5


def test_a_fresh_connection_that_ends_is_a_failure() -> None:
    server, answers = posts(lambda *_: [None])
    assert answers[0].status is None and server.connections == 1
    assert answers[0].error == "the answer is not HTTP, or broke off"


def test_an_answer_in_pieces_is_read_whole() -> None:
    assert one(*(bytes([byte]) for byte in OK)).body == "ok"
    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nTrailer: 1\r\n\r\n"
    answer = one(chunked[:60], chunked[60:])
    assert (answer.status, answer.body, answer.error) == (201, "ok", None)


def test_interim_answers_are_passed_over() -> None:
    answer = one(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK)
    assert (answer.status, answer.body) == (200, "ok")


def test_the_first_of_two_answers_counts_and_ends_the_connection() -> None:
    bad = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
    server, answers = posts(lambda *_: [bad + OK], 2)
    assert [answer.status for answer in answers] == [500, 500]
    assert server.connections == 2
    server, answers = posts(lambda *_: [OK + b"garbage"], 2)
    assert [answer.status for answer in answers] == [200, 200] and server.connections == 2
    server, answers = posts(lambda *_: [OK, b"late garbage"], 2)
    assert [answer.status for answer in answers] == [200, 200] and server.connections == 2


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n", None),
        (b"HTTP/1.1 100 Go\r\n", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", 200),
    ],
)
def test_an_answer_without_end_is_cut_off(start: bytes, status: int | None) -> None:
    answer = one(start, *[b"X-Header: " + b"x" * 8_000 + b"\r\n"] * 100, seconds=3)
    assert answer.duration_ms < 2_500
    assert answer.status == status
    if status is None:
        assert answer.error in ("the answer has no end", "the answer is not HTTP, or broke off")


def test_an_upgrade_is_no_answer() -> None:
    answer = one(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n")
    assert answer.status is None and answer.error == "the answer is not HTTP, or broke off"


def test_half_an_answer_counts_by_its_status() -> None:
    answer = one(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", None)
    assert answer.acknowledged and answer.body == "half"
    assert one(b"HTTP/1.1 200 OK\r\nContent-Len", None).status is None


@pytest.mark.parametrize("target", ["/a b", "/a\nX: 1", "/\x7f", "/ä"])
def test_nothing_can_begin_a_line_of_its_own(target: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        wire.request(target, "a.example", {}, b"")
    with pytest.raises(ValueError, match="cannot be sent"):
        wire.request("/", "a.example", {"x": target + "\r\n"}, b"")
