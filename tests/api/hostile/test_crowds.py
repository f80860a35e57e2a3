"""One credential keeps a request at work on every connection there may be: everybody else still gets in."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from api.server.crowd import RESERVED
from tests.api.hostile.test_connections import connected, event
from tests.api.hostile.test_wire import HOST, exchange, refused
from tests.harness.event_connection import Connection, Service
from tests.harness.running_service import Served

MOST = 2 * RESERVED


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("crowds"), GOVERNANCE_CONNECTIONS=str(MOST)) as made:
        yield made


@contextlib.contextmanager
def all_at_work(
    service: Served, keys: list[str], name: str
) -> Iterator[tuple[list[socket.socket], Callable[[], None]]]:
    """As many connections as there may be, each waiting for the record of an event until the function is
    called; the keys take turns."""
    writer, gate, held = service.context.writer, threading.Event(), threading.Event()
    job = threading.Thread(target=service.write, args=(lambda transaction: held.set() or gate.wait(60),))
    with contextlib.ExitStack() as opened:
        try:
            job.start()
            assert held.wait(60)
            wires = [opened.enter_context(connected(service)) for _ in range(MOST)]
            for number, wire in enumerate(wires):
                wire.sendall(event(f"{name}-{number}", keys[number % len(keys)]))
            deadline = time.monotonic() + 60
            while len(writer.arrivals) + writer._handed_over < MOST + 1 and time.monotonic() < deadline:
                time.sleep(0.02)
            yield wires, gate.set
        finally:
            gate.set()
            job.join()


def runs(credential: bytes) -> bytes:
    return b"GET /v1/runs HTTP/1.1\r\n" + HOST + credential + b"\r\nConnection: close\r\n\r\n"


def of_key(key: str) -> bytes:
    return b"X-API-Key: " + key.encode()


HEALTH = b"GET /health/live HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


def test_everybody_but_who_has_most_connections_gets_in(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]
    token = b"Authorization: " + service.credentials["admin"]["Authorization"].encode()
    with all_at_work(service, [greedy], "crowd"):
        for _ in range(3):
            for sent in (runs(of_key(other)), runs(token), HEALTH):
                assert exchange(service, sent)[0].startswith(b"HTTP/1.1 200")
        for sent in (runs(of_key(greedy)), event("crowd-more", greedy)):
            received, closed = exchange(service, sent)
            refused(received, 503, "unavailable")
            assert closed


def test_who_gives_way_gets_the_answer_that_it_waits_for(service: Served) -> None:
    greedy, other = service.key()["key"], service.key()["key"]
    with all_at_work(service, [greedy], "answered") as (wires, go_on):
        for _ in range(3):
            assert exchange(service, runs(of_key(other)))[0].startswith(b"HTTP/1.1 200")
        go_on()
        received = [wire.recv(65_536) for wire in wires]
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in received)
        assert sum(b"connection: close" in answer.lower() for answer in received) == 3


def test_where_nobody_has_most_of_them_a_new_one_is_refused(service: Served) -> None:
    keys = [service.key()["key"] for _ in range(3)]
    other = service.key()["key"]
    with all_at_work(service, keys, "many"):
        received, closed = exchange(service, runs(of_key(other)))
        refused(received, 503, "unavailable")
        assert closed


async def test_a_connection_that_is_being_closed_gives_way_to_nobody() -> None:
    connection = Connection(Service())
    connection.protocol._make_way()
    assert connection.wire.closing and connection.protocol.credential is None
