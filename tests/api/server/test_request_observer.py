"""Every request has an id, is counted by route and status, and gets a line in the log where that is asked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from api import metrics
from api.server.request_observer import trace_id_of
from tests.harness.application import Service, event
from tests.harness.running_service import Served

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def requests(method: str, route: str, status: int) -> float:
    metrics.totals()  # what was answered quickly is counted when somebody looks
    labels = {"method": method, "route": route, "status": str(status)}
    return metrics.REGISTRY.get_sample_value("governance_requests_total", labels) or 0.0


@pytest.mark.parametrize("sent", ["req-from.outside:7", "a" * 100])
async def test_a_request_id_is_taken_over_everywhere(tmp_path: Path, sent: str) -> None:
    async with Service(tmp_path) as service:
        ways = [("admin", "/v1/runs", 200), ("nobody", "/v1/runs", 401), ("nobody", "/nothing", 404)]
        for who, path, status in [*ways, ("nobody", "/docs", 200), ("nobody", "/health", 200)]:
            answer = await service.call(who, "GET", path, headers={"X-Request-Id": sent})
            assert (answer.status_code, answer.headers["x-request-id"]) == (status, sent)
            assert answer.headers.get_list("x-request-id") == [sent]
            if status >= 400:
                assert answer.json()["requestId"] == sent


@pytest.mark.parametrize("sent", ["", "a" * 101, "with blank", 'q"uote', "{id}"])
async def test_an_odd_request_id_gives_way_to_one_of_ours(tmp_path: Path, sent: str) -> None:
    async with Service(tmp_path) as service:
        answer = await service.call("nobody", "GET", "/nothing", headers={"X-Request-Id": sent})
        assert answer.headers["x-request-id"] == answer.json()["requestId"]
        assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-b7ad6b7169203331",
    ],
)
def test_what_is_no_traceparent_names_no_trace(parent: str) -> None:
    assert trace_id_of(PARENT) == TRACE
    assert trace_id_of(f"01{PARENT[2:]}-of-a-later-version") == TRACE
    assert trace_id_of(parent) == ""


async def test_requests_are_counted_by_route_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_counted_requests", {})  # other tests may have filled it
    async with Service(tmp_path) as service:
        for who, method, path, route, status in [
            ("admin", "GET", "/v1/runs/run-9", "/v1/runs/:id", 404),
            ("agent", "GET", "/v1/policies", "/v1/policies", 401),
            ("nobody", "GET", "/no/such/agk_secret", "", 404),
            ("nobody", "GET", "/console/app.js", "/console/:name", 200),
            ("nobody", "DELETE", "/health", "/health", 405),
        ]:
            before = requests(method, route, status)
            assert (await service.call(who, method, path)).status_code == status
            assert requests(method, route, status) == before + 1, path
        before = requests("", "/health", 405)
        for method in ("PROPFIND", "BREW"):
            await service.call("nobody", method, "/health")
        assert requests("", "/health", 405) == before + 2
        shown = (await service.call("nobody", "GET", "/metrics")).text
        assert "agk_secret" not in shown and "run-9" not in shown and "BREW" not in shown


def test_both_ways_of_an_event_count(tmp_path: Path) -> None:
    with Served(tmp_path) as service:
        before = requests("POST", "/v1/events", 200)
        for number, header in enumerate(({}, {"Content-Type": "application/json; charset=utf-8"})):
            body = event(number, "custom.note", service.clock.text, {})
            service.answered("agent", "POST", "/v1/events", body, headers=header)
        assert requests("POST", "/v1/events", 200) == before + 2


def test_an_access_line_says_who_did_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="governance.access")
    with Served(tmp_path, GOVERNANCE_ACCESS_LOG="on") as service:
        body = event(1, "custom.note", service.clock.text, {})
        service.call("agent", "POST", "/v1/events", body, headers={"traceparent": PARENT})
        service.call("admin", "GET", "/v1/runs/run%2F1?wait=0&token=do-not-show-this")
        service.http.get("/nothing/here/that/is/known")
    lines = [each for each in caplog.records if each.name == "governance.access"]
    events, run, nothing = (members(line) for line in lines)
    assert events["durationMs"] > 0 and events["bytes"] > 50
    key = service.callers["agent"].actor
    assert [events[name] for name in ("method", "route", "path", "status", "actor", "organisationId")] == [
        *("POST", "/v1/events", "/v1/events", 200, key, "default")
    ]
    assert (run["route"], run["path"], run["actor"]) == (
        *("/v1/runs/:id", "/v1/runs/run%2F1"),
        "admin@acme.example",
    )
    assert (nothing["route"], nothing["status"], nothing["client"]) == ("", 404, "127.0.0.1")
    assert nothing["path"] == "/nothing/here/..."
    assert "actor" not in nothing
    assert "do-not-show-this" not in caplog.text
    assert lines[0].getMessage().startswith("127.0.0.1 POST /v1/events 200 ")
    assert lines[0].getMessage().endswith(f" bytes {key}")


def members(line: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = line.__dict__["members"]
    return found


def test_without_an_access_log_nothing_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="governance.access")
    with Served(tmp_path) as service:
        service.http.get("/health")
    assert not [each for each in caplog.records if each.name == "governance.access"]
