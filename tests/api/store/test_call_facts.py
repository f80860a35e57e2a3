"""What the decision on a call saw is stored within bounds, and read back exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api.store import recorded_calls
from engine.flow.memory import UNSEEN
from engine.model import BEFORE
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool, policy_body, where

HOLD = policy_body("Hold large goals", "require_approval", where("run.agentContext.goal", "starts_with", "A"))
GOAL = "A" * 100_000
RUN = {"task": "settle", "model": "m-1", "agentContext": {"goal": GOAL, "attempt": 2}}


def serving(tmp_path: Path, database_url: str) -> Service:
    return Service(tmp_path, [HOLD], database=database_url)


async def reported(service: Service) -> list[dict[str, Any]]:
    """A call before its run told anything, and twenty after; the answers."""
    answers = [await service.report("agent", 1, "tool.called", toolCallId="c-1", toolName="pay")]
    await service.report("agent", "start", "run.started", **RUN)
    for number in range(2, 22):
        fields = {"toolCallId": f"c-{number}", "toolName": "pay", "agentContext": {"number": number}}
        answers.append(await service.report("agent", number, "tool.called", **fields))
    return [answer.json() for answer in answers]


async def test_what_a_run_tells_is_stored_once(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        statuses = [answer["toolCallStatus"] for answer in await reported(service)]
        assert statuses == ["allowed"] + ["awaiting_approval"] * 20
        store = service.context.store
        ((size,),) = await store.read(lambda: store.rows("SELECT SUM(LENGTH(facts)) FROM tool_calls"))
        assert size < 5_000


async def test_calls_are_read_back_as_they_were_decided(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        answers = await reported(service)
        store = service.context.store
        found = await store.read(lambda: list(recorded_calls.recorded(store, "default")))
        assert [call.call.document.get("run") for call in found] == [None] + [RUN] * 20
        contexts = [call.call.document.get("agentContext") for call in found]
        assert contexts == [None] + [{"number": number} for number in range(2, 22)]
        path = f"/v1/approvals/{answers[1]['approvalId']}"
        asserted = (await service.call("reviewer", "GET", path)).json()["asserted"]
        assert asserted == {"task": "settle", "agentContext": {"number": 2}}


async def test_calls_that_hold_the_facts_of_their_run_are_read_the_same(
    tmp_path: Path, database_url: str
) -> None:
    async with serving(tmp_path, database_url) as service:
        answers = await reported(service)
        store = service.context.store
        path = f"/v1/approvals/{answers[1]['approvalId']}"

        async def read() -> Any:
            approval = (await service.call("reviewer", "GET", path)).json()
            return approval, await store.read(lambda: list(recorded_calls.recorded(store, "default")))

        now = await read()
        rows = await store.read(lambda: store.rows("SELECT call_no, facts FROM tool_calls"))
        for call_no, text in rows:
            facts = json.loads(text)
            if "run" in facts:
                before = json.dumps(facts | {"run": RUN})
                await service.context.writer.write(
                    lambda transaction, before=before, call_no=call_no: transaction.store.rows_changed(
                        "UPDATE tool_calls SET facts = ? WHERE call_no = ?", (before, call_no)
                    )
                )
        assert await read() == now


async def test_what_a_run_tells_later_is_no_fact_of_the_calls_before(
    tmp_path: Path, database_url: str
) -> None:
    """Also where the run had a label already: a reviewer sees, and a backtest decides on, what there was."""
    label = on_tool("Label", "require_approval", "read_secret", labels={"add": ["secret"]})
    asks_for_values = policy_body("Targets", "warn", where("derived.unaskedTargets", "exists"))
    async with Service(tmp_path, [label, asks_for_values], database=database_url) as service:
        held = {"toolName": "read_secret", "inputPayload": {"to": "bob@corp.example"}}
        for number in (1, 2):
            answer = await service.report("agent", number, "tool.called", toolCallId=f"c-{number}", **held)
        told = {"task": "write to bob@corp.example", "agentContext": {"goal": "the chief asks for it"}}
        await service.report("agent", "start", "run.started", **told)
        path = f"/v1/approvals/{answer.json()['approvalId']}"
        shown = (await service.call("reviewer", "GET", path)).json()
        assert (shown["labels"], shown["asserted"]) == (["secret"], {})
        store = service.context.store
        found = await store.read(lambda: list(recorded_calls.recorded(store, "default")))
        assert [call.call.document.get("run") for call in found] == [None, {"labels": ["secret"]}]
        memories = [call.call.document[BEFORE] for call in found]
        sources = await store.read(lambda: [each.values.source("bob@corp.example") for each in memories])
        assert sources == [UNSEEN, UNSEEN]
        calls = (await service.call("agent", "GET", "/v1/runs/run-1")).json()["toolCalls"]
        assert [call.get("labels") for call in calls] == [None, ["secret"]]
