"""A hostile agent with a valid key, and strangers: what they can neither reach nor fill up."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from api.server.routes import ROUTES
from api.store import recorded_calls, runs
from tests.harness.application import PASSWORD, Service, event
from tests.harness.hostile import POLICY, SAMPLES, name_of
from tests.harness.watching import alerts, look

HOLD = {**POLICY, "name": "Hold", "policyId": "hold", "action": "require_approval"}
ZOO = {**POLICY, "name": "Zoo", "policyId": "zoo", "enabled": False}
BY_ID = [route for route in ROUTES if ":id" in route.path or ":deliveryId" in route.path]


def payment(number: int, size: int = 1) -> dict[str, Any]:
    call = {"toolCallId": f"call-{number}", "toolName": "wire", "inputPayload": {"x": "x" * size}}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", call)


async def furnished(service: Service) -> dict[str, str]:
    """One of everything in the organisation `default`: the start of an address -> the id."""

    async def made(path: str, body: Any = None) -> Any:
        answer = await service.call("admin", "POST", path, body)
        assert answer.is_success, answer.text
        return answer.json()

    held = await service.call("agent", "POST", "/v1/events", payment(1))
    hook = await made("/v1/webhooks", {"url": "https://hooks.example.com/x", "events": ["tool.blocked"]})
    delivery = await made(f"/v1/webhooks/{hook['webhookId']}/test")
    tools = await service.call("agent", "POST", "/v1/tool-proposals", SAMPLES["tool-proposal-create"])
    person = {"email": "new@acme.example", "password": PASSWORD, "role": "viewer"}
    resolution = {"grant": {"scope": "run", "calls": 2, "minutes": 10}}
    approved = await made(f"/v1/approvals/{held.json()['approvalId']}/approve", resolution)
    detector = {
        "detectorId": "calls",
        "name": "C",
        "on": "tool.called",
        "severity": "low",
        "windowSeconds": 60,
    }
    await made("/v1/detectors", detector | {"windowSeconds": 60})
    await service.call("agent", "POST", "/v1/events", payment(3))
    await look(service)
    (alert,) = await alerts(service)
    ids = {
        "/v1/policies": "hold",
        "/v1/agents": "mailer",
        "/v1/alerts": alert["alertId"],
        "/v1/detectors": "calls",
        "/v1/grants": approved["grant"]["grantId"],
        "/v1/tools": (await made("/v1/tools", SAMPLES["tool-set-create"]))["toolSetId"],
        "/v1/approvals": held.json()["approvalId"],
        "/access/v1/requests": held.json()["approvalId"],
        "/v1/tool-proposals": tools.json()["proposalId"],
        "/v1/runs": "run-1",
        "/v1/audit": held.json()["auditId"],
        "/v1/webhooks": hook["webhookId"],
        "/v1/users": (await made("/v1/users", person))["userId"],
        "/v1/api-keys": (await made("/v1/api-keys", {"name": "k"}))["keyId"],
        "delivery": delivery["deliveryId"],
    }
    two = {"settings": {"changes": {"approvers": 2}}}
    assert (await service.call("admin", "PUT", "/v1/organisation/settings", two)).status_code == 200
    change = await service.call("admin", "PATCH", "/v1/policies/hold", {"action": "warn"})
    return ids | {"/v1/changes": change.json()["changeId"]}


EVERYBODYS = {("GET", "/v1/detectors/:id"), ("PATCH", "/v1/detectors/:id")}
"""What `default` watches for is watched for everywhere, and who changes it gets one of their own."""


async def test_nothing_of_another_organisation_can_be_reached_by_its_id(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD], live=True) as service:
        ids = await furnished(service)
        for route in BY_ID:
            if (route.method, route.path) in EVERYBODYS:
                continue
            start = route.path.partition("/:")[0]
            path = route.path.replace(":id", ids[start]).replace(":deliveryId", ids["delivery"])
            body = SAMPLES[route.body] if route.body else None
            strangers = [f"other {name}" for name in ("reviewer", "admin", "agent") if name in route.who]
            assert strangers or "viewer" in route.who
            for who in strangers:
                answer = await service.call(who, route.method, path, body)
                assert answer.status_code == 404, f"{name_of(route)} as {who}: {answer.text}"
                assert answer.json()["code"] == "not_found"
            if "agent" in route.who:
                answer = await service.call("second agent", route.method, path, body)
                assert answer.status_code == 404, "another key sees the run"
        # All is as it was.
        for start, identifier in ids.items():
            if start not in ("delivery", "/v1/api-keys", "/access/v1/requests"):  # not for admins
                await service.answered("admin", "GET", f"{start}/{identifier}")
        for path in {route.path for route in ROUTES if route.reply_is_array and ":" not in route.path}:
            answer = await service.call("other admin", "GET", path)
            # Presets, and what `default` declares of tools and watches for, are there for all.
            common = "presets" in path or path in ("/v1/tools", "/v1/detectors")
            if answer.status_code == 200 and not common:
                assert not any(f'"{each}"' in answer.text for each in ids.values()), path


async def test_pages_of_one_organisation_are_no_use_in_another(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD, ZOO], live=True) as service:
        ids = await furnished(service)
        await service.call("second agent", "POST", "/v1/events", {**payment(2), "runId": "run-2"})
        for path in (
            "/v1/policies",
            "/v1/users",
            "/v1/api-keys",
            "/v1/runs",
            "/v1/approvals",
            "/v1/audit",
        ):
            mine = await service.call("admin", "GET", f"{path}?limit=1")
            following = re.match(r"<([^>]+)>", mine.headers["link"])
            assert following, path
            theirs = await service.call("other admin", "GET", following[1])
            assert theirs.status_code == 200
            assert not any(f'"{each}"' in theirs.text for each in ids.values()), path


async def test_a_run_of_large_payloads_is_read_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_PAYLOAD_BYTES", 1_000_000)
    async with Service(tmp_path, [POLICY]) as service:
        for number in range(8):
            await service.answered("agent", "POST", "/v1/events", payment(number, 300_000))
        answer = await service.call("agent", "GET", "/v1/runs/run-1")
        assert len(answer.content) < 1_100_000
        found = answer.json()["toolCalls"]
        assert [call["inputPayload"] is not None for call in found] == [True] * 3 + [False] * 5
        assert [call["status"] for call in found] == ["blocked"] * 8


async def test_a_backtest_reads_some_calls_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Service(tmp_path, [POLICY], live=True) as service:
        for number in range(10):
            await service.call("agent", "POST", "/v1/events", payment(number))
        store = service.context.store
        whole = await store.read(lambda: list(recorded_calls.recorded(store, "default")))
        assert len(whole) == 10
        monkeypatch.setattr(recorded_calls, "AT_ONCE", 3)
        for limit in (1, 2, 3, 4, 9, 10, 11):
            some = await asyncio.to_thread(
                lambda limit=limit: list(recorded_calls.recorded(store, "default", limit=limit))
            )
            assert some == whole[-limit:]
        draft = {**POLICY, "name": "Warn", "action": "warn", "policyId": "no-wires"}
        answer = await service.call("admin", "POST", "/v1/policies/backtest", {"policy": draft})
        assert answer.status_code == 200 and answer.json()["calls"] == 10


@pytest.mark.slow
def test_large_bodies_hold_up_no_other_request(tmp_path: Path) -> None:
    """The event loop goes on while large and wrong bodies are looked at; the longest stall is short."""
    bodies = [
        ("agent", "/v1/events", json.dumps({**payment(1, 900_000), "nope": 1}).encode()),
        ("agent", "/v1/events/batch", b'{"events":[' + b",".join([b'{"a":1}'] * 1_000) + b"]}"),
        ("agent", "/v1/events/batch", b'{"events":[' + b",".join([b"1"] * 400_000) + b"]}"),
        ("nobody", "/auth/login", b"{" + b",".join(b'"k%d":0' % n for n in range(70_000)) + b"}"),
        ("nobody", "/auth/login", b'{"email":' + b"[" * 500_000),
        ("reviewer", "/v1/policies/simulate", b'{"toolName":"' + b"a" * 1_000_000 + b'"}'),
        ("agent", "/v1/events",
        b'{"eventId":"e","runId":"r","agentId":"a","timestamp":"2026-01-01T00:00:00Z",'
         b'"eventType":"tool.called","metadata":{"toolCallId":"c","toolName":"t","inputPayload":{"a":['
         + b",".join([b'{"b":1}'] * 100_000) + b"]}}}"),
    ]  # fmt: skip

    async def play() -> None:
        async with Service(tmp_path, [POLICY]) as service:
            longest = 0.0

            async def tick() -> None:
                nonlocal longest
                loop = asyncio.get_running_loop()
                while True:
                    before = loop.time()
                    await asyncio.sleep(0.001)
                    longest = max(longest, loop.time() - before)

            ticking = asyncio.create_task(tick())
            for who, path, raw in bodies:
                longest = 0.0
                headers = {"Content-Type": "application/json", **service.credentials[who]}
                answer = await service.http.post(path, content=raw, headers=headers)
                refused = (413,) if who == "nobody" else (200, 400, 422)
                assert answer.status_code in refused, answer.text[:500]
                assert longest < 1.5, f"{path} with {raw[:60]!r} held all others up for {longest:.2f} s"
            ticking.cancel()

    asyncio.run(play())


async def test_a_long_name_hides_nobody_behind_it(tmp_path: Path) -> None:
    """The list goes on behind an agent of any name; the service takes each cursor that it gave."""
    async with Service(tmp_path, [ZOO], live=True) as service:
        names = [letter * 200 for letter in "a日\x01"]
        for number, name in enumerate(names):
            sent = payment(number) | {"agentId": name, "runId": f"run-{number}"}
            assert (await service.call("agent", "POST", "/v1/events", sent)).status_code == 200
        await look(service)
        found, path = [], "/v1/agents?limit=1"
        while path:
            answer = await service.call("admin", "GET", path)
            assert answer.status_code == 200, answer.text
            found += [agent["agentId"] for agent in answer.json()]
            path = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert sorted(found) == sorted(names)
