"""Rate limits while the clock is set ahead, and back: never looser, and not frozen either."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from api.clock import Leaps
from api.retention import DAY, pull_back
from tests.harness.application import Service

FEW = {
    "name": "Few searches",
    "action": "block",
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "search"}],
    "rateLimit": {"limit": 2, "windowSeconds": 60},
}


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


def played(folder: Path, database_url: str, steps: Any) -> None:
    async def play() -> None:
        environment = {"GOVERNANCE_DATABASE_URL": database_url}
        async with Service(folder, [FEW], environment=environment) as service:
            await steps(Times(service))

    asyncio.run(play())


def test_a_leap_ahead_and_back_forgets_no_call(tmp_path: Path, database_url: str) -> None:
    async def steps(times: Times) -> None:
        assert [await times.search() for _ in range(3)] == ["allowed", "allowed", "blocked"]
        for seconds in (DAY, -DAY, 300.0, -300.0):
            times.leap(seconds)
            assert await times.search() == "blocked"
        times.leap(DAY)
        times.pass_by(30)
        assert await times.search() == "blocked"
        times.pass_by(31)
        assert [await times.search() for _ in range(3)] == ["allowed", "allowed", "blocked"]

    played(tmp_path, database_url, steps)


def test_calls_of_a_time_to_come_count_for_one_window_more(tmp_path: Path, database_url: str) -> None:
    async def steps(times: Times) -> None:
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

    played(tmp_path, database_url, steps)
