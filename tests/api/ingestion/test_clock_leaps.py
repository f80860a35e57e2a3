"""Rate limits and grants while the clock is set ahead, and back: never looser, and not frozen either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.audit.verification import verify
from api.clock import DAY, Leaps
from api.retention.cleaning import pull_back
from tests.faults.database_faults import nothing_beside
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

FEW = on_tool("Few searches", "block", "search", rateLimit={"limit": 2, "windowSeconds": 60})

HELD = on_tool("Hold payments", "require_approval", "pay")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_beside(monkeypatch)  # it would pull times back before a test does


class Times:
    """The service's clock, and beside it one that only goes on."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.steady = 0.0
        self.calls = 0
        service.context.writer.ingest._leaps = Leaps(service.clock, lambda: self.steady)  # type: ignore[union-attr]

    def pass_by(self, seconds: float) -> None:
        self.steady += seconds
        self.service.clock.advance(seconds)

    def leap(self, seconds: float) -> None:
        self.service.clock.advance(seconds)

    async def search(self) -> str:
        self.calls += 1
        fields = {"toolCallId": f"c-{self.calls}", "toolName": "search"}
        answer = await self.service.report("agent", self.calls, "tool.called", **fields)
        return str(answer.json()["toolCallStatus"])


@asynccontextmanager
async def serving(folder: Path, database_url: str) -> AsyncIterator[Times]:
    async with Service(folder, [FEW], database=database_url) as service:
        yield Times(service)


async def test_a_leap_ahead_and_back_forgets_no_call(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as times:
        assert [await times.search() for _ in range(3)] == ["allowed", "allowed", "blocked"]
        for seconds in (DAY, -DAY, 300.0, -300.0):
            times.leap(seconds)
            assert await times.search() == "blocked"
        times.leap(DAY)
        times.pass_by(30)
        assert await times.search() == "blocked"
        times.pass_by(31)
        assert [await times.search() for _ in range(3)] == ["allowed", "allowed", "blocked"]


async def test_calls_of_a_time_to_come_count_for_one_window_more(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as times:
        store, writer = times.service.context.store, times.service.context.writer
        times.leap(DAY)
        assert [await times.search() for _ in range(3)] == ["allowed", "allowed", "blocked"]
        times.leap(-DAY)
        assert await times.search() == "blocked"
        assert await pull_back(store, writer, times.service.clock()) == 2
        assert await pull_back(store, writer, times.service.clock()) == 0
        assert await times.search() == "blocked"
        times.pass_by(61)
        assert await times.search() == "allowed"


async def test_a_grant_of_a_time_to_come_covers_nothing(tmp_path: Path, database_url: str) -> None:
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": "31536000"}
    async with Service(tmp_path, [HELD], environment=environment) as service:
        store, writer, clock = service.context.store, service.context.writer, service.clock

        async def pay(number: int) -> Any:
            fields = {"toolCallId": f"c-{number}", "toolName": "pay", "inputPayload": {}}
            return (await service.report("agent", number, "tool.called", **fields)).json()

        clock.advance(10 * DAY)
        approval_id = (await pay(1))["approvalId"]
        body = {"grant": {"scope": "agent", "calls": 50, "minutes": 60}}
        await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve", body)
        assert (await pay(2))["toolCallStatus"] == "allowed"
        clock.advance(-30.0)
        assert (await pay(3))["toolCallStatus"] == "allowed", "the clocks of nodes may be apart"
        clock.advance(-10 * DAY)
        assert (await pay(4))["toolCallStatus"] == "awaiting_approval"
        await pull_back(store, writer, clock())
        clock.advance(10 * DAY + 60)
        assert (await pay(5))["toolCallStatus"] == "awaiting_approval", "nobody meant that hour"
        (grant,) = (await service.call("reviewer", "GET", "/v1/grants")).json()
        assert grant["status"] == "revoked" and grant["revokedBy"] == "service"
        assert store.read_here(verify, store, "default")["valid"]
