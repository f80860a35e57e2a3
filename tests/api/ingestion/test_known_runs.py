"""What is remembered of runs stays within bounds, and no decision rests on whether it is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.ingestion.known import runs as known_runs
from api.ingestion.pipeline import Ingestion
from tests.harness.application import Service
from tests.harness.policy_bodies import policy_body, where

THIEVES = policy_body("No thieves", "block", where("run.agentContext.goal", "starts_with", "steal"))


async def test_runs_that_tell_much_of_themselves_are_not_all_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runs, "MOST_CHARACTERS", 200_000)
    async with Service(tmp_path, [THIEVES]) as service:
        ingest = service.context.writer.ingest
        assert isinstance(ingest, Ingestion)
        remembered = ingest._known_runs._runs["default"] if ingest._known_runs._runs else {}
        for number in range(20):
            run = f"r-{number}"
            if number % 2:  # known before it tells anything
                await service.report("agent", f"early {number}", "custom.hello", runId=run)
            told = {"goal": ("steal" if number % 3 else "give") + "!" * 30_000}
            await service.report("agent", f"start {number}", "run.started", runId=run, agentContext=told)
            remembered = ingest._known_runs._runs["default"]
            assert 0 < sum(each.length() for each in remembered.values()) <= 200_000
        statuses = [
            (
                await service.report(
                    "agent", number, "tool.called", runId=f"r-{number}", toolCallId="c", toolName="x"
                )
            ).json()["toolCallStatus"]
            for number in range(20)
        ]
        assert statuses == ["blocked" if number % 3 else "allowed" for number in range(20)]
        assert sum(each.length() for each in remembered.values()) <= 200_000
