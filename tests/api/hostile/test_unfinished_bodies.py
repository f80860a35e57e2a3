"""Bodies that are begun on many connections and never end: what they take is bounded for each caller, and
whoever is not known has no large one taken in."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from api import reads
from api.caller import NOBODY
from api.ingestion.quotas import OverQuota, ProcessorTime
from api.ingestion.turns import LARGE
from tests.api.hostile.test_connections import CREDENTIALS, connected
from tests.api.hostile.test_wire import HOST, LOGIN, refused
from tests.harness.running_service import Served
from tests.harness.waiting import until

SIZE = 2 * LARGE


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("bodies"), GOVERNANCE_REQUEST_SECONDS="600") as made:
        yield made


def begun(service: Served, path: bytes, credential: bytes, size: int) -> socket.socket:
    """A connection that has sent all of a body but its last byte."""
    wire = connected(service)
    head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n" + credential
    wire.sendall(head + b"\r\nContent-Length: %d\r\n\r\n" % size + b" " * (size - 1))
    return wire


@pytest.mark.parametrize("framed", ["length", "chunks"])
def test_who_is_not_known_sends_no_large_body(service: Served, framed: str) -> None:
    body = b" " * (LARGE + 1)
    lengths = {
        "length": b"Content-Length: %d\r\n\r\n" % (LARGE + 100),
        "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (LARGE + 100),
    }
    with connected(service) as wire:
        wire.sendall(LOGIN + lengths[framed] + body)
        refused(wire.recv(65_536), 413, "payload_too_large")


def test_who_is_not_known_is_refused_before_a_large_event_has_come(service: Served) -> None:
    with begun(service, b"/v1/events", b"X-API-Key: agk_of_nobody", LARGE + 1) as wire:
        refused(wire.recv(65_536), 401, "unauthenticated")


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_bodies_of_one_caller_that_never_end_are_bounded(
    service: Served, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MOST_COMING", 5 * LARGE)
    coming = service.context.reads._coming
    path = b"/v1/policies/simulate" if kind == "a token" else b"/v1/events/batch"
    credential = CREDENTIALS[kind](service)
    with contextlib.ExitStack() as wires:
        for number in (1, 2):
            wires.enter_context(begun(service, path, credential, SIZE))
            until(lambda number=number: sum(coming.values()) == number * (SIZE - 1))  # type: ignore[misc]
        with begun(service, path, credential, SIZE) as third:
            refused(third.recv(65_536), 429, "rate_limited")
        with begun(service, b"/v1/events/batch", CREDENTIALS["an API key"](service), SIZE) as other:
            other.sendall(b" ")
            refused(other.recv(65_536), 400, "invalid_json")
    until(lambda: not coming)
    with begun(service, path, credential, 6 * LARGE) as alone:  # a single one may be larger
        alone.sendall(b" ")
        refused(alone.recv(65_536), 400, "invalid_json")
    assert not coming


def test_the_more_callers_there_are_the_less_each_may_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all of them together have begun is bounded, but for one body of each."""
    monkeypatch.setattr(reads, "MOST_COMING", 8)
    monkeypatch.setattr(reads, "MOST_OF_ALL", 16)
    made = reads.Reads(cast(Any, None), cast(Any, None), ProcessorTime(), 100)
    taken = 0
    with contextlib.ExitStack() as bodies:
        for _, number in itertools.product(range(8), range(8)):
            caller = replace(NOBODY, kind="key", key_id=f"key-{number}")
            try:
                bodies.enter_context(made.coming(caller))(1)
            except OverQuota:
                continue
            taken += 1
        assert 8 <= taken <= 24
    assert not made._coming
    made.close()
