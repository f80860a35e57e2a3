"""Requests that come before the one in front of them is answered: a few are read, the rest lies there as it
came, and each gets its answer in its turn."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from typing import Any

import pytest
from uvicorn.server import ServerState

from api.server.connections.beginnings import BEGUN_TOGETHER
from api.server.connections.wire import HEAD_END, OF_A_BODY, PIECE
from tests.harness.event_connection import FIRST, Connection, Service, body, request

MANY = 3_000


def asked(numbers: Sequence[int]) -> bytes:
    return b"".join(b"GET / HTTP/1.1\r\nn: %d\r\n\r\n" % number for number in numbers)


def numbers_in(answers: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb"\nn: (\d+)\n", answers)]


async def until_answered(connection: Connection, count: int) -> int:
    """How many requests waited for their turn at most."""
    most = 0
    for _ in range(200 * count):
        most = max(most, len(connection.protocol.pipeline))
        if connection.wire.written.count(b"HTTP/1.1 ") == count:
            return most
        await asyncio.sleep(0)
    raise AssertionError(f"{connection.wire.written.count(b'HTTP/1.1 ')} answers of {count}")


@pytest.mark.parametrize("pieces", [1, 7], ids=["at once", "although the client is told to wait"])
async def test_few_of_many_are_read_and_all_are_answered_in_order(pieces: int) -> None:
    service = Service()
    connection = Connection(service)
    service.holds = True
    sent, size = FIRST + asked(range(MANY)), -(-len(FIRST + asked(range(MANY))) // pieces)
    for start in range(0, len(sent), size):
        connection.protocol.data_received(sent[start : start + size])
    assert connection.wire.paused and connection.wire.written == b""
    assert len(connection.protocol.pipeline) <= 2
    assert sum(map(len, connection.parsed)) <= len(FIRST) + 2 * PIECE
    service.held.pop()()
    assert await until_answered(connection, 1 + MANY) <= 2
    assert numbers_in(connection.wire.written) == list(range(MANY))
    assert not connection.wire.paused


async def test_a_few_of_all_connections_are_begun_at_a_time() -> None:
    """So that whoever sends one request after the other is answered between those that were sent ahead."""
    service = Service()
    server = ServerState()
    connections = [Connection(service, server=server) for _ in range(40)]
    for connection in connections:
        connection.protocol.data_received(asked(range(10)))
    begun, ahead = [0], 9 * len(connections)
    while begun[-1] < 10 * len(connections):
        await asyncio.sleep(0)
        begun.append(sum(each.wire.written.count(b"HTTP/1.1 ") for each in connections))
        assert len(begun) < 10 * ahead, "they come to an end"
    together = [after - before for before, after in itertools.pairwise(begun)]
    assert sorted(together)[-2] <= BEGUN_TOGETHER, "the most are those in front, of all connections"
    for connection in connections:
        assert numbers_in(connection.wire.written) == list(range(10))


async def test_bodies_behind_others_arrive_whole() -> None:
    sizes = (0, 10, PIECE - 1, PIECE, 3 * PIECE, 60_000, 1)
    bodies = [body(number, text="x" * size) for number, size in enumerate(sizes)]
    service = Service()
    connection = Connection(service)
    service.holds = True
    connection.protocol.data_received(b"".join(map(request, bodies)))
    for count in range(len(bodies)):
        for _ in range(1_000):
            if service.held:
                break
            await asyncio.sleep(0)
        assert len(service.held) == 1, "one after the other"
        service.held.pop()()
        await until_answered(connection, count + 1)
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers(connection)] == bodies
    assert await connection.send(FIRST) == b""  # and the connection goes on
    service.held.pop()()
    await until_answered(connection, len(bodies) + 1)


@pytest.mark.parametrize("framing", ["a length", "chunks"])
async def test_a_body_full_of_what_ends_a_head_is_read_in_few_pieces(framing: str) -> None:
    service = Service()
    connection, text = Connection(service), HEAD_END * 10_000
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(text)
    if framing == "chunks":
        head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        text = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
    connection.protocol.data_received(head)
    connection.parsed.clear()
    connection.protocol.data_received(text)
    assert sum(map(len, connection.parsed)) == len(text)
    assert len(connection.parsed) <= len(text) // OF_A_BODY + 1
    await until_answered(connection, 1)


def answers(connection: Connection) -> list[bytes]:
    return [b"HTTP/1.1 " + answer for answer in connection.wire.written.split(b"HTTP/1.1 ")[1:]]


async def test_who_sends_no_more_behind_many_gets_all_answers() -> None:
    service = Service()
    connection = Connection(service)
    service.holds = True
    connection.protocol.data_received(FIRST + asked(range(MANY)))
    assert connection.protocol.eof_received() is True
    service.held.pop()()
    await until_answered(connection, 1 + MANY)
    assert numbers_in(connection.wire.written) == list(range(MANY))
    assert connection.wire.closing


async def test_what_is_no_http_behind_many_ends_the_connection_after_their_answers() -> None:
    service = Service()
    connection = Connection(service)
    service.holds = True
    connection.protocol.data_received(FIRST + asked(range(MANY)) + b"\0nonsense\r\n\r\n")
    service.held.pop()()
    await until_answered(connection, 1 + MANY)
    for _ in range(100):
        await asyncio.sleep(0)
    assert numbers_in(connection.wire.written) == list(range(MANY)) and connection.wire.closing


async def test_nothing_of_a_request_is_kept_once_it_is_answered() -> None:
    service = Service()
    connection = Connection(service)
    refused = request(body(1, text="x" * 200_000))
    assert b" 413 " in await connection.send(refused[:150_000])
    assert not connection.protocol.cycle.body and not connection.protocol._data


@pytest.mark.parametrize("behind", [b"", asked([1]), asked(range(MANY))], ids=["alone", "one", "many"])
@pytest.mark.parametrize("ending", ["is lost", "half closes"])
async def test_a_stream_ends_with_its_connection_whatever_was_sent_behind_it(
    behind: bytes, ending: str
) -> None:
    ended = False

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        nonlocal ended
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        ended = True

    service = Service()
    connection = Connection(service, app=stream, state={})
    await connection.send(b"GET /v1/stream HTTP/1.1\r\n\r\n" + behind)
    if ending == "half closes":
        assert connection.protocol.eof_received() is False, "nobody waits for the end of it"
    connection.wire.close()
    connection.protocol.connection_lost(None)
    await connection.rest()
    assert ended


async def test_what_is_kept_here_is_not_waited_for() -> None:
    """Whoever works on a request may ask for more of it, and so goes on to read from the client."""
    goes_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await receive()
            listening = asyncio.ensure_future(receive())
            await goes_on.wait()
            listening.cancel()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    service = Service()
    connection = Connection(service, app=slow, state={})
    await connection.send(b"GET /slow HTTP/1.1\r\n\r\n" + asked(range(MANY)))
    assert connection.protocol._held and not connection.wire.paused
    connection.protocol._deadline = 0.0
    connection.protocol.timeout_keep_alive_handler()
    assert not connection.wire.closing
    goes_on.set()
    await until_answered(connection, 1 + MANY)
