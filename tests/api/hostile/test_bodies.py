"""Careless and hostile bodies: every route that takes one, every kind of credential that may call it.

The answer is always a complete problem document with the right code, never a 5xx, never a quiet yes, and the
service is well afterwards.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import schemas
from api.http import bodies
from api.http.problems import ApiError
from api.http.route import Route
from api.ingestion.turns import LARGE
from api.server.routes import ROUTES
from tests.harness.hostile import (
    JSON,
    KINDS,
    NOT_JSON,
    WITH_BODY,
    World,
    anybody,
    everybody,
    refusal,
    sample,
    target_of,
    text_of,
)
from tests.harness.raw_requests import problem, send


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


def is_too_large(world: World, route: Route, who: str, body: bytes) -> bool:
    """Whether it is, of somebody who is not known; that is refused then."""
    if who != "nobody" or len(body) <= LARGE:
        return False
    problem(world.send(who, route.method, target_of(route), body), "payload_too_large")
    return True


@everybody(WITH_BODY)
def test_what_is_no_json_is_refused(world: World, route: Route, who: str) -> None:
    for kind, body in NOT_JSON.items():
        if not body and route.body_optional:
            continue
        if is_too_large(world, route, who, body):
            continue
        sent = body or [b""]
        found = problem(world.send(who, route.method, target_of(route), sent), "invalid_json")
        assert found["status"] == 400, kind
    world.is_well()


@everybody(WITH_BODY)
def test_a_key_that_stands_twice_is_refused(world: World, route: Route, who: str) -> None:
    first, value = next(iter(sample(route).items()))
    whole = text_of(route)
    pair = json.dumps({first: value})[1:-1].encode()
    escaped = f'"\\u{ord(first[0]):04x}{first[1:]}":0'.encode()
    deep = b'{"nope":{"x":1,"x":2}}'
    for body in (
        b"{" + pair + b"," + whole[1:],
        whole[:-1] + b"," + pair + b"}",
        b"{" + escaped + b"," + whole[1:],
        deep,
    ):
        answer = world.send(who, route.method, target_of(route), body)
        problem(answer, "invalid_json")
    if route.path == "/v1/events":
        for inner in (
            b'"a":1,"a":2',
            b'"a":"x:y","\\u0061":2',
            b'"a":1,"b":"\\u003a","a":"p"',
            b'"a":null,"a":1',
        ):
            body = whole.replace(b'"amount": 1', inner)
            assert body != whole
            problem(world.send(who, route.method, target_of(route), body), "invalid_json")
    world.is_well()


@everybody(WITH_BODY)
def test_another_json_value_than_an_object_is_refused(world: World, route: Route, who: str) -> None:
    for body in (b"[]", b"[{}]", b'"text"', b"7", b"null", b"true", b"-0.0", b'""', b"9" * 30):
        found = problem(world.send(who, route.method, target_of(route), body), refusal(route))
        assert found["errors"][0]["pointer"] == "", found


@everybody(WITH_BODY)
def test_other_media_types_are_refused(world: World, route: Route, who: str) -> None:
    body, target = text_of(route), target_of(route)
    for media in (
        "", "text/plain", "text/json", "application/xml", "application/jsonx", "application/json-patch+json",
        "application/problem+json", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded",
        "*/*", "application/*", "json", "application/json,text/plain", "\xff", "a" * 5_000,
    ):  # fmt: skip
        found = problem(world.send(who, route.method, target, body, [("Content-Type", media)]))
        assert found["code"] == "unsupported_media_type", media
    for packed in ("gzip", "br", "deflate", "gzip, gzip", "x"):
        headers = [JSON, ("Content-Encoding", packed)]
        problem(world.send(who, route.method, target, gzip.compress(body), headers), "unsupported_media_type")
    bare = [*world.credential(who)]
    answer = world.runner.run(send(world.service.application, route.method, target, body, bare))
    problem(answer, "unsupported_media_type")


@everybody(WITH_BODY)
def test_usual_spellings_of_json_are_accepted(world: World, route: Route, who: str) -> None:
    for media in ("application/json; charset=utf-8", "APPLICATION/JSON", " application/json ;x=y"):
        answer = world.send(who, route.method, target_of(route), b"[]", [("Content-Type", media)])
        problem(answer, refusal(route))


@anybody(WITH_BODY)
def test_two_megabytes_are_too_much(world: World, route: Route, who: str) -> None:
    body = b'{"a":"' + b"x" * 2_000_000 + b'"}'
    pieces = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    target = target_of(route)
    problem(world.send(who, route.method, target, body), "payload_too_large")
    problem(world.send(who, route.method, target, pieces), "payload_too_large")
    problem(world.send(who, route.method, target, [body]), "payload_too_large")
    for lie in ("99999999999999999999", "9" * 5_000, "0" * 40 + "2000000"):
        problem(
            world.send(who, route.method, target, b"{}", [JSON, ("Content-Length", lie)]), "payload_too_large"
        )
    for noise in ("²", "-1", "1e3", "", "0x10"):  # no length at all; the body itself counts
        problem(
            world.send(who, route.method, target, b"[]", [JSON, ("Content-Length", noise)]),
            refusal(route),
        )


@everybody([route for route in ROUTES if route.body is None and route.method != "GET"])
def test_two_megabytes_nobody_asked_for_are_too_much(world: World, route: Route, who: str) -> None:
    problem(world.send(who, route.method, target_of(route), b"x" * 2_000_000), "payload_too_large")
    problem(world.send(who, route.method, target_of(route), [b"x" * 500_000] * 4), "payload_too_large")


def resolved(schema: Any, file: str) -> dict[str, Any]:
    """A schema with its `$ref` followed, as far as its type goes."""
    while "$ref" in schema:
        name, _, fragment = schema["$ref"].partition("#")
        if name:
            parts = file.split("/")[:-1]
            for part in name.removesuffix(".json").split("/"):
                parts = parts[:-1] if part == ".." else [*parts, part]
            file = "/".join(parts)
        schema = schemas.load(file)
        for part in filter(None, fragment.split("/")):
            schema = schema[part]
    if "allOf" in schema and "properties" not in schema:
        return resolved(schema["allOf"][0], file)
    return {**schema, "x-file": file}


def members(route: Route) -> dict[str, dict[str, Any]]:
    top = resolved(schemas.load(f"bodies/{route.body}"), f"bodies/{route.body}")
    return {name: resolved(schema, top["x-file"]) for name, schema in top["properties"].items()}


def allowed_kinds(schema: Mapping[str, Any]) -> set[str]:
    if "anyOf" in schema:
        inner = [resolved(branch, schema["x-file"]) for branch in schema["anyOf"]]
        return set().union(*(allowed_kinds(branch) for branch in inner))
    if "enum" in schema:
        return set()
    kinds = schema.get("type", list(KINDS))
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    return found | ({"integer"} if "number" in found else set())


@everybody(WITH_BODY)
def test_values_of_the_wrong_type_are_refused(world: World, route: Route, who: str) -> None:
    for member, schema in members(route).items():
        for kind, value in KINDS.items():
            if kind in allowed_kinds(schema):
                continue
            body = json.dumps({**sample(route), member: value}).encode()
            found = problem(world.send(who, route.method, target_of(route), body), refusal(route))
            pointers = {error["pointer"].split("/")[1] for error in found["errors"]}
            assert member in pointers, f"{member}={value}: {found}"
    world.is_well()


@everybody(WITH_BODY)
def test_unknown_and_missing_members_are_refused(world: World, route: Route, who: str) -> None:
    target = target_of(route)
    top = resolved(schemas.load(f"bodies/{route.body}"), f"bodies/{route.body}")
    # The body of another program may have members that nobody foresaw.
    if refusal(route) == "invalid_request" or top.get("additionalProperties") is True:
        _unknown_members_are_ignored(world, route, who)
        return
    for extra in ("nope", "", "__proto__", "constructor", "a/b~c", "ключ", "x" * 100_000, "organisation_id"):
        body = json.dumps({**sample(route), extra: 1}).encode()
        if is_too_large(world, route, who, body):
            continue
        found = problem(world.send(who, route.method, target, body), refusal(route))
        pointer = "/" + extra.replace("~", "~0").replace("/", "~1")
        assert pointer in {error["pointer"] for error in found["errors"]} or len(extra) > 1_000
    many = json.dumps({**sample(route), **{f"k{number}": 0 for number in range(60_000)}}).encode()
    if not is_too_large(world, route, who, many):
        found = problem(world.send(who, route.method, target, many), refusal(route))
        assert 1 <= len(found["errors"]) <= 100
    for name in top.get("required", ()):
        body = json.dumps({key: value for key, value in sample(route).items() if key != name}).encode()
        found = problem(world.send(who, route.method, target, body), refusal(route))
        assert any(f"`{name}`" in error["message"] for error in found["errors"]), found


def _unknown_members_are_ignored(world: World, route: Route, who: str) -> None:
    target, usual = target_of(route), world.send(who, route.method, target_of(route), text_of(route)).status
    for extra in ("nope", "", "__proto__", "constructor", "a/b~c", "ключ", "x" * 100_000, "organisation_id"):
        body = json.dumps({**sample(route), extra: 1}).encode()
        assert world.send(who, route.method, target, body).status == usual
    whole = sample(route)
    for name in {"subject", "action", "resource", "denial"} & whole.keys():
        body = json.dumps({key: value for key, value in whole.items() if key != name}).encode()
        found = problem(world.send(who, route.method, target, body), refusal(route))
        assert any(f"`{name}`" in error["message"] for error in found["errors"]), found
    world.is_well()


@everybody(WITH_BODY)
def test_texts_beyond_their_bounds_are_refused(world: World, route: Route, who: str) -> None:
    for member, schema in members(route).items():
        if "string" not in allowed_kinds(schema):
            continue
        nul = json.dumps({**sample(route), member: "a\0b"}).encode()
        found = problem(world.send(who, route.method, target_of(route), nul), refusal(route))
        assert found["errors"][0]["pointer"] == f"/{member}", found
        if "maxLength" in schema or "anyOf" in schema:
            for length in (schema.get("maxLength", 100_000) + 1, 1_000_000):
                for character in ("a", "\u00e9"[:1]):
                    text = (character * length).encode()[: 1_040_000 - 4_096].decode(errors="ignore")
                    body = json.dumps({**sample(route), member: text}, ensure_ascii=False).encode()
                    if is_too_large(world, route, who, body):
                        continue
                    found = problem(world.send(who, route.method, target_of(route), body), refusal(route))
                    assert member in found["errors"][0]["pointer"]
    for body in (b'{"\\u0000":1}', b'{"x":{"a\\u0000b":[]}}', b'{"x":["\\u0000"]}'):
        problem(world.send(who, route.method, target_of(route), body), refusal(route))


@everybody(WITH_BODY)
def test_numbers_beyond_their_bounds_are_refused(world: World, route: Route, who: str) -> None:
    for member, schema in members(route).items():
        if not {"integer", "number"} & allowed_kinds(schema) or allowed_kinds(schema) >= KINDS.keys():
            continue  # of no number, or of any JSON, whose numbers have no bounds
        for number in ("9" * 30, "-" + "9" * 30, "9" * 4_000, "1e300", "-1", "0.5"):
            body = json.dumps({**sample(route), member: 0}).replace(f'"{member}": 0', f'"{member}": {number}')
            found = problem(world.send(who, route.method, target_of(route), body.encode()))
            assert found["code"] in (refusal(route), "not_found"), found
    world.is_well()


HUGE: Mapping[str, bytes] = {
    "300,000 numbers": b"[" + b",".join([b"1"] * 300_000) + b"]",
    "objects and lists in turn": b"[" + b",".join(b'{"a":%d},[%d]' % (n, n) for n in range(30_000)) + b"]",
    "60,000 texts": b"[" + b",".join(b'"%d"' % n for n in range(60_000)) + b"]",
    "a long text with a control character": b'"' + b"a" * 900_000 + b'\\u0001"',
    "a long text that nearly fits": b'"' + b"a." * 450_000 + b'!"',
    "60,000 keys": b"{" + b",".join(b'"k%d":0' % n for n in range(60_000)) + b"}",
    "blanks": b" " * 900_000 + b"{}",
}
STARTS = {b"[": "array", b'"': "string", b"{": "object", b" ": "blanks"}


@anybody(WITH_BODY)
def test_large_values_cost_little(world: World, route: Route, who: str) -> None:
    """Each answer for three seconds of a core at most (see `World.send`), though nobody else waits for it.

    To the reader of JSON values are the same wherever they stand, and so is the check of what is of another
    type than it may be: of each route, one member has them all, and the others what they may have.
    """
    for number, (member, schema) in enumerate(members(route).items()):
        for value in HUGE.values():
            if number and STARTS[value[:1]] not in allowed_kinds(schema):
                continue
            whole = {key: inner for key, inner in sample(route).items() if key != member}
            body = (
                json.dumps(whole)[:-1].encode()
                + (b"," if whole else b"")
                + f'"{member}":'.encode()
                + value
                + b"}"
            )
            answer = world.send(who, route.method, target_of(route), body)
            assert answer.status < 500, answer.said
            if answer.status >= 400:
                problem(answer)
    world.is_well()


def test_a_nul_is_told_in_the_memory_of_the_body() -> None:
    """A pointer for each value below a long key would take a thousand times as much."""
    body = b'{"a":"\\u0000","' + b"k" * 20_000 + b'":[' + b",".join([b"0"] * 10_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="NUL"):
            bodies.decode_unique(body)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(body)
    finally:
        tracemalloc.stop()


def test_the_pointer_of_a_nul_names_each_step() -> None:
    for text, pointer in (
        ('{"x":[1,{"a/b~":["c\\u0000"]}]}', "/x/1/a~1b~0/0"),
        ('{"x":{"\\u0000":1}}', "/x"),
        ('["\\u0000"]', "/0"),
    ):
        with pytest.raises(ApiError) as refused:
            bodies.decode(text.encode())
        assert refused.value.errors[0]["pointer"] == pointer


def test_an_exponent_that_no_number_has_is_refused_alone(world: World) -> None:
    usual = {"runId": "r", "agentId": "a", "timestamp": "2026-01-31T09:30:00Z", "eventType": "custom.x"}
    events = [json.dumps({"eventId": f"exponent-{n}", **usual, "metadata": {"n": 7}}) for n in range(3)]
    events[1] = events[1].replace('"n": 7', '"n": 1e-30000000000000000000')
    problem(world.send("agent", "POST", "/v1/events", events[1].encode()), "validation_failed")
    batch = world.send("agent", "POST", "/v1/events/batch", f'{{"events":[{",".join(events)}]}}'.encode())
    assert [each["status"] for each in json.loads(batch.body)["results"]] == [200, 422, 200]


def test_an_operator_of_the_wrong_type_is_refused(world: World) -> None:
    for operator in ([], {}, [[]], 7, None):
        condition = {"field": "toolName", "operator": operator, "value": "x"}
        body = json.dumps({"name": "n", "action": "block", "matchConditions": [condition]}).encode()
        problem(world.send("admin", "POST", "/v1/policies", body), "validation_failed")
