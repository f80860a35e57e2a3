"""A connection on which a body was not asked for is not used again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.harness.event_connection import Connection, Service

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n"


async def refuses(scope: Any, receive: Any, send: Any) -> None:
    """Without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def reads(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await refuses(scope, receive, send)


async def answered(connection: Connection) -> bytes:
    for _ in range(100):
        if connection.wire.written.endswith(b"\r\n\r\nno"):
            break
        await asyncio.sleep(0)
    return connection.wire.written


async def test_an_answer_before_the_body_is_the_last_one() -> None:
    connection = Connection(Service(), app=refuses, state={})
    connection.protocol.data_received(HEAD)
    written = await answered(connection)
    assert written.startswith(b"HTTP/1.1 401 ") and b"\r\nconnection: close\r\n" in written
    # What comes all the same is read, since who is cut off while it sends may lose the answer.
    connection.protocol.data_received(b" " * 1_999)
    assert not connection.wire.closing
    connection.protocol.data_received(b" " + NEXT)
    await asyncio.sleep(0.01)
    assert connection.wire.closing and connection.wire.written == written


@pytest.mark.parametrize("behind", [b"", b" " * 2_000], ids=["asked for", "sent unasked"])
async def test_a_connection_whose_body_was_read_is_kept(behind: bytes) -> None:
    connection = Connection(Service(), app=reads, state={})
    connection.protocol.data_received(HEAD + behind)
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.wire.written.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    connection.protocol.data_received(b" " * (2_000 - len(behind)))
    assert b"connection: close" not in await answered(connection)
    connection.wire.written = b""
    connection.protocol.data_received(NEXT)
    assert (await answered(connection)).startswith(b"HTTP/1.1 401 ") and not connection.wire.closing
