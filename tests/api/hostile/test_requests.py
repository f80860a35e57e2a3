"""Careless and hostile requests around the body: queries, ids in paths, methods, headers, credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from api.cli.serving.log_lines import OneLine
from api.http.route import Route
from api.server.routes import ROUTES
from tests.harness.hostile import SAMPLES, World, everybody, name_of, target_of, text_of
from tests.harness.raw_requests import problem


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


QUERIES = (
    "nope=1", "nope", "=1", "&&=&", "%00=1", "limit=1&limit=1", "a" * 60_000, "a=" + "b" * 60_000,
    "&".join(f"a{number}=1" for number in range(5_000)), "%ff=%ff", "%zz=1",
    "\u00e9=1".encode().decode("latin-1"),
    "__proto__=1", "limit[]=1", "limit%00=1", "LIMIT=1", ";limit=1", "?limit=1",
)  # fmt: skip


@everybody(list(ROUTES))
def test_unknown_query_parameters_are_refused(world: World, route: Route, who: str) -> None:
    for query in QUERIES:
        if query == "&&=&":
            continue
        body = text_of(route) if route.body else b""
        answer = world.send(who, route.method, f"{target_of(route)}?{query}", body)
        found = problem(answer, "validation_failed", "not_found")
        assert len(found["errors"]) <= 100


BAD_NUMBERS = (
    "-1", "0", "", "+1", "1.0", "1e2", "0x10", "1_000", " 1", "1 ", "%31%00", "%D9%A3", "NaN", "null",
    "true", "[]",
    "9" * 16, "9" * 30, "9" * 5_000, "-" + "9" * 30, "%ff", "%F0%9F%98%80",
)  # fmt: skip
BAD_CURSORS = (
    "", "x", "=", "AAAA", "%00", "%ff", "\u00e9".encode().decode("latin-1"), "bnVsbA", "e30", "WzEsMl0",
    "LTE",
    "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "IlxkODAwIg", "IlxcdTAwMDAi", "WyJhIl0", "a" * 401, "a" * 60_000,
    "W1tbW1tbW1tbW1tbW1tbW10", "MWU0MDA", "TmFO",
)  # fmt: skip


@everybody([route for route in ROUTES if route.query])
def test_query_parameters_are_checked(world: World, route: Route, who: str) -> None:
    target = target_of(route)
    for query in route.query:
        kind = query.schema["type"]
        if kind == "integer":
            bad = [text for text in BAD_NUMBERS if not (text == "0" and query.schema.get("minimum", 1) <= 0)]
            bad.append(str(query.schema["maximum"] + 1))
        elif "enum" in query.schema:
            bad = ["", "nope", "%00", query.schema["enum"][0].upper(), query.schema["enum"][0] + "%20"]
        else:
            bad = ["%00", "a%00b", "a" * (query.schema.get("maxLength", 500) + 1), "a" * 60_000]
        for text in bad:
            problem(world.send(who, route.method, f"{target}?{query.name}={text}"), "validation_failed")
        fine = (
            str(query.schema.get("default", 1)) if kind == "integer" else query.schema.get("enum", ["x"])[0]
        )
        twice = f"{target}?{query.name}={fine}&{query.name}={fine}"
        problem(world.send(who, route.method, twice), "validation_failed")
        for text in ("%ff", "%F0%9F%98%80", "'%20OR%201=1--", "%25", "..", "a%0d%0aX:y"):
            answer = world.send(who, route.method, f"{target}?{query.name}={text}")
            assert answer.status < 500, answer.said
        if query.name == "cursor":
            for text in BAD_CURSORS:
                answer = world.send(who, route.method, f"{target}?cursor={text}")
                assert answer.status == 200 or problem(answer, "validation_failed", "not_found")
    world.is_well()


IDS = (
    "..", ".", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%00", "a%00b", "a" * 301, "a" * 300, "a" * 255,
    "a" * 101, "a" * 10_000,
    "%F0%9F%98%80", "%ff%fe", "%0d%0aSet-Cookie:%20x=1", "%0a", "%20", "'%20OR%20'1'='1", "%22", "%5c..%5c..",
    "*", "%25", "%", "%zz", "-1", "null", "undefined", "9" * 100, "%E2%80%AE", "a;b", "~", "con", "COM1.yaml",
    "a%2Fb",
)  # fmt: skip


@everybody([route for route in ROUTES if ":" in route.path])
def test_absurd_ids_are_not_found(world: World, route: Route, who: str) -> None:
    for text in IDS:
        parts = [text if part.startswith(":") else part for part in route.path.split("/")]
        body = text_of(route) if route.body else b""
        answer = world.send(who, route.method, "/".join(parts), body)
        problem(answer, "not_found", "validation_failed")
        assert "set-cookie" not in dict(answer.headers)
    world.is_well()


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_odd_methods_are_405(world: World, path: str) -> None:
    target = path.replace(":id", "x").replace(":", "")
    served = {route.method for route in ROUTES if route.path == path}
    for method in ("TRACE", "CONNECT", "PROPFIND", "OPTIONS", "BREW", "get", "PATCHY", "M-SEARCH", "PURGE"):
        for who in ("nobody", "admin", "agent"):
            answer = world.send(who, method, target)
            problem(answer, "method_not_allowed")
            assert served <= set(str(answer.header("allow")).split(", "))
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - served:
        answer = world.send("admin", method, target)
        if answer.status != 405:  # another route's parameter takes this path
            assert answer.status < 500
            continue
        problem(answer, "method_not_allowed")


@everybody([route for route in ROUTES if route.method == "GET"])
def test_head_is_get_without_its_body(world: World, route: Route, who: str) -> None:
    head = world.send(who, "HEAD", target_of(route))
    assert head.status < 500
    if route.media_type != "text/event-stream":
        got = world.send(who, "GET", target_of(route))
        assert head.status == got.status
        assert head.header("content-type") == got.header("content-type")


@pytest.mark.parametrize(
    "target",
    ["/", "//", "/v1", "/v1/", "/v1/nope", "/health/", "/v1/events/", "/v1/policies/", "/%00", "/%ff",
    "/" + "a" * 60_000,
     "/console/" + "a" * 5_000, "/console/../app.py", "/console/%2e%2e/app.py", "/console/%00", "/console/",
     "/console/%F0%9F%98%80", "/api", "/api/docs/", "/.git/config", "/v1//policies", "/../v1/policies", "*",
     "/approvals/../v1/policies", "/v1/policies%2fsimulate", "/api/docs/%2e%2e"],
)  # fmt: skip
def test_paths_of_nothing(world: World, target: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD"):
        for who in ("nobody", "admin"):
            answer = world.send(who, method, target)
            assert answer.status < 500, answer.said
            if answer.status >= 400 and not target.startswith("/console"):
                problem(answer)
            assert b"import " not in answer.body
    world.is_well()


BAD_TOKENS = (
    "", " ", "Bearer", "Bearer ", "Bearer  ", "Basic YTpi", "Bearer a", "Bearer a.b.c", "Bearer a b",
    "Bearer\ta",
    "Digest x", "Bearer " + "a" * 60_000, "Bearer \xff\xfe", "Bearer ..", "Bearer eyJhbGciOiJub25lIn0.e30.",
    "null",
    "Bearer null", "Bearer [object Object]", "Bearer " + "a." * 30_000,
)  # fmt: skip
BAD_KEYS = (
    "",
    " ",
    "x",
    "agk_",
    "agk_" + "a" * 43,
    "\xff" * 40,
    "a" * 60_000,
    "agk_of_the_agent ",
    "null",
    "' OR 1=1 --",
)


@pytest.mark.parametrize("route", [r for r in ROUTES if "anyone" not in r.who], ids=name_of)
def test_bad_credentials_are_401(world: World, route: Route) -> None:
    world.service.clock.advance(60)  # for wrong keys, of which there may be so many in a minute
    body = text_of(route) if route.body else b""
    bad: list[list[tuple[str, str]]] = [[]]
    bad += [[("Authorization", token)] for token in BAD_TOKENS]
    bad += [[("X-API-Key", key)] for key in BAD_KEYS if key.strip() != "agk_of_the_agent"]
    bad += [[("Cookie", "token=x")], [("X-Forwarded-User", "admin@acme.example")]]
    people = [name for name in ("viewer", "reviewer", "admin") if name in route.who]
    if people:
        good = world.credential(people[-1])
        bad += [
            [*good, *good],
            [*good, ("Authorization", "Bearer x")],
            [("Authorization", "Bearer x"), *good],
        ]
        if "agent" in route.who:  # a bad token is no way around by a good key, whichever comes first
            bad += [[("Authorization", "Bearer x"), *world.credential("agent")]]
    if "agent" in route.who:
        good = world.credential("agent")
        bad += [[*good, *good], [*good, ("X-API-Key", "x")], [("X-API-Key", "x"), *good]]
    for headers in bad:
        problem(world.send("nobody", route.method, target_of(route), body, headers), "unauthenticated")
    world.is_well()


def test_headers_do_not_get_into_answers(world: World) -> None:
    for sent in ("a b", "a\r\nSet-Cookie: x=1", "a" * 101, "<script>", "\xff", "", "a\x00b", "${jndi:x}"):
        answer = world.send("admin", "GET", "/v1/me", headers=[("X-Request-Id", sent)])
        assert answer.status == 200 and answer.header("x-request-id") != sent
    for host in ("[", "[::1", "evil.example/x?y", "a b", "", "\xff", "a" * 60_000, "a@b", "x:99999999"):
        for target in ("/v1/users?limit=1", "/nope", "/v1/me", "/"):
            answer = world.send("admin", "GET", target, headers=[("Host", host)])
            assert answer.status < 500, answer.said
            link = answer.header("link")
            assert link is None or link.startswith("</v1/users?limit=1&cursor="), link
            assert host == "" or len(host) < 3 or host not in (answer.header("location") or "")
    for tag in ("x", '"x', '"x","y"', "W/", "*x", "\xff", "a" * 60_000, '"9999999"', 'W/"1"'):
        headers = [("If-Match", tag)]
        answer = world.send("admin", "PATCH", "/v1/policies/no-wires", b'{"description":"x"}', headers)
        problem(answer, "precondition_failed")


def test_addresses_that_proxies_pass_on_are_addresses(world: World) -> None:
    for client in (
        None,
        ("", 0),
        ("a" * 60_000, 0),
        ("\r\nx", 0),
        ("192.0.2.1, 10.0.0.1", 0),
        ("fe80::1%" + "x" * 500, 0),
    ):
        body = json.dumps(SAMPLES["login"]).encode()
        answer = world.send("nobody", "POST", "/auth/login", body, client=client)
        problem(answer, "unauthenticated", "rate_limited")
    records = world.send("admin", "GET", "/v1/audit?type=login.failed&limit=100").json()
    assert all(len(record["details"]["address"]) <= 64 for record in records)


def test_a_fault_of_ours_tells_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("the secret is 42")

    writer = world.service.context.writer
    monkeypatch.setattr(type(writer.ingest), "apply", broken)
    monkeypatch.setattr("api.store.runs.list_runs", broken)
    event = json.dumps(SAMPLES["event"]).encode()
    batch = json.dumps(SAMPLES["event-batch"]).encode()
    for who, method, target, body in (
        ("agent", "POST", "/v1/events", event),
        ("agent", "POST", "/v1/events?", event),
        ("viewer", "GET", "/v1/runs", b""),
    ):
        answer = world.send(who, method, target, body)
        document = answer.json()
        assert answer.status == document["status"] == 500 and document["code"] == "internal_error"
        assert document["requestId"] == answer.header("x-request-id")
        assert b"secret" not in answer.body and b"ZeroDivision" not in answer.body
        lines = "\n".join(map(OneLine().format, caplog.records))
        assert document["requestId"] in lines and "ZeroDivisionError" in lines
        caplog.clear()
    answer = world.send("agent", "POST", "/v1/events/batch", batch)
    result = answer.json()["results"][0]
    assert answer.status == 200 and result["error"]["code"] == "internal_error"
    assert b"secret" not in answer.body and "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    # Events did fail, so the service says that it is not well, until one is recorded again.
    assert world.send("nobody", "GET", "/health").status == 503
    assert world.send("agent", "POST", "/v1/events", event).status == 200
    world.is_well()
