"""Events of one run in one batch are decided in their order, whichever of them a limit may stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.database.lanes.dispatch import LIMIT_SECONDS
from tests.api.database.lanes.test_dispatch import look, played, post
from tests.harness.application import Service

pytestmark = pytest.mark.postgres
LOOKS = {"action": "block", "matchConditions": [{"field": "toolName", "operator": "equals", "value": "look"}]}
FEW = LOOKS | {"name": "Few looks", "rateLimit": {"limit": 50, "windowSeconds": 60}}
STEPS = 8


async def statuses(running: Service, calls: list[dict[str, Any]]) -> list[str]:
    answer = await running.call("agent", "POST", "/v1/events/batch", {"events": calls})
    return [result["answer"]["toolCallStatus"] for result in answer.json()["results"]]


def test_what_stands_before_a_limited_call_is_decided_before_it(tmp_path: Path, postgres_url: str) -> None:
    async def steps(running: Service) -> None:
        for number in range(STEPS):
            run = f"run-{number}"
            if number % 2:
                assert (await post(running, look(f"{number}-a", run))).status_code == 200
            calls = [look(f"{number}-b", run, toolName="read"), look(f"{number}-c", run, toolName="look")]
            assert await statuses(running, calls) == ["allowed", "blocked"], number

    after = LOOKS | {"name": "No looks after reading", "after": {"tool": "read"}}
    played(tmp_path, postgres_url, steps, FEW, after)


def test_what_stands_behind_a_call_beyond_a_limit_is_decided_behind_it(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of the batch is handed over by itself, and the limit is not known to be reached."""
    monkeypatch.setattr("api.handlers.events.SLICE", 0.0)
    monkeypatch.setattr("api.database.lanes.dispatch.LIMIT_SECONDS", -LIMIT_SECONDS)

    async def steps(running: Service) -> None:
        for number in range(STEPS):
            run = f"run-{number}"
            assert (await post(running, look(f"{number}-a", run, toolName="ping"))).status_code == 200
            calls = [look(f"{number}-{n}", run, toolName=n) for n in ("ping", "other", "look")]
            assert await statuses(running, calls) == ["allowed", "allowed", "blocked"], number

    pings = {
        "name": "Many pings",
        "action": "warn",
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "ping"}],
        "rateLimit": {"limit": 1, "windowSeconds": 60, "per": ["runId"]},
        "labels": {"add": ["many"]},
    }
    labelled = {"field": "run.labels", "operator": "contains", "value": "many"}
    no_looks = LOOKS | {"name": "No looks", "matchConditions": [*LOOKS["matchConditions"], labelled]}
    played(tmp_path, postgres_url, steps, pings, no_looks)
