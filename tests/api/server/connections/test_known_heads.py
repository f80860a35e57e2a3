"""A head that a connection has sent before is known by its bytes; answers stay the same, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.caller import Caller
from api.server.connections import event_fast_path, last_words
from tests.harness.effort import examples
from tests.harness.event_connection import (
    FIRST,
    KEY,
    LINES,
    Connection,
    Service,
    answered,
    body,
    knowing,
    played,
    request,
)


@pytest.fixture(scope="module", autouse=True)
def no_chance() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_words, "token_hex", lambda count: "0" * 2 * count)
        yield


def in_any_order(answers: bytes) -> list[list[bytes]]:
    """Answers one by one; the fast path and the router write their headers in different orders."""
    return [sorted(answer.split(b"\r\n")) for answer in answers.split(b"HTTP/1.1 ")[1:]]


KNOWN = {
    "the same": FIRST,
    "more digits": request(body(2, text="x" * 2_000)),
    "five digits": request(body(2, text="x" * 16_000)),
    "leading zeros": request(body(2), length=f"{len(body(2)):05}"),
    "a blank line in the body": request(body(2).replace(b"{", b"{\r\n\r\n", 1)),
    "a replay": request(body(2, text="replayed")),
}


@pytest.mark.parametrize("kind", KNOWN)
async def test_a_known_head_is_not_parsed_again(kind: str) -> None:
    service = Service()
    connection = await knowing(service)
    for _ in range(3):
        assert await connection.send(KNOWN[kind]) == await answered(service, KNOWN[kind])
    assert connection.parsed == []
    assert connection.state.total_requests == 4


OTHER = {
    "a body in two pieces": (FIRST[:-5], FIRST[-5:]),
    "a head in two pieces": (FIRST[:40], FIRST[40:]),
    "a head, then its body": (FIRST[: -len(body(1))], body(1)),
    "two at once": (FIRST + FIRST,),
    "one and a half": (FIRST + FIRST[:30], FIRST[30:]),
    "one byte another": (FIRST.replace(b"Host: x", b"Host: y"),),
    "another case": (FIRST.replace(b"Host", b"host"),),
    "another path": (FIRST.replace(b"/v1/events", b"/v1/event"),),
    "another header": (request(body(1), "X: y"),),
    "a longer length": (request(body(1), length=str(len(body(1)) + 7)), b" " * 7),
    "a shorter length": (request(body(1), length=str(len(body(1)) - 1)),),
    "a line feed behind": (FIRST + b"\r\n",),
    "six digits": (request(body(1), length=f"{len(body(1)):06}"),),
    "a length that is too long": (request(body(1, text="x" * 70_000)),),
    "no digits": (request(body(1), length=""),),
    "a sign": (request(body(1), length=f"+{len(body(1))}"),),
    "a blank behind the digits": (request(body(1), length=f"{len(body(1))} "),),
    "digits that are none": (FIRST.replace(b"Length: 1", b"Length: \xb9"),),
    "a line feed before": (b"\r\n" + FIRST,),
    "no blank line": (FIRST.replace(b"\r\n\r\n", b"\r\n"),),
    "the last one": (request(body(1), "Connection: close"),),
    "two lengths": (request(body(1), f"Content-Length: {len(body(1))}"),),
    "nothing but a line feed": (b"\r\n", FIRST),
}


@pytest.mark.parametrize("kind", OTHER)
async def test_anything_else_is_parsed(kind: str) -> None:
    service = Service()
    connection = await knowing(service)
    assert await connection.send(*OTHER[kind]) == await answered(service, *OTHER[kind])
    assert b"".join(connection.parsed) == b"".join(OTHER[kind])
    if not connection.wire.closing:
        again = await connection.send(FIRST, FIRST)
        assert again == await answered(service, FIRST, FIRST)


REFUSED = {
    "not JSON": request(b'{"eventId": '),
    "not an event": request(b"[1]"),
    "nothing": request(b""),
    "an unknown type": request(body(2).replace(b"tool.called", b"tool.calledd")),
    "another organisation": request(body(2)[:-1] + b',"organisationId":"other"}'),
    "a user token": request(body(2).replace(b'"toolName"', b'"userToken":"x","toolName"')),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_is_refused_goes_the_ordinary_way(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[bytes] = []

    def checked(caller: Caller, raw: bytes) -> Any:
        checks.append(raw)
        return real(caller, raw)

    real = event_fast_path.checked
    monkeypatch.setattr(event_fast_path, "checked", checked)

    async def no_rule(*_: Any) -> Any:
        return None

    service = Service()
    service.context.store = service.context.intake._store = SimpleNamespace(read=no_rule, read_first=no_rule)
    sent = REFUSED[kind]
    expected = await answered(service, sent)
    assert expected.startswith(b"HTTP/1.1 4")
    connection = await knowing(service)
    checks.clear()
    for _ in range(2):
        assert await connection.send(sent) == expected
        assert connection.parsed == [sent] and len(checks) == 1
        checks.clear()
    assert await connection.send(FIRST) == await answered(service, FIRST)
    assert connection.parsed == []


async def test_a_revoked_key_is_refused() -> None:
    service = Service()
    connection = await knowing(service)
    callers, service.keys = service.keys, {}
    refused = await connection.send(FIRST)
    assert refused == await answered(service, FIRST) and refused.startswith(b"HTTP/1.1 401 ")
    service.keys = callers
    assert (await connection.send(FIRST)).startswith(b"HTTP/1.1 200 ")


async def test_an_unknown_key_is_refused_and_its_head_not_learnt() -> None:
    service = Service()
    connection = await knowing(service)
    other = request(body(2), key=KEY.replace("same", "lame"))
    assert (await connection.send(other)).startswith(b"HTTP/1.1 401 ")
    assert (await connection.send(FIRST)).startswith(b"HTTP/1.1 200 ")
    assert connection.parsed == [other]


async def test_a_writer_that_takes_nothing_is_told_as_ever() -> None:
    service = Service()
    connection = await knowing(service)
    service.refuses = True
    assert await connection.send(FIRST) == await answered(service, FIRST)
    service.refuses = False
    connection.parsed  # noqa: B018
    assert (await connection.send(FIRST)).startswith(b"HTTP/1.1 200 ")
    assert connection.parsed == []


@pytest.mark.parametrize("sent", ["mine", "not/harmless"])
async def test_the_id_of_a_request_is_that_of_its_head(sent: str) -> None:
    service = Service()
    first = request(body(1), f"X-Request-Id: {sent}")
    connection = await knowing(service, first)
    answer = await connection.send(first)
    assert connection.parsed == [] and answer == await answered(service, first)
    told = b"mine" if sent == "mine" else b"req_new"
    assert b"\r\nx-request-id: %b\r\n" % told in answer


@pytest.mark.parametrize("name", ["content-length:", "CONTENT-LENGTH: ", "Content-Length: "])
@pytest.mark.parametrize("more", [(), ("X: y", "Content-Lengths: 7", "Z: Content-Length: 7")])
async def test_the_length_may_stand_anywhere(name: str, more: tuple[str, ...]) -> None:
    service = Service()
    connection = await knowing(service, request(body(1), *more, name=name))
    again = request(body(2, text="x"), *more, name=name)
    assert await connection.send(again) == await answered(service, again)
    assert connection.parsed == []


UNLEARNT = {
    "the last one": (request(body(1), "Connection: close"),),
    "an offer of an upgrade": (request(body(1), "Connection: Upgrade", "Upgrade: h2c"),),
    "an expectation": (request(body(1), "Expect: 100-continue"),),
    "an old one": (FIRST.replace(b"HTTP/1.1", b"HTTP/1.0"),),
    "another media type": (FIRST.replace(b"/json", b"/json; charset=utf-8"),),
    "a key twice": (request(body(1), f"X-API-Key: {KEY}"),),
    "a body in two pieces": (FIRST[:-5], FIRST[-5:]),
    "two at once": (FIRST + FIRST,),
    "one and a beginning": (FIRST + b"P",),
    "one behind another": (b"GET / HTTP/1.1\r\n\r\n" + FIRST,),
    "a piece that looks whole": (b"POST /v1/events HTTP/1.1\r\nX: ", FIRST),
    "a body that looks whole": (request(FIRST)[: -len(FIRST)], FIRST),
}


@pytest.mark.parametrize("kind", UNLEARNT)
async def test_such_a_head_is_not_learnt(kind: str) -> None:
    service = Service()
    connection = Connection(service)
    assert await connection.send(*UNLEARNT[kind]) == await answered(service, *UNLEARNT[kind])
    assert connection.protocol._head is None


def test_a_head_is_that_of_one_whole_request() -> None:
    exchange = event_fast_path._Exchange(b"key", None, b"", True)
    assert event_fast_path.Head.of(FIRST, exchange) is not None
    for data in (FIRST + FIRST, FIRST + b"\r\n", b"\r\n\r\n" + FIRST, FIRST[:-1], FIRST[:30], b""):
        assert event_fast_path.Head.of(data, exchange) is None


async def test_a_request_inside_another_one_is_none() -> None:
    service = Service()
    connection = await knowing(service)
    for pieces in (
        (b"GET /1 HTTP/1.1\r\nX: ", FIRST),
        (FIRST + b"GET /2 HTTP/1.1\r\nX: ", FIRST),
        (FIRST + b"PUT /3 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(FIRST), FIRST),
    ):
        assert await connection.send(*pieces) == await answered(service, *pieces)
        assert b"".join(connection.parsed) == b"".join(pieces)
        assert (await connection.send(FIRST)).startswith(b"HTTP/1.1 200 OK")
        connection.parsed  # noqa: B018


async def test_requests_wait_for_the_answers_before_them() -> None:
    service = Service()
    connection = await knowing(service)
    service.holds = True
    assert await connection.send(FIRST) == b"" and connection.parsed == []
    second = request(body(2))
    connection.protocol.data_received(second)
    assert connection.parsed == [second] and connection.wire.paused
    service.holds = False
    service.held.pop()()
    await connection.rest()
    expected = await answered(service, FIRST) + await answered(service, second)
    assert in_any_order(connection.wire.written)[-2:] == in_any_order(expected)
    assert await connection.send(FIRST) == await answered(service, FIRST)
    assert connection.parsed == []


async def test_who_does_not_read_is_answered_no_more_until_he_does() -> None:
    service = Service()
    connection = await knowing(service)
    connection.protocol.pause_writing()
    assert await connection.send(FIRST) == b"" and connection.parsed == [FIRST]
    connection.protocol.resume_writing()
    await connection.rest()
    assert in_any_order(connection.wire.written)[-1:] == in_any_order(await answered(service, FIRST))
    assert await connection.send(FIRST) == await answered(service, FIRST)
    assert connection.parsed == []
    connection.protocol.request_seconds = 0.0
    connection.protocol.pause_writing()
    await asyncio.sleep(0.01)
    assert connection.wire.closing


def test_nobody_is_told_once_the_connection_is_gone() -> None:
    async def steps(service: Service) -> None:
        connection = await knowing(service)
        service.holds = True
        assert await connection.send(FIRST) == b"" and connection.parsed == []
        connection.protocol.connection_lost(ConnectionResetError())
        service.held.pop()()
        assert connection.wire.written == await answered_at_once(service)

    async def answered_at_once(service: Service) -> bytes:
        service.holds = False
        return await answered(service, FIRST)

    played(steps)


async def test_a_server_that_stops_answers_and_closes() -> None:
    service = Service()
    waiting, idle = await knowing(service), await knowing(service)
    await idle.send(FIRST)
    service.holds = True
    assert await waiting.send(FIRST) == b""
    waiting.protocol.shutdown()
    idle.protocol.shutdown()
    assert idle.wire.closing and not waiting.wire.closing
    service.held.pop()()
    assert waiting.wire.closing and b"\r\nconnection: close\r\n" in waiting.wire.written


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    service = Service()
    connection = await knowing(service, keep_alive=0.2)
    service.holds = True
    for _ in range(2):
        await connection.send(FIRST)
        await asyncio.sleep(0.3)  # longer than a connection may be idle
        assert not connection.wire.closing
        service.held.pop()()
    await asyncio.sleep(0.1)
    assert connection.parsed == [] and not connection.wire.closing
    await asyncio.sleep(0.3)
    assert connection.wire.closing


async def test_heads_that_never_come_again_are_not_learnt_for_ever() -> None:
    service = Service()
    connection = Connection(service)
    heads = [request(body(1), f"X-Request-Id: {number}") for number in range(event_fast_path.MOST_HEADS + 5)]
    for head in heads:
        await connection.send(head)
    assert connection.parsed == heads
    await connection.send(heads[event_fast_path.MOST_HEADS - 1])
    assert connection.parsed == []


REQUESTS = [
    *(request(body(number, text="x" * number)) for number in (1, 7, 20)),
    *(sent for sent in KNOWN.values() if len(sent) < 5_000),
    *(b"".join(pieces) for kind, pieces in OTHER.items() if kind in ("one byte another", "another path")),
    *(sent for kind, sent in REFUSED.items() if kind != "a user token"),
    request(body(3), "X-Request-Id: me"),
    request(body(4), "Connection: close"),
    request(body(5), length=f"{len(body(5)) + 3}"),
    request(body(6), key="agk_unknown"),
    b"GET /else HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/events HTTP/1.1\r\n%b\r\n" % "\r\n".join(LINES).encode()
    + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body(8)), body(8)),
    b"\r\n",
]


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[bytes, int]]:
    """Pieces of a stream of requests, cut mostly between them, and for how long nothing comes after each."""
    sent: list[bytes] = [FIRST, *draw(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=8))]
    whole = b"".join(sent)
    cuts = {sum(map(len, sent[: number + 1])) for number in range(len(sent)) if draw(st.integers(0, 4))}
    cuts |= set(draw(st.lists(st.integers(1, len(whole) - 1), max_size=3)))
    marks = [0, *sorted(cuts | {len(whole)})]
    pieces = [whole[begin:end] for begin, end in pairwise(marks)]
    return [(piece, draw(st.sampled_from((0, 1, 30)))) for piece in pieces]


@examples(150, 3_000)
@given(streams())
def test_any_stream_of_requests_is_answered_alike(stream: Iterable[tuple[bytes, int]]) -> None:
    async def steps(service: Service, heads: int) -> tuple[bytes, bool, int]:
        connection = Connection(service)
        connection.protocol._heads = heads
        for piece, rounds in stream:
            await connection.send(piece, rounds=rounds)
        await connection.rest()
        return connection.wire.written, connection.wire.closing, connection.state.total_requests

    assert played(steps, 0) == played(steps, event_fast_path.MOST_HEADS)
