"""Events of every kind, right and wrong: the fast path, the router and the schema agree on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from api.http import bodies
from api.http.problems import ApiError
from api.ingestion.validation import read_event
from api.server.connections.event_fast_path import STATE
from schemas.validation import violations
from tests.harness.application import Service
from tests.harness.effort import examples
from tests.harness.event_connection import Connection
from tests.harness.hostile import EVENT, JSON, KINDS, NOT_JSON, POLICY


def event_bodies() -> list[bytes]:
    """Bodies of all kinds, most of them wrong."""
    whole = json.dumps(EVENT).encode()
    found = [whole, whole, b" " + whole + b"\n", *NOT_JSON.values(), b"[]", b"null", b'"x"', b"{}"]
    for member in EVENT:
        found.append(json.dumps({key: value for key, value in EVENT.items() if key != member}).encode())
        found += [json.dumps({**EVENT, member: value}).encode() for value in KINDS.values()]
        found.append(json.dumps({**EVENT, member: "a" * 1_000}).encode())
    for changes in (
        {"eventId": "e2", "metadata": {**EVENT["metadata"], "toolCallId": "c2", "inputPayload": None}},
         # type: ignore[dict-item]
        {"eventId": "e3", "metadata": {**EVENT["metadata"], "toolName": "x" * 201}},
         # type: ignore[dict-item]
        {"eventId": "e4", "eventType": "run.started", "metadata": {"task": "t", "toolCallId": "x" * 201}},
        {"eventId": "e5", "eventType": "run.completed", "metadata": {"cancelApprovals": 1}},
        {"eventId": "e6", "eventType": "run.completed", "metadata": {"cancelApprovals": "yes"}},
        {"eventId": "e7", "eventType": "tool.completed", "metadata": {"toolCallId": "call-1",
        "outputPayload": [1]}},
        {"eventId": "e8", "eventType": "custom.a b"}, {"eventId": "e8", "eventType": "custom.x\n"},
        {"eventId": "e9", "eventType": "custom.ok", "status": "a" * 65}, {"eventId": "ea",
        "eventType": "custom.ok"},
        {"eventId": "eb", "organisationId": "other"}, {"eventId": "ec", "organisationId": "default",
        "runId": "r9"},
        {"eventId": "ed", "metadata": {"organisationId": {"a": ["b"] * 1_000}, **EVENT["metadata"]}},
         # type: ignore[dict-item]
        {"eventId": "ee", "agentId": "another"}, {"eventId": "event-1", "timestamp": "2026-01-31T09:30:01Z"},
        {"eventId": "ef", "metadata": {**EVENT["metadata"], "inputPayload": {"amount": 2}}},
         # type: ignore[dict-item]
        {"eventId": "eg", "metadata": {**EVENT["metadata"], "userToken": "a.b.c"}},  # type: ignore[dict-item]
        {"eventId": "eh", "timestamp": "yesterday"}, {"eventId": "ei", "timestamp": "2026-13-31T09:30:00Z"},
        {"eventId": "ej", "timestamp": "9" * 60}, {"eventId": "ek", "timestamp": "0001-01-01T00:00:00+23:59"},
        {"eventId": "\u2028\u202e\x01", "runId": "\U0001f600", "metadata": {"toolCallId": "\x7f",
        "toolName": "\t"}},
    ):  # fmt: skip
        found.append(json.dumps({**EVENT, **changes}).encode())
    return [*found, b'{"a":"' + b"x" * 2_000_000 + b'"}']


def event_requests(key: str) -> list[tuple[str, str, Any, list[tuple[str, str]]]]:
    credential = ("X-API-Key", key)
    found: list[tuple[str, str, Any, list[tuple[str, str]]]] = [
        ("POST", "/v1/events", body or [b""], [credential, JSON]) for body in event_bodies()
    ]
    whole = json.dumps({**EVENT, "eventId": "by-header"}).encode()
    for headers in (
        [], [JSON], [credential], [credential, credential, JSON], [credential, JSON, JSON],
        [credential, JSON, ("Content-Encoding", "gzip")], [credential, ("Content-Type", "text/plain"), JSON],
        [credential, JSON, ("Content-Length", "²")], [credential, JSON, ("Content-Length", "9" * 5_000)],
        [("X-API-Key", "x"), JSON], [("Authorization", "Bearer x"), JSON], [credential, ("Authorization",
        "Bearer x"), JSON],
        [credential, JSON, ("X-Request-Id", "mine")], [credential, JSON, ("X-Request-Id", "a b")],
        [credential, JSON, ("X-Request-Id", "mine"), ("X-Request-Id", "yours")], [credential, JSON, ("Host",
        "[")],
    ):  # fmt: skip
        found.append(("POST", "/v1/events", whole, list(headers)))
    for target in (
        "/v1/events?",
        "/v1/events?a=1",
        "/v1/events?&",
        "/v1/events?%00",
        "/v1/%65vents",
        "/v1/events/",
    ):
        found.append(("POST", target, whole, [credential, JSON]))
    for method in ("GET", "PUT", "OPTIONS", "post", "HEAD"):
        found.append((method, "/v1/events", whole, [credential, JSON]))
    pieces = [whole[start : start + 7] for start in range(0, len(whole), 7)]
    found += [
        ("POST", "/v1/events", pieces, [credential, JSON]),
        ("POST", "/v1/events", [whole, b""], [credential, JSON]),
    ]
    found.append(("POST", "/v1/events", [b"x" * 600_000] * 2, [credential, JSON]))
    return found


def as_sent(request: tuple[str, str, Any, list[tuple[str, str]]]) -> bytes:
    method, target, body, headers = request
    lines = [f"{name}: {value}" for name, value in [*headers, ("Connection", "close")]]
    if isinstance(body, list):
        lines.append("Transfer-Encoding: chunked")
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in body if part]
        content = b"".join([*chunks, b"0\r\n\r\n"])
    else:
        content = body
        if not any(name == "Content-Length" for name, _ in headers):
            lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "\r\n"]).encode("latin-1") + content


def comparable(answer: bytes) -> tuple[int, list[bytes], bytes]:
    """Status, headers and body, without the ids that differ between any two answers."""
    answer = re.sub(rb'"auditHash":"[0-9a-f]{64}"', b"*", answer)
    head, _, body = re.sub(rb"(aud|req|apr)_[0-9a-z]+", rb"\1_*", answer).partition(b"\r\n\r\n")
    first, *headers = head.lower().split(b"\r\n")
    return int(first.split()[1]), sorted(headers), body


def test_the_fast_path_answers_as_the_router_does(tmp_path: Path) -> None:
    """The same requests in the same order to two services, once with the fast path, once without."""

    async def play(folder: Path, fast: bool) -> list[tuple[int, list[bytes], bytes]]:
        async with Service(folder, [POLICY]) as service:
            found = []
            for request in event_requests(service.credentials["agent"]["X-API-Key"]):
                state = {STATE: service.context} if fast else {}
                connection = Connection(service, app=service.application, state=state)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await connection.send(as_sent(request), rounds=1)
                        while not connection.wire.closing:
                            await asyncio.sleep(0.001)
                found.append(comparable(connection.wire.written))
            return found

    fast = asyncio.run(play(tmp_path / "fast", True))
    routed = asyncio.run(play(tmp_path / "routed", False))
    statuses = {status for status, _, _ in fast}
    assert statuses == {200, 400, 401, 403, 404, 405, 409, 413, 415, 422}, statuses
    for request, one, other in zip(event_requests("the key"), fast, routed, strict=True):
        assert one == other, f"{request[:2]} {str(request[2])[:100]} {request[3]}"


_TEXT = st.text(max_size=3) | st.sampled_from(
    ["x" * 200, "x" * 201, "run.started", "custom.a", "tool.called", "\n"]
)
_VALUE = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
)
_ANY = st.recursive(
    _VALUE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_METADATA = st.dictionaries(
    st.sampled_from(["toolCallId", "toolName", "inputPayload", "actionHint", "reason", "task", "model",
    "agentContext",
                     "userToken", "cancelApprovals", "outputPayload", "other"]),
    _TEXT | _ANY,
)  # fmt: skip
_TYPES = st.sampled_from(
    ["run.started", "run.completed", "run.failed", "tool.called", "tool.completed", "tool.failed",
    "custom.x", "tool.call",
     "custom.", "custom.x\n"]
)  # fmt: skip


@st.composite
def _events(draw: Any) -> dict[str, Any]:
    """Events that are right but for a member or two."""
    body: dict[str, Any] = json.loads(json.dumps(EVENT))
    body["eventType"] = draw(_TYPES)
    if draw(st.booleans()):
        body["metadata"] |= draw(_METADATA)
    else:
        body["metadata"] = draw(_METADATA | _ANY)
    if draw(st.booleans()):
        names = st.sampled_from([*EVENT, "status", "organisationId", "other"])
        body[draw(names)] = draw(_ANY)
    for name in draw(st.sets(st.sampled_from(list(body)), max_size=1)):
        del body[name]
    return body


@given(_events())
@examples(250, 5_000)
def test_quick_checks_of_an_event_agree_with_its_schema(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    try:
        read_event(raw)
        accepted = True
    except ApiError as error:
        assert error.code in ("validation_failed", "invalid_json")
        accepted = False
        if (
            error.errors
            and error.errors[0]["pointer"] == "/timestamp"
            and not violations("bodies/event", body)
        ):
            return  # the schema cannot say what a time is
        if "\\u0000" in raw.decode():
            return
    assert accepted == (not violations("bodies/event", body))


_SPELT_TEXTS = st.sampled_from(
    [
        '"a"', r'"\u0061"', '":"', r'"\u003a"', r'"\u003A"', r'"\\u003a"', r'"\""', r'"\u0022:"', r'"\\"',
        r'"\n"', '"a:b"', '"{["', r'"\u0000"', r'"\\u0000"', '"0.1000000000000000055"',
        '"é"', r'"\u00e9"', '"null"',
    ]
)  # fmt: skip
_SPELT_VALUES = _SPELT_TEXTS | st.sampled_from(
    [
        *("null", "true", "1", "-0", "0.1", "0.10", "-0.0", "1e2", "1E400", "1e-400", "5e-324"),
        *("0.30000000000000004", "0.3000000000000000444", "123456789.12345678", "12345678901.12345678"),
        *("1.0e22", "100000000000000000000"),
        *("[" * depth + "]" * depth for depth in (61, 62, 63)),
        *('{"a":' * depth + "1" + "}" * depth for depth in (61, 62, 63)),
    ]
)  # fmt: skip


def _spelt_members(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Members of an object, compact or not, some names twice."""
    pairs = st.lists(st.tuples(_SPELT_TEXTS, values), max_size=4)
    between = st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")])
    return st.builds(
        lambda pairs, between: between[0].join(name + between[1] + value for name, value in pairs),
        pairs,
        between,
    )


_SPELT = _spelt_members(
    st.recursive(
        _SPELT_VALUES,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
            | _spelt_members(inner).map(lambda members: f"{{{members}}}")
        ),
        max_leaves=6,
    )
)


@given(
    event_id=_SPELT_TEXTS,
    again=st.sampled_from(["", "", "", '"runId":"r",', '"status":null,']),
    members=_SPELT,
)
@example(event_id='"a"', again="", members='"a":1,"a":1,"b":[1e2,1e2,1e2]')  # as long as it is written again
@example(event_id=r'"\u0000"', again="", members="")  # written again byte for byte
@examples(500, 10_000)
def test_however_an_event_is_spelt_what_is_read_is_what_it_says(
    event_id: str, again: str, members: str
) -> None:
    """The quick checks find what looking at all of it finds: keys twice, NULs, depth, inexact fractions."""

    def refusal(look: Callable[[], Any]) -> Any:
        try:
            look()
        except ApiError as error:
            return error.code, error.detail, error.errors
        return None

    raw = (
        f'{{"eventId":{event_id},"runId":"r","agentId":"a","timestamp":"2026-01-31T09:30:00Z",'
        f'"eventType":"custom.x",{again}"metadata":{{{members}}}}}'
    ).encode()
    expected = refusal(lambda: (bodies.decode_unique(raw), bodies.check_digits(raw)))
    assert refusal(lambda: read_event(raw)) == expected
    if expected is None:
        metadata = bodies.decode_unique(raw)["metadata"]
        assert read_event(raw)[1] == {name: value for name, value in metadata.items() if value is not None}


def test_numbers_of_any_size_are_decided_on(tmp_path: Path) -> None:
    """Whatever number gets in is decided on by every operator, and is there afterwards."""
    conditions: list[dict[str, Any]] = [
        {"field": "inputPayload.n", "operator": operator, "value": value}
        for operator, value in [
            ("equals", 1), ("not_equals", "1"), ("in", [1, "1"]), ("not_in", [2]), ("contains", "9"),
            ("not_contains", "x"), ("starts_with", "9"), ("ends_with", "9"), ("matches", "^9+$"),
            ("not_matches", "x"),
            ("greater_than", 1), ("greater_than_or_equal", 1), ("less_than", 1), ("less_than_or_equal", 1.5),
        ]
    ]  # fmt: skip
    conditions += [{"field": "inputPayload.n", "operator": name} for name in ("exists", "not_exists")]
    conditions += [
        {"expression": f'toolName == "t" && inputPayload.n {operator} {value}'}
        for operator in ("==", "!=", "<", "<=", ">", ">=")
        for value in ("1", "1.5", '"x"', "null")
    ]
    conditions += [
        {"expression": f'toolName == "t" && inputPayload.n {operator} 3 == 2'}
        for operator in ("+", "-", "*", "/", "%")
    ]
    policies = [
        {"name": f"policy {number}", "action": "warn", "matchConditions": [condition]}
        for number, condition in enumerate(conditions)
    ]

    async def play() -> None:
        async with Service(tmp_path, policies) as service:
            numbers = ["9" * digits for digits in (18, 19, 20, 30, 309, 400, 4_000)]
            numbers += ["-" + number for number in numbers] + [
                "1e308",
                "-1e308",
                "5e-324",
                "1e-400",
                "-0",
                "0.1",
            ]
            for count, number in enumerate(numbers):
                for shape in ('{"n":%s}', '{"n":[%s]}', '{"n":{"m":%s}}', '{"n":"%s"}'):
                    event = json.dumps({**EVENT, "eventId": f"e{count}{shape}", "runId": f"r{count}{shape}"})
                    raw = event.replace('{"amount": 1}', shape % number).replace('"wire"', '"t"')
                    answer = await service.call("agent", "POST", "/v1/events", raw=raw)
                    assert answer.status_code == 200, answer.text
                    again = await service.call("agent", "POST", "/v1/events", raw=raw)
                    assert again.headers["idempotent-replay"] == "true" and again.content == answer.content

    asyncio.run(play())


async def test_a_batch_of_everything_wrong_answers_each(tmp_path: Path) -> None:
    async with Service(tmp_path, [POLICY]) as service:
        events: list[Any] = [{**EVENT, "eventId": f"e{number}", "runId": "r"} for number in range(2)]
        events += [{}, {"a": 1}, {**EVENT, "eventId": ["x"]}, {**EVENT, "organisationId": "other"}]
        events += [{**EVENT, "eventId": "x", "metadata": {"toolName": "t"}}, {**EVENT, "agentId": ""}]
        answer = await service.answered("agent", "POST", "/v1/events/batch", {"events": events})
        statuses = [result["status"] for result in answer["results"]]
        assert statuses == [200, 200, 422, 422, 422, 403, 422, 422]
        for events in ([], [EVENT] * 1_001, [[]], ["x"], [None] * 1_001):  # type: ignore[list-item]
            await service.answered("agent", "POST", "/v1/events/batch", {"events": events}, status=422)
