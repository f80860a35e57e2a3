"""A few credentials keep a request at work on every connection there may be: everybody else still gets in."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.server.connections.crowd import ENDING, FULL, LEFT, UNHEARD
from tests.api.hostile.test_connections import connected, event, rest_of
from tests.api.hostile.test_wire import HOST, exchange, refused
from tests.harness.event_connection import FIRST, Connection, Service
from tests.harness.running_service import Served
from tests.harness.waiting import until

MOST = 3 * UNHEARD


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("crowds"), GOVERNANCE_CONNECTIONS=str(MOST)) as made:
        yield made


@contextlib.contextmanager
def all_at_work(
    service: Served, sent: Callable[[int], bytes]
) -> Iterator[tuple[list[socket.socket], Callable[[], None]]]:
    """As many connections as there may be, each waiting until the function is called for what its request -
    the first, the second - writes."""
    gate, held = threading.Event(), threading.Event()
    job = threading.Thread(target=service.write, args=(lambda transaction: held.set() or gate.wait(60),))
    with contextlib.ExitStack() as opened:
        try:
            job.start()
            assert held.wait(60)
            until(lambda: not connections_of(service))  # those of the test before
            wires = [opened.enter_context(connected(service)) for _ in range(MOST)]
            for number, wire in enumerate(wires):
                wire.sendall(sent(number))
            until(lambda: at_work(service) == MOST)
            yield wires, gate.set
        finally:
            gate.set()
            job.join()


def connections_of(service: Served) -> list[Any]:
    return list(service._server.server_state.connections)


def at_work(service: Served) -> int:
    return sum(connection.holder is not None for connection in connections_of(service))


def readable(wires: list[socket.socket]) -> list[socket.socket]:
    """Those that have something to be read; however many files the process has open."""
    poll = select.poll()
    for wire in wires:
        poll.register(wire, select.POLLIN)
    found = {number for number, _ in poll.poll(0)}
    return [wire for wire in wires if wire.fileno() in found]


def in_turns(name: str, *keys: str) -> Callable[[int], bytes]:
    return lambda number: event(f"{name}-{number}", keys[number % len(keys)])


def runs(credential: bytes) -> bytes:
    return b"GET /v1/runs HTTP/1.1\r\n" + HOST + credential + b"\r\nConnection: close\r\n\r\n"


def of_key(key: str) -> bytes:
    return b"X-API-Key: " + key.encode()


HEALTH = b"GET /health/live HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


def test_everybody_but_who_has_most_connections_gets_in(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]
    token = b"Authorization: " + service.credentials["admin"]["Authorization"].encode()
    with all_at_work(service, in_turns("crowd", greedy)):
        for _ in range(3):
            for sent in (runs(of_key(other)), runs(token), HEALTH):
                assert exchange(service, sent)[0].startswith(b"HTTP/1.1 200")
        for sent in (runs(of_key(greedy)), event("crowd-more", greedy)):
            received, closed = exchange(service, sent)
            refused(received, 503, "unavailable")
            assert closed


def test_who_gives_way_gets_the_answer_that_it_waits_for(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]
    opened = contextlib.ExitStack()
    with opened, all_at_work(service, in_turns("answered", greedy)) as (wires, go_on):
        for number in range(3):
            beside = opened.enter_context(connected(service))
            beside.sendall(event(f"short-{number}", other))
        until(lambda: at_work(service) == MOST + 3)
        for _ in range(3):
            assert exchange(service, HEALTH)[0].startswith(b"HTTP/1.1 200")
        go_on()
        received = [wire.recv(65_536) for wire in wires]
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in received)
        assert sum(b"connection: close" in answer.lower() for answer in received) == 4


def test_who_has_given_way_waits_for_its_answer_as_long_as_there_is_room_beside_it(service: Served) -> None:
    greedy, others, more = service.key()["key"], [service.key()["key"] for _ in range(4)], 4
    with all_at_work(service, in_turns("beside", greedy)) as (wires, go_on), contextlib.ExitStack() as opened:
        for number in range(ENDING + more):
            wires.append(opened.enter_context(connected(service)))
            wires[-1].sendall(in_turns("more", *others)(number))
        until(lambda: at_work(service) == MOST + ENDING)
        until(lambda: len(readable(wires)) == more)
        early = readable(wires)
        for wire in early:
            received = rest_of(wire)
            refused(received, 503, "unavailable")
            assert LEFT.encode() in received
        go_on()
        for wire in set(wires) - set(early):
            assert wire.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("count", [3, 12, 24])
def test_whoever_has_fewer_than_others_gets_in_however_many_they_are(service: Served, count: int) -> None:
    keys = [service.key()["key"] for _ in range(count)]
    other = service.key()["key"]
    with all_at_work(service, in_turns(f"many-{count}", *keys)):
        for _ in range(UNHEARD // 2 + 4):
            for sent in (runs(of_key(other)), HEALTH):
                assert exchange(service, sent)[0].startswith(b"HTTP/1.1 200")


def test_where_nobody_has_more_than_one_a_new_one_is_refused(service: Served) -> None:
    keys = [service.key()["key"] for _ in range(MOST)]
    other = service.key()["key"]
    with all_at_work(service, in_turns("one-each", *keys)):
        received, closed = exchange(service, runs(of_key(other)))
        refused(received, 503, "unavailable")
        assert closed and FULL.encode() in received


def test_keys_of_a_crowd_take_no_place_of_one_another(service: Served) -> None:
    keys = [service.key()["key"] for _ in range(12)]
    uneven = [*keys, *keys[:6]]
    with all_at_work(service, in_turns("uneven", *uneven)):
        for key in keys:
            received, closed = exchange(service, runs(of_key(key)))
            refused(received, 503, "unavailable")
            assert closed


def test_a_header_that_nobody_reads_makes_no_one_else_of_a_key(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]

    def disguised(number: int) -> bytes:
        plain = b"Content-Type: application/json\r\n"
        odd = b"Authorization: Bearer %d\r\nContent-Type: application/json; charset=utf-8\r\n" % number
        return event(f"disguised-{number}", greedy).replace(plain, odd)

    with all_at_work(service, disguised):
        for sent in (runs(of_key(other)), HEALTH):
            assert exchange(service, sent)[0].startswith(b"HTTP/1.1 200")
        refused(exchange(service, runs(of_key(greedy)))[0], 503, "unavailable")


@contextlib.contextmanager
def wrong_ones_wait(service: Served) -> Iterator[None]:
    """Whoever shows a credential that begins with `wrong` is refused only behind this."""
    credentials, done = service.context.credentials, threading.Event()

    def slowly(ask: Any) -> Any:
        async def asked(credential: str, *more: Any, **told: Any) -> Any:
            while credential.startswith("wrong") and not done.is_set():
                await asyncio.sleep(0.02)
            return await ask(credential, *more, **told)

        return asked

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(credentials, "from_key", slowly(credentials.from_key))
        patched.setattr(credentials, "from_token", slowly(credentials.from_token))
        try:
            yield
        finally:
            done.set()


WRONG = (b"X-API-Key: wrong-%d", b"Authorization: Bearer wrong-%d")


@pytest.mark.parametrize("header", WRONG)
def test_who_shows_no_valid_credential_is_their_address(service: Served, header: bytes) -> None:
    other = service.key()["key"]
    token = b"Authorization: " + service.credentials["admin"]["Authorization"].encode()
    with wrong_ones_wait(service), all_at_work(service, lambda number: runs(header % number)):
        for sent in (runs(of_key(other)), runs(token)):
            assert exchange(service, sent)[0].startswith(b"HTTP/1.1 200")
        refused(exchange(service, HEALTH)[0], 503, "unavailable")
        for _ in range(2 * UNHEARD):  # by which fail modes tell whether the service is away
            received, closed = exchange(service, HEALTH.replace(b"live", b"ready"))
            assert received.startswith(b"HTTP/1.1 200") and closed
        elsewhere = ("127.0.0.2", 0)
        with socket.create_connection(("127.0.0.1", service.port), 60, elsewhere) as wire:
            wire.sendall(HEALTH)
            assert rest_of(wire).startswith(b"HTTP/1.1 200")


def test_a_key_and_an_address_that_have_half_of_them_each_give_way(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]

    def both(number: int) -> bytes:
        return event(f"both-{number}", greedy) if number % 2 else runs(WRONG[0] % number)

    with wrong_ones_wait(service), all_at_work(service, both):
        assert exchange(service, runs(of_key(other)))[0].startswith(b"HTTP/1.1 200")


async def test_a_connection_that_is_being_closed_gives_way_to_nobody() -> None:
    connection = Connection(Service())
    connection.protocol.make_way()
    assert connection.wire.closing and connection.protocol.holder is None


async def test_who_gives_way_is_closed_behind_its_answer_whatever_was_sent_behind_it() -> None:
    service = Service()
    service.holds = True
    connection = Connection(service)
    await connection.send(FIRST + FIRST)
    connection.protocol.end_behind_answer()
    service.held.pop()()
    await connection.rest()
    assert connection.wire.written.count(b" 200 ") == 1 and connection.wire.closing and not service.held


async def test_who_gives_way_and_reads_nothing_is_closed_all_the_same() -> None:
    service = Service()
    service.holds = True
    connection = Connection(service)
    await connection.send(FIRST)
    written = connection.wire.write

    def is_full(data: bytes) -> None:
        written(data)
        connection.protocol.pause_writing()

    connection.wire.write, connection.wire.abort = is_full, lambda: aborted.append(True)
    aborted: list[bool] = []
    connection.protocol.end_behind_answer()
    connection.protocol.make_way()
    assert b" 503 " in connection.wire.written and aborted
