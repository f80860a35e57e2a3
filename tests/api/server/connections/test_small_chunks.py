"""A body in very small chunks is read some at a time, the connections taking turns at it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from api.server.connections.beginnings import BEGUN_TOGETHER
from api.server.connections.small_chunks import TOGETHER
from api.server.connections.wire import PIECE
from tests.harness.event_connection import FIRST, Connection, Service

HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST_READ = 6 * TOGETHER + PIECE + len(HEAD)
"""Bytes that are read together, where six bring one."""


async def echo(scope: Any, receive: Any, send: Any) -> None:
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def in_chunks(text: bytes, size: int = 1) -> bytes:
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def until_answered(connection: Connection, text: bytes, rounds: int = 3_000) -> None:
    for _ in range(rounds):
        if connection.wire.written.endswith(b"\r\n\r\n" + text):
            return
        await asyncio.sleep(0)
    raise AssertionError(connection.wire.written[:300])


@pytest.mark.parametrize("pieces", [1, 5], ids=["at once", "although the client is told to wait"])
async def test_some_of_many_chunks_are_read_and_the_rest_follows(pieces: int) -> None:
    connection = Connection(Service(), app=echo, state={})
    text = b"0123456789" * 1_000
    sent = in_chunks(text)
    size = -(-len(sent) // pieces)
    connection.protocol.data_received(sent[:size])
    assert sum(map(len, connection.parsed)) <= MOST_READ and connection.wire.paused
    for start in range(size, len(sent), size):
        await asyncio.sleep(0)
        connection.protocol.data_received(sent[start : start + size])
    await until_answered(connection, text)
    assert not connection.wire.paused and not connection.protocol._held
    connection.wire.written = b""
    connection.protocol.data_received(in_chunks(b"again"))
    await until_answered(connection, b"again")


async def test_nothing_more_is_taken_while_chunks_are_held() -> None:
    """Whoever reads the body asks for more of it after each piece; what comes then would lie here."""
    connection = Connection(Service(), app=echo, state={})
    connection.protocol.data_received(in_chunks(b"x" * 20_000))
    for _ in range(10):
        await asyncio.sleep(0)
        assert connection.protocol._held and connection.wire.paused
    await until_answered(connection, b"x" * 20_000)


async def test_a_body_that_nobody_reads_is_not_taken_in_further() -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    connection = Connection(Service(), app=waits, state={})
    size = 2 * HIGH_WATER_LIMIT
    connection.protocol.data_received(in_chunks(b"x" * size)[:-5])
    while connection.protocol._held:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
        assert connection.wire.paused and len(connection.protocol.cycle.body) == size


async def test_who_was_not_read_has_its_time_once_it_is() -> None:
    goes_on, loop = asyncio.Event(), asyncio.get_running_loop()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await goes_on.wait()
        await echo(scope, receive, send)

    connection = Connection(Service(), app=slow, state={})
    text = b"x" * 2 * HIGH_WATER_LIMIT
    sent = in_chunks(text, 1_000)
    connection.protocol.data_received(sent[:-5])
    assert connection.wire.paused
    connection.protocol._deadline = loop.time() - 1
    connection.protocol.timeout_keep_alive_handler()
    goes_on.set()
    await connection.rest(5)
    assert not connection.wire.paused
    connection.protocol.timeout_keep_alive_handler()
    connection.protocol.data_received(sent[-5:])
    await until_answered(connection, text)


async def test_connections_take_turns_and_who_sends_little_waits_for_none() -> None:
    service = Service()
    many = [Connection(service, app=echo, state={}) for _ in range(50)]
    for each in many:
        each.protocol.data_received(in_chunks(b"y" * 20_000))
    read, rounds, one = _read(many), 0, Connection(service)
    one.protocol.data_received(FIRST)
    while b" 200 " not in one.wire.written:
        await asyncio.sleep(0)
        rounds += 1
    assert rounds < 10
    assert _read(many) - read <= BEGUN_TOGETHER * MOST_READ * rounds, "a few of all connections in each"
    for each in many:
        await until_answered(each, b"y" * 20_000, 10_000)


def _read(connections: Sequence[Connection]) -> int:
    return sum(sum(map(len, each.parsed)) for each in connections)


async def test_what_comes_behind_chunks_that_are_held_is_read_behind_them() -> None:
    service = Service()
    connection = Connection(service)
    await connection.send(FIRST)  # its head is known from now on
    connection.wire.written = b""
    refused = FIRST.partition(b"\r\n")[0] + b"\r\n" + HEAD.partition(b"\r\n")[2][:-2]
    refused += b"Content-Type: application/json\r\nX-API-Key: unknown\r\n\r\n"
    connection.protocol.data_received(refused + in_chunks(b" " * 5_000)[len(HEAD) :])
    assert connection.protocol._held
    connection.protocol.data_received(FIRST)
    for _ in range(2_000):
        await asyncio.sleep(0)
    first, second = connection.wire.written.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"401") and second.startswith(b"200")


@pytest.mark.parametrize("ending", ["half closes", "is lost"])
async def test_a_client_that_ends_while_its_chunks_are_held(ending: str) -> None:
    connection = Connection(Service(), app=echo, state={})
    text = b"z" * 5_000
    connection.protocol.data_received(in_chunks(text))
    if ending == "half closes":
        assert connection.protocol.eof_received() is True
        await until_answered(connection, text)
        assert connection.wire.closing
    else:
        connection.wire.close()
        connection.protocol.connection_lost(None)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not connection.protocol._held and connection.wire.written == b""


async def test_a_body_without_end_is_cut_off_in_time_once_it_is_answered() -> None:
    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    for is_answered in (False, True):
        connection = Connection(Service(), app=refuses, state={})
        connection.protocol.data_received(in_chunks(b"x" * 20_000)[:-5])
        for _ in range(5 * is_answered):
            await asyncio.sleep(0)
        assert connection.protocol._held and (b" 401 " in connection.wire.written) is is_answered
        connection.protocol._deadline = asyncio.get_running_loop().time() - 1
        connection.protocol.timeout_keep_alive_handler()
        assert connection.wire.closing is is_answered
        connection.wire.close()
        connection.protocol.connection_lost(None)


async def test_larger_chunks_are_read_as_they_come() -> None:
    connection = Connection(Service(), app=echo, state={})
    text = b"t" * 200_000
    sent = in_chunks(text, 1_000)
    connection.protocol.data_received(sent)
    assert sum(map(len, connection.parsed)) == len(sent)
    await until_answered(connection, text)
