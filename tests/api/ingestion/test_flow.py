"""What is known of a run holds over restarts and on every node, and costs other sets nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from api.database.writer import Writer
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool, policy_body, where

LABEL = on_tool("Label", "allow", "read_secret", labels={"add": ["secret"]})
HOLD = policy_body(
    "Hold", "require_approval", where("toolName", "equals", "send"), where("run.labels", "equals", "secret")
)
AFTER = on_tool("After", "warn", "look", after={"tool": "read secret", "withinCalls": 3})
TARGETS = policy_body("Targets", "block", where("derived.untrustedTargets", "exists"))
TOOLS = {
    "apiVersion": "governance/v1",
    "kind": "ToolSet",
    "toolSetId": "tests",
    "name": "Tools of tests",
    "tools": [
        {"names": ["find contact"], "kind": "contacts", "effect": "read", "output": "trusted"},
        {
            "names": ["mail"],
            "kind": "mail",
            "effect": "send",
            "targets": {"where": ["to"]},
            "output": "trusted",
        },
    ],
}
FILES = {"tools/tests.yaml": json.dumps(TOOLS)}


class Nodes:
    """Services behind one database, which are asked in turn."""

    def __init__(self, folder: Path, url: str, *policies: dict[str, Any]) -> None:
        self.folder, self.url, self.policies = folder, url, policies
        self.services: list[Service] = []
        self.number = 0

    async def start(self, stack: AsyncExitStack, *names: str) -> None:
        self.services = []
        for name in names:
            # Processes of one machine share an embedded database and its folder.
            folder = self.folder if self.url.startswith("sqlite") else self.folder / name
            service = Service(
                folder,
                self.policies,
                live=True,
                files=FILES,
                database=self.url,
            )
            if name != "first":
                service._populate = lambda transaction: None  # type: ignore[method-assign]
            self.services.append(await stack.enter_async_context(service))

    async def send(self, node: int, event_type: str, **fields: Any) -> Any:
        self.number += 1
        key = {"X-API-Key": "agk_of_the_agent"}
        service = self.services[node]
        service.credentials["agent"] = key
        answer = await service.report("agent", f"n{self.number}", event_type, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def called(self, node: int, tool: str, call_id: str = "", **payload: Any) -> str:
        call_id = call_id or f"c{self.number}"
        answer = await self.send(node, "tool.called", toolCallId=call_id, toolName=tool, inputPayload=payload)
        warned = [each["policyId"] for each in answer["matchedPolicies"] if each["action"] == "warn"]
        status: str = answer["toolCallStatus"]
        return " ".join([status, *warned])

    async def begin_with_a_secret_and_a_contact(self) -> None:
        await self.send(0, "run.started", task="Write to bob@corp.example")
        assert await self.called(0, "read_secret") == "allowed"
        assert await self.called(0, "find_contact", "f") == "allowed"
        await self.send(0, "tool.completed", toolCallId="f", outputPayload={"mail": "al@corp.example"})


async def test_a_label_counts_on_the_other_node_with_the_next_call(tmp_path: Path, postgres_url: str) -> None:
    nodes = Nodes(tmp_path, postgres_url, LABEL, HOLD, AFTER)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first", "second")
        for node in (0, 1):
            assert await nodes.called(node, "send") == "allowed"
            assert await nodes.called(node, "look") == "allowed"
        assert await nodes.called(0, "read_secret") == "allowed"
        assert await nodes.called(1, "send") == "awaiting_approval"
        assert await nodes.called(0, "look") == "allowed after"
        assert await nodes.called(1, "look") == "allowed after"
        assert await nodes.called(0, "look") == "allowed"
        assert await nodes.called(0, "send") == "awaiting_approval"


async def test_the_next_prompt_of_a_conversation_goes_on_with_what_was_read(
    tmp_path: Path, database_url: str
) -> None:
    """What the agent was given before still stands in front of it, and what a person asks next counts."""
    nodes = Nodes(tmp_path, database_url, LABEL, HOLD, TARGETS)
    then = {"runId": "then", "continuesRunId": "run-1"}
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first")
        await nodes.begin_with_a_secret_and_a_contact()
        await nodes.send(0, "run.completed")
        await nodes.send(0, "run.started", **then, task="now to carol@corp.example")
        await nodes.send(0, "custom.user_message", runId="then", message="and dan@corp.example")
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "again")
        for to in ("bob", "al", "carol", "dan", "eve"):
            answer = await nodes.send(
                0,
                "tool.called",
                runId="then",
                toolCallId=to,
                toolName="mail",
                inputPayload={"to": f"{to}@corp.example"},
            )
            assert answer["toolCallStatus"] == ("blocked" if to == "eve" else "allowed"), to
        about = {"toolName": "send", "inputPayload": {}}
        held = await nodes.send(0, "tool.called", runId="then", toolCallId="s", **about)
        assert held["toolCallStatus"] == "awaiting_approval"
        late = {"runId": "late", "toolCallId": "s", "continuesRunId": "then", **about}
        assert (await nodes.send(0, "tool.called", **late))["toolCallStatus"] == "awaiting_approval"


async def test_it_holds_after_a_restart(tmp_path: Path, database_url: str) -> None:
    nodes = Nodes(tmp_path, database_url, LABEL, HOLD, AFTER, TARGETS)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first")
        await nodes.begin_with_a_secret_and_a_contact()
        assert await nodes.called(0, "mail", to="eve@corp.example") == "blocked"
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "again")
        assert await nodes.called(0, "look") == "allowed after"
        assert await nodes.called(0, "look") == "allowed"
        assert await nodes.called(0, "send") == "awaiting_approval"
        assert await nodes.called(0, "mail", to="al@corp.example") == "allowed"
        assert await nodes.called(0, "mail", to="BOB@corp.example") == "allowed"
        assert await nodes.called(0, "mail", to="eve@corp.example") == "blocked"


async def test_what_one_node_has_read_the_other_knows(tmp_path: Path, postgres_url: str) -> None:
    nodes = Nodes(tmp_path, postgres_url, TARGETS)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first", "second")
        for number in range(4):
            here, there = number % 2, (number + 1) % 2
            name = f"al{number}@corp.example"
            assert await nodes.called(there, "mail", to=name) == "blocked"
            assert await nodes.called(here, "find_contact", f"f{number}") == "allowed"
            output = {"mail": name}
            await nodes.send(there, "tool.completed", toolCallId=f"f{number}", outputPayload=output)
            assert await nodes.called(here, "mail", to=name) == "allowed"
            assert await nodes.called(there, "mail", to=name) == "allowed"


async def test_calls_at_once_see_each_others_labels(tmp_path: Path, database_url: str) -> None:
    nodes = Nodes(tmp_path, database_url, LABEL, HOLD)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first")
        await nodes.called(0, "look")
        order = ["send", "read_secret", *["send"] * 6]
        events = [nodes.called(0, tool, f"at-once-{number}") for number, tool in enumerate(order)]
        answers = await asyncio.gather(*events)
        assert answers[1] == "allowed"
        found = (await nodes.services[0].call("admin", "GET", "/v1/runs/run-1")).json()
        # Whatever order they were written in, nothing that followed the label was let through.
        labelled = False
        for call in found["toolCalls"]:
            if call["toolName"] == "send":
                assert call["status"] == ("awaiting_approval" if labelled else "allowed")
            labelled = labelled or call["toolName"] == "read_secret"
        assert found["labels"] == ["secret"]


async def test_sets_that_ask_for_none_of_it_pay_nothing(tmp_path: Path, database_url: str) -> None:
    plain = {**HOLD, "matchConditions": HOLD["matchConditions"][:1]}
    nodes = Nodes(tmp_path, database_url, plain)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first")
        await nodes.send(0, "run.started", task="Write to bob@corp.example")
        await nodes.called(0, "find_contact", "f")
        await nodes.send(0, "tool.completed", toolCallId="f", outputPayload={"mail": "al@corp.example"})
        store = nodes.services[0].context.store
        rows = store.read_here(store.rows, "SELECT COUNT(*) FROM run_values")
        runs = store.read_here(store.rows, "SELECT labels, steps, flow FROM runs")
        assert (rows, runs) == ([(0,)], [("[]", None, 0)])


@pytest.mark.postgres
async def test_a_decision_on_labels_that_have_changed_is_made_again(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []
    ended = Writer.assembled_ended

    def counted(writer: Any, batch: Any, assembled: Any, *, committed: bool) -> None:
        failed.extend([] if committed else [len(batch)])
        ended(writer, batch, assembled, committed=committed)

    monkeypatch.setattr(Writer, "assembled_ended", counted)
    nodes = Nodes(tmp_path, postgres_url, LABEL, HOLD)
    async with AsyncExitStack() as stack:
        await nodes.start(stack, "first", "second")
        for node in (0, 1):  # both know the run, and have their lanes open
            for _ in range(20):
                assert await nodes.called(node, "send") == "allowed"
                await asyncio.sleep(0.02)
        failed.clear()
        assert await nodes.called(0, "read_secret") == "allowed"
        assert await nodes.called(1, "send") == "awaiting_approval"
        assert failed, "the guard told"
