"""The fast path of an event answers exactly as the endpoint does, over a real socket."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import msgspec
import pytest

from api.server.connections import event_fast_path
from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")
PLAIN = "application/json"
ORDINARY = "application/json; charset=utf-8"
"""Means the same, but is not what the fast path knows."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with nodes(tmp_path_factory.mktemp("short"), "", 1, [HOLD]) as (made,):
        yield made


def request(
    body: bytes, media: str = PLAIN, *, key: str | None = KEY, version: str = "1.1", extra: str = ""
) -> bytes:
    head = f"POST /v1/events HTTP/{version}\r\nHost: x\r\nContent-Type: {media}\r\nX-Request-Id: me\r\n"
    if key is not None:
        head += f"X-API-Key: {key}\r\n"
    return f"{head}{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body


def exchange(node: Node, *sent: bytes, answers: int = 1) -> list[tuple[str, dict[str, str], bytes]]:
    """Status line, headers and body of so many answers on one connection."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=20) as connection:
        for part in sent:
            connection.sendall(part)
        reader = connection.makefile("rb")
        found = [read_answer(reader) for _ in range(answers)]
        if found[-1][1].get("connection") == "close":
            assert reader.read() == b""
        return found


def read_answer(reader: BinaryIO) -> tuple[str, dict[str, str], bytes]:
    status = reader.readline().decode().strip()
    headers = {}
    while line := reader.readline().decode().strip():
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    return status, headers, reader.read(int(headers.get("content-length", 0)))


def comparable(answer: tuple[str, dict[str, str], bytes]) -> Any:
    """Without what differs between any two answers."""
    status, headers, body = answer
    assert int(headers.pop("content-length")) == len(body)  # the place in the chain has one digit more in one
    text = re.sub(r"(?:aud|apr|req)_[0-9a-f]{32}|\d{4}-\d\d-\d\dT[0-9:.]+Z", "*", body.decode())
    text = re.sub(r'"auditSequence":\d+,"auditHash":"[0-9a-f]{64}"', "*", text)
    return status, {name: value for name, value in headers.items() if name != "date"}, text


def encoded(number: int | str, tool: str = "read", **payload: Any) -> bytes:
    return msgspec.json.encode(called(number, tool, **payload))


BODIES = {
    "an allowed call": lambda which: encoded(f"{which}-1"),
    "a held call": lambda which: encoded(f"{which}-2", "pay", amount=3),
    "not JSON": lambda which: b'{"eventId": ',
    "not an event": lambda which: b"[1]",
    "nothing": lambda which: b"",
    "an unknown type": lambda which: encoded(f"{which}-3").replace(b"tool.called", b"tool.calledd"),
    "a key twice": lambda which: encoded(f"{which}-4").replace(b'"payload', b'"eventId":"x","payload'),
    "another organisation": lambda which: encoded(f"{which}-5")[:-1] + b',"organisationId":"other"}',
    "a user token": lambda which: encoded(f"{which}-6").replace(b'"toolName"', b'"userToken":"x","toolName"'),
    "a large body": lambda which: encoded(f"{which}-7", text="x" * 200_000),
    "too large a body": lambda which: encoded(f"{which}-8", text="x" * 1_100_000),
}


@pytest.mark.parametrize("name", BODIES)
def test_both_ways_answer_alike(node: Node, name: str) -> None:
    short = comparable(exchange(node, request(BODIES[name]("s")))[0])
    ordinary = comparable(exchange(node, request(BODIES[name]("o"), ORDINARY))[0])
    assert short == (ordinary[0], ordinary[1], ordinary[2].replace('"event-o-', '"event-s-'))


def test_a_head_that_was_sent_before_is_answered_alike(node: Node) -> None:
    with socket.create_connection(("127.0.0.1", node.port), timeout=20) as connection:
        reader = connection.makefile("rb")
        for name in [*BODIES, *BODIES]:
            connection.sendall(request(BODIES[name]("k")))
            known = comparable(read_answer(reader))
            ordinary = comparable(exchange(node, request(BODIES[name]("l"), ORDINARY))[0])
            assert known == (ordinary[0], ordinary[1], ordinary[2].replace('"event-l-', '"event-k-'))


@pytest.mark.parametrize("key", [None, "agk_of_nobody_at_all_0123456789"])
def test_a_missing_or_unknown_key_is_refused_alike(node: Node, key: str | None) -> None:
    short, ordinary = (
        comparable(exchange(node, request(encoded("k"), media, key=key))[0]) for media in (PLAIN, ORDINARY)
    )
    assert short == ordinary and short[0] == "HTTP/1.1 401 Unauthorized"


def test_replays_and_conflicts_are_told_alike(node: Node) -> None:
    body, other = encoded("replayed"), encoded("replayed", amount=1)
    first = exchange(node, request(body))[0]
    for media in (PLAIN, ORDINARY):
        again = exchange(node, request(body, media))[0]
        assert again[2] == first[2] and again[1]["idempotent-replay"] == "true"
    short, ordinary = (comparable(exchange(node, request(other, media))[0]) for media in (PLAIN, ORDINARY))
    assert short == ordinary and short[0] == "HTTP/1.1 409 Conflict"


def test_one_connection_carries_many_requests_in_any_form(node: Node) -> None:
    chunked = (
        f"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: {PLAIN}\r\nX-API-Key: {KEY}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    body = encoded("chunked")
    parts = [
        request(encoded("p1")),
        request(encoded("p2"), ORDINARY),
        request(b"{"),
        request(encoded("p3")),
        chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
        b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n",
        request(encoded("p4"))[:-40],
        request(encoded("p4"))[-40:],
        request(encoded("p5"), extra="Connection: close\r\n"),
    ]
    found = exchange(node, *parts, answers=8)
    assert [status.split()[1] for status, _, _ in found] == ["200"] * 2 + ["400"] + ["200"] * 5
    told = [msgspec.json.decode(content).get("eventId") for _, _, content in found]
    assert told == [
        *("event-p1", "event-p2", None, "event-p3", "event-chunked", None, "event-p4", "event-p5")
    ]
    assert found[-1][1]["connection"] == "close"


def test_old_and_cautious_clients_are_served(node: Node) -> None:
    (old,) = exchange(node, request(encoded("old"), version="1.0"))
    assert old[0] == "HTTP/1.1 200 OK" and old[1]["connection"] == "close"
    body = encoded("cautious")
    with socket.create_connection(("127.0.0.1", node.port), timeout=20) as connection:
        connection.sendall(request(body, extra="Expect: 100-continue\r\n")[: -len(body)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_goes_away_harms_nobody(node: Node) -> None:
    for number in range(20):
        connection = socket.create_connection(("127.0.0.1", node.port), timeout=20)
        connection.sendall(request(encoded(f"gone-{number}")))
        connection.close()
    assert exchange(node, request(encoded("after")))[0][0] == "HTTP/1.1 200 OK"
    assert "Traceback" not in node.log


@pytest.mark.parametrize("known", [False, True])
def test_an_event_of_a_page_can_be_read_by_it(tmp_path: Path, known: bool) -> None:
    with nodes(tmp_path, "", 1, [HOLD], GOVERNANCE_FRONTEND_URL="https://console.example") as (node,):
        before = [request(encoded("known"))] if known else []
        page = request(encoded("page"), extra="Origin: https://console.example\r\n")
        *_, answer = exchange(node, *before, page, answers=len(before) + 1)
    assert answer[0] == "HTTP/1.1 200 OK"
    assert answer[1]["access-control-allow-origin"] == "https://console.example"


def test_the_short_way_is_taken() -> None:
    """So that the comparisons above compare something."""
    headers = {b"content-type": b"application/json", b"x-api-key": b"k", b"content-length": b"2"}
    parser = SimpleNamespace(
        get_method=lambda: b"POST", get_http_version=lambda: "1.1", should_upgrade=lambda: False
    )
    state = {event_fast_path.STATE: object()}
    flow = SimpleNamespace(write_paused=False)
    connection: Any = SimpleNamespace(
        expect_100_continue=False, parser=parser, app_state=state, flow=flow, _observed=False
    )
    plain = event_fast_path.EventProtocol._is_plain
    assert plain(connection, headers)
    assert not plain(SimpleNamespace(**{**vars(connection), "_observed": True}), headers)
    unusual = {"content-type": ORDINARY, "content-length": "70000", "origin": "https://console.example"}
    for name, value in ((name.encode(), value.encode()) for name, value in unusual.items()):
        assert not plain(connection, {**headers, name: value})
