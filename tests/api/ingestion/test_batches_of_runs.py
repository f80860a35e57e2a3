"""A batch tells of runs in order: what one has read counts for those that it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.api.ingestion.test_flow import HOLD, LABEL
from tests.harness.application import Service, event

READ = LABEL | {"on": "tool.completed"}


def test_a_run_inherits_what_the_same_batch_says_of_its_parent(tmp_path: Path, database_url: str) -> None:
    async def play() -> None:
        environment = {"GOVERNANCE_DATABASE_URL": database_url}
        async with Service(tmp_path, [READ, HOLD], environment=environment) as service:
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

    asyncio.run(play())
