"""A connection that is lost goes at once: while the collector takes away many, everybody waits."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from api.server.connections.event_fast_path import EventProtocol
from tests.api.hostile.test_connections import connected, event, rest_of
from tests.api.hostile.test_wire import HOST
from tests.harness.running_service import Served
from tests.harness.uncollected import uncollected
from tests.harness.waiting import until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("lost")) as made:
        yield made


@pytest.fixture
def no_collector() -> Iterator[None]:
    with uncollected():
        yield


GET = b"GET /health/live HTTP/1.1\r\n" + HOST
CHUNKS = b"POST /v1/events HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
SENT = {
    "nothing": b"",
    "one": GET + b"\r\n",
    "last": GET + b"Connection: close\r\n\r\n",
    "many": 50 * (GET + b"\r\n"),
    "half": GET,
    "chunks": CHUNKS + 2_000 * b"1\r\n \r\n",
    "no HTTP": b"\0\0\r\n\r\n",
}


def connections() -> int:
    return sum(isinstance(each, EventProtocol) for each in gc.get_objects())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", [*SENT, "event"])
def test_nothing_of_a_connection_is_left_to_the_collector(service: Served, name: str) -> None:
    sent = SENT.get(name, event("lost", service.key()["key"]))
    until(lambda: not service._server.server_state.connections)
    before = connections()
    with connected(service) as wire:
        until(lambda: connections() == before + 1)
        wire.sendall(sent)
        if name in ("one", "event"):
            assert wire.recv(65_536).startswith(b"HTTP/1.1 ")
        elif name in ("last", "no HTTP"):
            assert rest_of(wire).startswith(b"HTTP/1.1 ")
    until(lambda: connections() == before, why="something of it refers to it still")
