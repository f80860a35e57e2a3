"""Events of one run in one batch are decided in their order, whichever of them a limit may stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.database.lanes.dispatch import LIMIT_SECONDS
from api.database.lanes.keys import event_key
from api.database.lanes.loop_lane import LoopLane
from api.database.writer import Writer
from tests.api.database.lanes.test_dispatch import became, look, post, serving
from tests.api.database.lanes.test_guards import another_node, waiting
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

pytestmark = pytest.mark.postgres
LOOKS = {"action": "block", "matchConditions": [{"field": "toolName", "operator": "equals", "value": "look"}]}
FEW = LOOKS | {"name": "Few looks", "rateLimit": {"limit": 50, "windowSeconds": 60}}
STEPS = 8


async def statuses(running: Service, calls: list[dict[str, Any]]) -> list[str]:
    answer = await running.call("agent", "POST", "/v1/events/batch", {"events": calls})
    return [result["answer"]["toolCallStatus"] for result in answer.json()["results"]]


async def test_what_stands_before_a_limited_call_is_decided_before_it(
    tmp_path: Path, postgres_url: str
) -> None:
    after = LOOKS | {"name": "No looks after reading", "after": {"tool": "read"}}
    async with serving(tmp_path, postgres_url, FEW, after) as running:
        for number in range(STEPS):
            run = f"run-{number}"
            if number % 2:
                assert (await post(running, look(f"{number}-a", run))).status_code == 200
            calls = [look(f"{number}-b", run, toolName="read"), look(f"{number}-c", run, toolName="look")]
            assert await statuses(running, calls) == ["allowed", "blocked"], number


async def test_what_stands_behind_a_call_beyond_a_limit_is_decided_behind_it(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of the batch is handed over by itself, and the limit is not known to be reached."""
    monkeypatch.setattr("api.ingestion.slices.SLICE", 0.0)
    monkeypatch.setattr("api.database.lanes.dispatch.LIMIT_SECONDS", -LIMIT_SECONDS)
    pings = on_tool(
        "Many pings",
        "warn",
        "ping",
        rateLimit={"limit": 1, "windowSeconds": 60, "per": ["runId"]},
        labels={"add": ["many"]},
    )
    labelled = {"field": "run.labels", "operator": "contains", "value": "many"}
    no_looks = LOOKS | {"name": "No looks", "matchConditions": [*LOOKS["matchConditions"], labelled]}
    async with serving(tmp_path, postgres_url, pings, no_looks) as running:
        for number in range(STEPS):
            run = f"run-{number}"
            assert (await post(running, look(f"{number}-a", run, toolName="ping"))).status_code == 200
            calls = [look(f"{number}-{n}", run, toolName=n) for n in ("ping", "other", "look")]
            assert await statuses(running, calls) == ["allowed", "allowed", "blocked"], number


async def test_the_first_calls_of_a_run_are_those_within_a_limit(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the lane of the first is slower than that of the next, and the limit fails both."""
    monkeypatch.setattr("api.ingestion.slices.SLICE", 0.0)
    monkeypatch.setattr("api.database.lanes.dispatch.LIMIT_SECONDS", -LIMIT_SECONDS)
    pauses: list[float] = []
    run = LoopLane.run

    def slower(lane: LoopLane, *how: Any) -> None:
        asyncio.get_running_loop().call_later(pauses.pop(0) if pauses else 0.0, run, lane, *how)

    monkeypatch.setattr(LoopLane, "run", slower)
    async with serving(tmp_path, postgres_url, FEW) as running:
        assert (await post(running, look("a", toolName="read"))).status_code == 200
        calls = [look(number, toolName="look") for number in range(56)]
        for call in calls[:48]:
            assert (await post(running, call)).json()["toolCallStatus"] == "allowed"
        pauses.append(0.5)
        assert await statuses(running, calls[48:]) == ["allowed"] * 2 + ["blocked"] * 6


async def test_what_is_unusual_of_a_run_goes_together(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one each would have all that waits gone through again, and take a commit of its own."""
    trips: list[int] = []
    take = Writer.take

    def counted(writer: Writer, entries: Any) -> None:
        trips.append(len(entries))
        take(writer, entries)

    monkeypatch.setattr(Writer, "take", counted)
    monkeypatch.setattr("api.ingestion.slices.SLICE", 60.0)
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look("a"))).status_code == 200
        trips.clear()
        events = [became(str(n), "tool.completed", toolCallId=f"unknown-{n}") for n in range(300)]
        answer = await running.call("agent", "POST", "/v1/events/batch", {"events": [*events, look("b")]})
        results = answer.json()["results"]
        assert {result["status"] for result in results} == {200}
        in_order = [result["answer"]["auditSequence"] for result in results[:-1]]
        assert in_order == sorted(in_order) and len(trips) < 10


async def test_the_end_of_a_run_waits_for_a_call_before_it(tmp_path: Path, postgres_url: str) -> None:
    """The call is held up in the database; the end, which nothing holds up, comes behind it all the same."""
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).status_code == 200
        same_id = "INSERT INTO ids (organisation_id, key, no) VALUES ('default', %s, 1)"
        with another_node(postgres_url, same_id, event_key("default", "event-2")) as node:
            async with (
                waiting(post(running, look(2))) as call,
                waiting(post(running, became("end", "run.completed"))) as end,
            ):
                node.rollback()
                assert ((await call).status_code, (await end).status_code) == (200, 200)
        found = (await running.call("admin", "GET", "/v1/runs/run-1")).json()
        assert found["status"] == "completed"
        assert [call["flags"] for call in found["toolCalls"]] == [[], []]
