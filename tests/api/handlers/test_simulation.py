"""Simulations and backtests may take long: people take turns, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from api import reads
from api.handlers import simulation
from engine.analysis import backtest
from engine.analysis import simulation as simulating
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

DRAFT = on_tool("Draft", "block", "pay")
TRIED = {
    "/v1/policies/backtest": {"policy": DRAFT},
    "/v1/policies/simulate": {"toolName": "pay", "inputPayload": {}},
}


def serving(folder: Path) -> Service:
    return Service(folder, [DRAFT], live=True)


@pytest.mark.parametrize("path", TRIED)
async def test_what_one_reviewer_tries_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    go = threading.Event()
    work: Any = backtest.compare if path.endswith("backtest") else simulating.simulate
    first: list[str] = []

    def slowly(*arguments: Any, **options: Any) -> Any:
        if not first:
            first.append(threading.current_thread().name)
            go.wait(60)
        return work(*arguments, **options)

    monkeypatch.setattr(
        *((backtest, "compare") if work is backtest.compare else (simulating, "simulate")), slowly
    )
    async with serving(tmp_path) as service:

        async def tried(who: str) -> Any:
            return await service.call(who, "POST", path, TRIED[path])

        held = [asyncio.create_task(tried("reviewer"))]
        try:
            expected = 29 - reads.MOST_TRIED
            async with asyncio.timeout(60):
                while not first:
                    await asyncio.sleep(0.01)
                held += [asyncio.create_task(tried("reviewer")) for _ in range(29)]
                while len(refused := [task for task in held if task.done()]) < expected:
                    await asyncio.sleep(0.01)
            assert len(refused) == expected
            assert {
                (task.result().status_code, task.result().headers["Retry-After"]) for task in refused
            } == {(429, "1")}
            assert (await tried("second reviewer")).status_code == 200
            policies = await service.call("admin", "GET", "/v1/policies")
            name = policies.json()[0]["policyId"]
            changed = await service.call("admin", "PATCH", f"/v1/policies/{name}", {"enabled": False})
            assert (policies.status_code, changed.status_code) == (200, 200)
        finally:
            go.set()
        answers = await asyncio.gather(*held)
        assert sorted(answer.status_code for answer in answers) == [200] * (reads.MOST_TRIED + 1) + [
            429
        ] * len(refused)


async def test_a_backtest_gets_so_much_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MOST_SECONDS", -1.0)
    async with serving(tmp_path) as service:
        assert (await service.call("reviewer", "POST", "/v1/policies/backtest", {"policy": DRAFT})).is_success
        await service.report("agent", 1, "tool.called", toolCallId="call-1", toolName="pay")
        answer = await service.call("reviewer", "POST", "/v1/policies/backtest", {"policy": DRAFT})
        assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == "/limit"
        assert "write a smaller `limit`" in answer.json()["detail"]


async def test_a_backtest_ends_with_the_service(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await service.report("agent", 1, "tool.called", toolCallId="call-1", toolName="pay")
        service.context.hub.close()
        answer = await service.call("reviewer", "POST", "/v1/policies/backtest", {"policy": DRAFT})
        assert (answer.status_code, answer.json()["detail"]) == (503, "the service is stopping; try again")


async def test_a_backtest_shows_few_large_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "MOST_BYTES", 250_000)
    looks = DRAFT | {"matchConditions": [{"field": "toolName", "operator": "equals", "value": "look"}]}
    async with serving(tmp_path) as service:
        for number in range(6):
            call = {"toolCallId": f"c-{number}", "toolName": "look", "inputPayload": {"a": "a" * 100_000}}
            assert (await service.report("agent", number, "tool.called", **call)).is_success
        found = (await service.call("reviewer", "POST", "/v1/policies/backtest", {"policy": looks})).json()
        assert (found["calls"], found["changed"]) == (6, 6)
        assert [change["toolCallId"] for change in found["changes"]] == ["c-0", "c-1"]
        monkeypatch.setattr(backtest, "MOST_BYTES", 1)
        found = (await service.call("reviewer", "POST", "/v1/policies/backtest", {"policy": looks})).json()
        assert (found["changed"], len(found["changes"])) == (6, 1)
