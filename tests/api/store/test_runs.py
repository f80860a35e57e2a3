"""What is read of runs stays within bounds, whatever their agents wrote into them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.store import runs
from tests.harness.application import Service
from tests.harness.conversation import check_shape


def played(tmp_path: Path, database_url: str, steps: Any) -> None:
    async def play() -> None:
        async with Service(tmp_path, environment={"GOVERNANCE_DATABASE_URL": database_url}) as service:
            await steps(service)

    asyncio.run(play())


def test_what_agents_assert_of_calls_is_bounded(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_PAYLOAD_BYTES", 1_000_000)

    async def steps(service: Service) -> None:
        said = {"reason": "since", "agentContext": {"goal": "a" * 150_000}}
        for number in range(8):
            fields = {"toolCallId": f"c-{number}", "toolName": "look", **said}
            assert (await service.report("agent", number, "tool.called", **fields)).status_code == 200
        answer = await service.call("agent", "GET", "/v1/runs/run-1")
        assert len(answer.content) < 1_100_000
        check_shape("GET", "/v1/runs/run-1", answer)
        calls = answer.json()["toolCalls"]
        assert [call["asserted"] == said for call in calls] == [True] * 3 + [False] * 5
        size = len('"since"{"goal":""}') + 150_000
        assert [call["asserted"] for call in calls[3:]] == [{"bytes": size}] * 5
        assert all(call["keyId"] for call in calls)

    played(tmp_path, database_url, steps)


def test_a_list_of_runs_is_bounded(tmp_path: Path, database_url: str) -> None:
    async def steps(service: Service) -> None:
        long = "ä" * 100_000
        said = {"task": long, "model": long, "reason": long, "agentContext": {"goal": long}}
        brief = {"task": "settle", "agentContext": {"goal": "win"}}
        await service.report("agent", 1, "run.started", **said)
        await service.report("agent", 2, "run.started", runId="run-2", **brief)
        answer = await service.call("agent", "GET", "/v1/runs")
        assert len(answer.content) < 40_000
        check_shape("GET", "/v1/runs", answer)
        second, first = answer.json()
        assert (second["task"], second["model"]) == ("settle", None)
        assert second["asserted"] == {"agentContext": {"goal": "win"}}
        shown = long[:4_096]
        assert (first["task"], first["model"]) == (shown, shown)
        assert first["asserted"] == {"reason": shown, "bytes": 100_011}
        whole = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        assert (whole["task"], whole["asserted"]) == (
            long,
            {"reason": long, "agentContext": {"goal": long}},
        )

    played(tmp_path, database_url, steps)
