"""Generated and recorded runs: the service decides every call as the plain rules of `flow_model` do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness import case_files
from tests.harness import flow_model as model
from tests.harness.application import Service
from tests.harness.places import CASES
from tests.harness.policy_bodies import on_tool, policy_body, where

TOOLS = {
    "read_page": model.Tool("read"),
    "find_contact": model.Tool("read", "trusted", {"notes": "untrusted"}, ("name",)),
    "list_mail": model.Tool("read", "untrusted", {"id": "trusted"}),
    "send_mail": model.Tool("send", "trusted", {}, ("to", "cc")),
    "delete_item": model.Tool("delete", "trusted", {"memo": "untrusted"}, ("id",)),
    "think": model.Tool("write"),
}
SET = {
    "apiVersion": "governance/v1",
    "kind": "ToolSet",
    "toolSetId": "tests",
    "name": "Tools of tests",
    "tools": [
        {
            "names": [name],
            "kind": "other",
            "effect": tool.effect,
            "output": {"*": tool.output, **tool.fields},
            **({"targets": {"where": list(tool.targets)}} if tool.targets else {}),
        }
        for name, tool in TOOLS.items()
    ],
}
LABELLED = {"field": "run.labels", "operator": "equals", "value": "untrusted"}
ACTS = {"field": "tool.effect", "operator": "not_equals", "value": "read"}
POLICIES: list[dict[str, Any]] = [
    policy_body(
        "label",
        "allow",
        where("toolName", "in", ["read_page", "list_mail"]),
        on="tool.completed",
        labels={"add": ["untrusted"]},
    ),
    policy_body("hold", "require_approval", ACTS, LABELLED, where("derived.untrustedTargets", "exists")),
    policy_body(
        "strict", "warn", ACTS, {"expression": "size(derived.unaskedTargets) > 0"}, labels={"add": ["strict"]}
    ),
    policy_body(
        "after-tool", "warn", where("toolName", "exists"), after={"tool": "find contact", "withinCalls": 2}
    ),
    on_tool("after-policy", "warn", "think", after={"policy": "hold", "withinCalls": 3}),
    policy_body(
        "after-label",
        "block",
        where("inputPayload.last", "exists"),
        after={"label": "untrusted", "withinCalls": 1},
    ),
]

VALUES = st.sampled_from(
    [
        *("bob@corp.example", "BOB@corp.example", "mallory@evil.example", "alice", "Alice Jones", "id-77"),
        *("https://corp.example/a", "corp.example", "77", "777", "4711", "ｍallory@evil.example", "carol"),
    ]
)
TEXTS = st.lists(
    st.one_of(VALUES, st.sampled_from(["please", "write to", '"the big plan"', "now."])), max_size=5
).map(" ".join)
OUTPUTS = st.one_of(
    TEXTS,
    st.dictionaries(st.sampled_from(["id", "notes", "email", "memo"]), st.one_of(VALUES, TEXTS), max_size=3),
    st.lists(st.fixed_dictionaries({"id": VALUES, "body": TEXTS}), max_size=2),
)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "to": st.one_of(VALUES, st.lists(VALUES, max_size=2)),
        "id": VALUES,
        "name": VALUES,
        "body": TEXTS,
        "last": st.just(1),
    },
)
ECHO = "what it was given"
"""An output that is the payload again."""


def calls_of(
    tool: str, payload: st.SearchStrategy[Any], output: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"tool": st.just(tool), "payload": payload, "output": output | output.map(json.dumps)},
        optional={
            "failed": st.just(True),
            "approve": st.just(True),
            "yaml": st.just(True),
            "in_text": st.just(True),
        },
    )


def payload(**arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(arguments, optional={"last": st.just(1)})


LIKELY = st.one_of(
    calls_of("read_page", payload(), TEXTS | VALUES),
    calls_of("find_contact", payload(name=VALUES), st.fixed_dictionaries({"email": VALUES, "notes": VALUES})),
    calls_of(
        "list_mail", payload(), st.lists(st.fixed_dictionaries({"id": VALUES, "body": VALUES}), max_size=2)
    ),
    calls_of("send_mail", payload(to=VALUES), st.just(ECHO)),
    calls_of("delete_item", payload(id=VALUES), st.just(ECHO)),
)
"""Calls as tools are used."""
ANY = st.one_of(
    st.fixed_dictionaries(
        {"tool": st.sampled_from(sorted(TOOLS)), "payload": PAYLOADS},
        optional={
            "output": st.one_of(OUTPUTS, OUTPUTS.map(json.dumps)),
            "failed": st.just(True),
            "yaml": st.just(True),
            "in_text": st.just(True),
            "twice": OUTPUTS,
            "approve": st.booleans(),
        },
    ),
    st.fixed_dictionaries({"said": TEXTS}),
)
STEPS = st.lists(st.one_of(LIKELY, LIKELY, LIKELY, ANY), min_size=1, max_size=12)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Service]]:
    folder = tmp_path_factory.mktemp("flow")
    service = Service(folder, POLICIES, live=True, files={"tools/tests.yaml": json.dumps(SET)})
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        runner.run(service.__aenter__())
        stack.callback(lambda: runner.run(service.__aexit__(None, None, None)))
        yield runner, service


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(task=st.one_of(st.none(), TEXTS), steps=STEPS)
def test_generated_runs(
    running: tuple[asyncio.Runner, Service], task: str | None, steps: list[dict[str, Any]]
) -> None:
    runner, service = running
    runner.run(Play(service).run(task, steps))


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(task=TEXTS, steps=STEPS, own_task=TEXTS, own_steps=STEPS)
def test_a_run_that_another_has_started(
    running: tuple[asyncio.Runner, Service],
    task: str,
    steps: list[dict[str, Any]],
    own_task: str,
    own_steps: list[dict[str, Any]],
) -> None:
    """It has the labels and values of that one; its own task is nobody's word, and its calls are its own."""

    async def both(parent: Play) -> None:
        await parent.run(task, steps)
        await Play(parent.service, parent).run(own_task, own_steps)

    runner, service = running
    runner.run(both(Play(service)))


def test_what_comes_beyond_512_values_of_a_source_is_unseen(
    running: tuple[asyncio.Runner, Service],
) -> None:
    """The model has no such bound: up to it both say the same, beyond it the service says `unseen`."""
    listed = [{"email": f"person{number}@corp.example"} for number in range(520)]
    steps = [
        {"tool": "find_contact", "payload": {"name": "all"}, "output": listed},
        {"tool": "read_page", "payload": {}, "output": "hello"},
        *({"tool": "send_mail", "payload": {"to": f"person{number}@corp.example"}} for number in (0, 200)),
    ]

    async def play(run: Play) -> None:
        await run.run("write to all", steps)
        answer = await run.send(
            "tool.called",
            toolCallId="beyond",
            toolName="send_mail",
            inputPayload={"to": "person519@corp.example"},
        )
        assert answer["toolCallStatus"] == "awaiting_approval"
        assert not model.untrusted_targets(
            TOOLS["send_mail"], {"to": "person519@corp.example"}, run.told, TOOLS
        )

    runner, service = running
    runner.run(play(Play(service)))


@pytest.mark.parametrize("path", sorted((CASES / "runs").glob("*.yaml")), ids=lambda path: path.stem)
def test_recorded_runs(running: tuple[asyncio.Runner, Service], path: Path) -> None:
    runner, service = running
    case = case_files.read(path)
    decided = runner.run(Play(service).run(case.get("task"), case["steps"]))
    assert decided == case["expect"]


class Play:
    """One run, told to the service and to the model alike; `parent` is the run that started it."""

    def __init__(self, service: Service, parent: Play | None = None) -> None:
        self.service = service
        self.parent = parent
        self.name = f"run-{next(_numbers)}"
        self.inherited: list[model.Step] = parent.seen() if parent is not None else []
        self.told: list[model.Step] = []

    def seen(self) -> list[model.Step]:
        """What the run has seen, and what the one that started it had seen before."""
        return [*self.inherited, *self.told]

    async def run(self, task: str | None, steps: list[dict[str, Any]]) -> list[str]:
        if self.parent is not None:
            await self.send("run.started", task=task, parentRunId=self.parent.name)
        elif task is not None:
            await self.send("run.started", task=task)
            self.told.append({"task": task})
        decided = []
        for number, step in enumerate(steps):
            if "said" in step:
                await self.send("custom.user_message", message=step["said"])
                if self.parent is None:  # what is said to a sub-run an agent says, as its task
                    self.told.append({"said": step["said"]})
            else:
                decided.append(await self.call(f"c{number}", step))
        return decided

    async def call(self, call_id: str, step: dict[str, Any]) -> str:
        tool, payload = step["tool"], step["payload"]
        given = payload
        if step.get("in_text") and "last" not in payload:  # as function calls have their arguments
            payload, given = {"arguments": payload}, {"arguments": json.dumps(payload)}
            step = {**step, "payload": payload}
        expected = self.expected(tool, payload)
        answer = await self.send("tool.called", toolCallId=call_id, toolName=tool, inputPayload=given)
        matched = {match["policyId"] for match in answer["matchedPolicies"]}
        assert matched == expected, (tool, payload, self.told)
        blocked = "after-label" in expected
        held = not blocked and "hold" in expected
        self.told.append(
            {
                "call": call_id,
                "tool": tool,
                "payload": payload,
                "blocked": blocked,
                "policies": matched,
                "labels": ["strict"] if "strict" in matched else [],
            }
        )
        if held and step.get("approve"):
            path = f"/v1/approvals/{answer['approvalId']}/approve"
            assert (await self.service.call("reviewer", "POST", path, {})).status_code == 200
            self.told.append({"approved": payload})
            held = False
        for number, key in enumerate(("output", "twice")):
            if key in step:
                believed = not (blocked or held or number or step.get("failed"))
                await self.outcome(call_id, step, key, believed)
        return answer["toolCallStatus"]

    async def outcome(self, call_id: str, step: dict[str, Any], key: str, believed: bool) -> None:
        if key == "twice" and "output" not in step:
            return
        kind = "tool.failed" if step.get("failed") else "tool.completed"
        output = step["payload"] if step[key] in (ECHO, json.dumps(ECHO)) else step[key]
        told = yaml.safe_dump(output) if step.get("yaml") and isinstance(output, (dict, list)) else output
        await self.send(kind, toolCallId=call_id, outputPayload=told)
        labels = ["untrusted"] if step["tool"] in ("read_page", "list_mail") else []
        self.told.append(
            {
                "output": output,
                "tool": step["tool"],
                "payload": step["payload"],
                "believed": believed,
                "labels": labels,
            }
        )

    def expected(self, name: str, payload: dict[str, Any]) -> set[str]:
        tool, told, seen = TOOLS[name], self.told, self.seen()
        labelled: list[model.Step] = [{"labels": model.labels(self.inherited)}, *told]
        acts = tool.effect != "read"
        checks = {
            "hold": acts
            and "untrusted" in model.labels(seen)
            and bool(model.untrusted_targets(tool, payload, seen, TOOLS)),
            "strict": acts and bool(model.unasked_targets(tool, payload, seen, TOOLS)),
            "after-tool": model.happened(told, 2, "tool", "find_contact"),
            "after-policy": name == "think" and model.happened(told, 3, "policies", "hold"),
            "after-label": "last" in payload and model.happened(labelled, 1, "labels", "untrusted"),
        }
        return {policy for policy, holds in checks.items() if holds}

    async def send(self, event_type: str, **fields: Any) -> Any:
        number = f"{self.name}-{next(_numbers)}"
        answer = await self.service.report("agent", number, event_type, runId=self.name, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()
