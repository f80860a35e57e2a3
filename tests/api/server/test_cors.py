"""The web front end of GOVERNANCE_FRONTEND_URL calls the API from its own origin; nobody else's pages do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.route import AGENT
from api.server import cors
from api.server.routes import ROUTES
from api.settings import load
from tests.harness.application import PASSWORD, Service
from tests.harness.policy_bodies import on_tool

FRONTEND = "https://console.example"
HOLD = on_tool("Hold payments", "require_approval", "pay")


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("", None),
        ("http://127.0.0.1:8700", None),
        ("http://127.0.0.1:8700/console/", None),
        ("http://127.0.0.1:8701", "http://127.0.0.1:8701"),
        ("https://Console.Example:443/app/", "https://console.example"),
        ("https://console.example:8443", "https://console.example:8443"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_the_origin_is_that_of_the_front_end(address: str, origin: str | None) -> None:
    assert load({"GOVERNANCE_FRONTEND_URL": address}).frontend_origin == origin


def crossing(headers: httpx.Headers) -> dict[str, str]:
    names = ("vary", "access-control-")
    return {name: value for name, value in headers.items() if name.startswith(names)}


ALLOWED = {
    "access-control-allow-origin": FRONTEND,
    "access-control-expose-headers": ", ".join(cors.EXPOSED),
    "vary": "Origin",
}


def test_whatever_a_route_takes_and_answers_is_for_its_pages_too() -> None:
    methods = cors.PREFLIGHT["Access-Control-Allow-Methods"].split(", ")
    assert {route.method for route in ROUTES} <= set(methods)
    for_people = [route for route in ROUTES if route.who != AGENT]
    assert {name for route in for_people for name in route.headers} <= set(cors.EXPOSED)


async def test_its_pages_work_with_the_api(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD]) as service:
        page = {"Origin": FRONTEND}
        asked = {
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "authorization,content-type,if-match",
        }
        answer = await service.call("nobody", "OPTIONS", "/v1/policies/hold-payments", headers=page | asked)
        assert (answer.status_code, answer.content) == (204, b"")
        found = crossing(answer.headers)
        assert found["access-control-allow-origin"] == FRONTEND and found["vary"] == "Origin"
        assert "PATCH" in found["access-control-allow-methods"].split(", ")
        names = found["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "content-type", "if-match"} <= set(names)
        assert "access-control-allow-credentials" not in found

        login = {"email": "rita@acme.example", "password": PASSWORD}
        answer = await service.call("nobody", "POST", "/auth/login", login, headers=page)
        token = {"Authorization": f"Bearer {answer.json()['accessToken']}"}
        assert crossing(answer.headers) == ALLOWED
        call = {"toolCallId": "call-1", "toolName": "pay", "inputPayload": {}}
        held = (await service.report("agent", 1, "tool.called", **call)).json()
        assert held["approvalUrl"].startswith(f"{FRONTEND}/approvals?")
        answer = await service.call("nobody", "GET", "/v1/approvals", headers=page | token)
        assert answer.status_code == 200 and crossing(answer.headers) == ALLOWED
        assert answer.headers["x-total-count"] == "1"
        path = f"/v1/approvals/{held['approvalId']}/approve"
        answer = await service.call("nobody", "POST", path, headers=page | token)
        assert answer.status_code == 200 and crossing(answer.headers) == ALLOWED
        for path, status in (("/v1/approvals", 401), ("/v1/nothing", 404)):
            answer = await service.call("nobody", "GET", path, headers=page)
            assert answer.status_code == status and crossing(answer.headers) == ALLOWED
        answer = await service.call("nobody", "OPTIONS", "/v1/approvals", headers=page)
        assert answer.status_code == 405, "without a method to ask for it is no preflight"


@pytest.mark.parametrize(
    ("frontend", "origin"),
    [
        (FRONTEND, "https://evil.example"),
        (FRONTEND, "https://console.example.evil.example"),
        (FRONTEND, "http://console.example"),
        (FRONTEND, "https://console.example:8443"),
        (FRONTEND, "null"),
        (FRONTEND, ""),
        ("", "http://127.0.0.1:8700"),
        ("", "null"),
    ],
)
def test_pages_of_other_origins_read_nothing(tmp_path: Path, frontend: str, origin: str) -> None:
    async def answers() -> list[Any]:
        async with Service(tmp_path, environment={"GOVERNANCE_FRONTEND_URL": frontend}) as service:
            asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            preflight = await service.call("nobody", "OPTIONS", "/v1/runs", headers=asked)
            return [preflight, await service.call("viewer", "GET", "/v1/runs", headers=asked)]

    preflight, read = asyncio.run(answers())
    assert preflight.status_code == 405 and read.status_code == 200
    assert crossing(preflight.headers) == crossing(read.headers) == {}
