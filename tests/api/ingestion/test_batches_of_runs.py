"""A batch tells of runs in order: what one has read counts for those that it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.database.lanes.loop_lane import LoopLane
from api.ingestion import evaluation
from tests.api.ingestion.test_flow import AFTER, HOLD, LABEL
from tests.harness.application import Service, event

READ = LABEL | {"on": "tool.completed"}


async def test_a_run_inherits_what_the_same_batch_says_of_its_parent(
    tmp_path: Path, database_url: str
) -> None:
    async with Service(tmp_path, [READ, HOLD], database=database_url) as service:
        for number in range(20):
            parent = {"runId": f"parent-{number}", "toolCallId": "c-1"}
            child = {"runId": f"child-{number}"}
            told = [
                ("tool.called", {**parent, "toolName": "read_secret"}),
                ("tool.completed", {**parent, "outputPayload": "a page"}),
                ("run.started", {**child, "parentRunId": parent["runId"], "task": "send it"}),
                ("tool.called", {**child, "toolCallId": "c-2", "toolName": "send"}),
            ]
            batch = [
                event(f"{number}-{place}", kind, service.clock.text, fields)
                for place, (kind, fields) in enumerate(told)
            ]
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
            *_, send = answer.json()["results"]
            assert send["answer"]["toolCallStatus"] == "awaiting_approval", f"batch {number}"


async def test_a_run_gets_what_the_same_batch_says_of_each_run_that_it_names(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the one that went before it, where another one has started it, however long a lane takes."""
    run = LoopLane.run

    def run_late(lane: LoopLane, *given: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, run, lane, *given)

    monkeypatch.setattr(LoopLane, "run", run_late)
    async with Service(tmp_path, [LABEL, HOLD], database=database_url) as service:
        for number in range(5):
            before = {"runId": f"before-{number}", "toolCallId": "c-1", "toolName": "read_secret"}
            named = {"parentRunId": "some-run", "continuesRunId": before["runId"]}
            after = {"runId": f"after-{number}", "toolCallId": "c-2", "toolName": "send", **named}
            batch = [
                event(f"{number}-{place}", "tool.called", service.clock.text, fields)
                for place, fields in enumerate((before, after))
            ]
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
            *_, send = answer.json()["results"]
            assert send["answer"]["toolCallStatus"] == "awaiting_approval", f"batch {number}"
            await asyncio.sleep(0.05)


def test_what_is_put_off_keeps_its_place(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a commit leaves for later, no outcome is recorded before its call, and no run begins before
    the one that started it has come so far."""
    monkeypatch.setattr(evaluation, "ORDINARY", 0.0)
    monkeypatch.setattr(evaluation, "MOST_OF_A_COMMIT", 0.0)
    told: list[tuple[str, dict[str, object]]] = [("run.started", {"runId": "run", "task": "look"})]
    for number in range(6):
        call = {"runId": "run", "toolCallId": f"c-{number}"}
        told.append(("tool.called", {**call, "toolName": "read_secret" if number else "look"}))
        told.append(("tool.completed", {**call, "outputPayload": f"page {number}"}))
    told.append(("run.started", {"runId": "child", "parentRunId": "run"}))
    told.append(("tool.called", {"runId": "child", "toolCallId": "c", "toolName": "send"}))

    async def play() -> None:
        async with Service(tmp_path, [READ, HOLD, AFTER], database=database_url) as service:
            batch = [event(n, kind, service.clock.text, fields) for n, (kind, fields) in enumerate(told)]
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
            results = answer.json()["results"]
            assert [result["status"] for result in results] == [200] * len(told), results
            assert results[-1]["answer"]["toolCallStatus"] == "awaiting_approval"
            run = (await service.call("agent", "GET", "/v1/runs/run")).json()
            calls = [(call["toolCallId"], call["completion"], call["flags"]) for call in run["toolCalls"]]
            assert calls == [(f"c-{number}", "completed", []) for number in range(6)]

    asyncio.run(play())
