"""Of one holder a few requests are begun in each round of the event loop; nobody else stands behind the
rest."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

import pytest
from uvicorn.server import ServerState

from api.cli.commands.serve import TAKEN_TOGETHER, _handles
from api.server.connections.beginnings import ADDRESSES, AT_ONCE, OF_ALL, Beginnings, credential_of
from api.server.connections.crowd import UNHEARD
from tests.harness.event_connection import Connection, Service


async def test_who_asks_for_much_is_begun_in_turns() -> None:
    begun: list[tuple[str, int]] = []
    beginnings = Beginnings(asyncio.get_running_loop())
    for number in range(10):
        beginnings.add("many", number, partial(begun.append, ("many", number)))
    for holder in ("one", "", "other"):
        beginnings.add(holder, 99, partial(begun.append, (holder, 0)))
    assert begun == [("many", each) for each in range(AT_ONCE)] + [("one", 0), ("", 0), ("other", 0)]
    await asyncio.sleep(0)
    assert len(begun) == 2 * AT_ONCE + 3
    beginnings.add("many", 10, partial(begun.append, ("many", 10)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [number for holder, number in begun if holder == "many"] == list(range(11))
    beginnings.add("many", 11, partial(begun.append, ("many", 11)))
    assert begun[-1] == ("many", 11)


async def test_who_asks_for_little_stands_behind_few_however_many_ask_for_much() -> None:
    begun: list[str] = []
    beginnings = Beginnings(asyncio.get_running_loop())
    holders = [f"many-{number}" for number in range(50)]
    for holder in holders:
        for number in range(10):
            beginnings.add(holder, number, partial(begun.append, holder))
    while beginnings._queues:
        before = len(begun)
        await asyncio.sleep(0)
        beginnings.add("one", 0, partial(begun.append, "one"))
        assert begun[-1] == "one" and len(begun) - before <= OF_ALL + AT_ONCE
    assert all(begun.count(holder) == 10 for holder in holders)


@pytest.mark.parametrize("crowd", ["address 2001:db8:{}::/64", "organisation a key-{}"])
async def test_nobody_stands_behind_as_many_as_addresses_or_keys_are_cheap(crowd: str) -> None:
    """However few requests each of them has."""
    begun: list[str] = []
    beginnings = Beginnings(asyncio.get_running_loop())
    count = 500
    for number in range(count):
        holder = crowd.format(number)
        beginnings.add(holder, 0, partial(begun.append, holder))
    assert len(begun) == OF_ALL + AT_ONCE
    for holder in ("organisation b key-0", "user u"):
        beginnings.add(holder, 0, partial(begun.append, holder))
        assert begun[-1] == holder
    while beginnings._queues:
        before = len(begun)
        await asyncio.sleep(0)
        assert 0 < len(begun) - before <= OF_ALL
    assert len(set(begun)) == count + 2


async def test_those_who_stood_first_may_all_have_left() -> None:
    begun: list[int] = []
    beginnings = Beginnings(asyncio.get_running_loop())
    count = 4 * OF_ALL
    for number in range(count):
        beginnings.add(f"address {number}", number, partial(begun.append, number))
    for number in range(count - 1):
        beginnings.leave(f"address {number}", number)
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun[-1] == count - 1 and not beginnings._queues


async def test_a_request_whose_connection_is_lost_before_its_turn_waits_no_more() -> None:
    begun: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])

    service = Service()
    server = ServerState()
    connections = [Connection(service, app=app, server=server) for _ in range(AT_ONCE + 3)]
    for number, connection in enumerate(connections):
        connection.protocol.data_received(b"GET /%d HTTP/1.1\r\nx-api-key: k\r\n\r\n" % number)
    for number in (0, AT_ONCE):
        connections[number].protocol.connection_lost(ConnectionResetError())
    first = connections[0].protocol
    waiting = first._shared.beginnings._queues[ADDRESSES][first.holder or ""]
    assert list(waiting) == [each.protocol for each in connections[AT_ONCE + 1 :]]
    await connections[1].rest()
    assert begun == [f"/{each}" for each in range(AT_ONCE + 3) if each != AT_ONCE]


@pytest.mark.parametrize("sent", [b"", b"x-api-key: wrong-%d\r\n", b"authorization: Bearer wrong-%d\r\n"])
async def test_without_a_valid_credential_it_is_the_address_that_asks(sent: bytes) -> None:
    """Else whoever makes up another one for each connection would be begun before anybody else is heard."""
    begun: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])

    service = Service()
    server = ServerState()
    connections = [Connection(service, app=app, server=server) for _ in range(3 * AT_ONCE)]
    for number, connection in enumerate(connections):
        line = sent % number if sent else sent
        connection.protocol.data_received(b"GET /%d HTTP/1.1\r\n%b\r\n" % (number, line))
    (waiting,) = connections[0].protocol._shared.beginnings._queues[ADDRESSES].values()
    assert len(waiting) == 2 * AT_ONCE
    await connections[-1].rest()
    assert begun == [f"/{number}" for number in range(3 * AT_ONCE)]


def test_a_credential_is_a_key_or_a_token() -> None:
    assert credential_of([(b"host", b"x"), (b"x-api-key", b"k")]) == b"k"
    assert credential_of([(b"authorization", b"Bearer t")]) == b"Bearer t"
    assert credential_of([(b"host", b"x")]) == b""
    both = [(b"authorization", b"Bearer t"), (b"host", b"x"), (b"x-api-key", b"k")]
    assert credential_of(both) == b"k" == credential_of(both[::-1])


def test_new_connections_are_taken_many_at_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        handles = _handles(listener)
        try:
            assert len(handles) == TAKEN_TOGETHER == UNHEARD // 2 > 1
            assert {each.getsockname() for each in handles} == {listener.getsockname()}
        finally:
            for each in handles[1:]:
                each.close()
