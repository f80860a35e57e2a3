"""Thin runners for the readable cases: conditions and decisions, one test per case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.conditions.compiled import check_policy, compile_condition
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Fault, Policy, RateLimit, ToolCall
from tests.harness import case_files
from tests.harness.places import CASES

SCHEMA = jsonschema.Draft202012Validator(json.loads((CASES / "case.schema.json").read_text(encoding="utf-8")))
VERDICTS = {True: "match", False: "no match"}


def files(kind: str) -> list[Path]:
    return sorted((CASES / kind).rglob("*.yaml"))


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = case_files.read(path)
    return document


def numbered(kind: str, member: str) -> list[Any]:
    return [
        pytest.param(document, item, id=f"{path.stem}-{number}")
        for path in files(kind)
        for document in [load(path)]
        for number, item in enumerate(document.get(member, ()), 1)
    ]


def condition_of(shape: dict[str, Any]) -> Condition:
    return Condition(**shape)


def policy_of(shape: dict[str, Any]) -> Policy:
    limit = shape.get("rateLimit")
    return Policy(
        policy_id=shape.get("policyId", shape["name"]),
        name=shape["name"],
        action=shape["action"],
        conditions=tuple(condition_of(item) for item in shape["matchConditions"]),
        enabled=shape.get("enabled", True),
        scope=shape.get("scope", "all"),
        mode=shape.get("mode", "enforce"),
        failure_policy=shape.get("failurePolicy", "fail"),
        rate_limit=limit
        and RateLimit(limit["limit"], limit["windowSeconds"], tuple(limit.get("per", ("agentId",)))),
    )


@pytest.mark.parametrize("path", files("conditions") + files("decisions"), ids=lambda path: path.stem)
def test_case_file_obeys_the_schema(path: Path) -> None:
    SCHEMA.validate(load(path))


@pytest.mark.parametrize(("document", "item"), numbered("conditions", "cases"))
def test_condition(document: dict[str, Any], item: dict[str, Any]) -> None:
    condition = compile_condition(condition_of(document["condition"]))
    call = ToolCall.of(**item["call"]) if "call" in item else ToolCall.of(inputPayload=item["payload"])
    facts = Facts(call.document)
    verdict = condition.evaluate(facts)
    assert ("error" if isinstance(verdict, Fault) else VERDICTS[verdict]) == item["expect"]
    words = condition.describe(facts)
    if "because" in item:
        assert words == item["because"]
    assert words.isprintable()


@pytest.mark.parametrize(("document", "item"), numbered("conditions", "refused"))
def test_refused_condition(document: dict[str, Any], item: dict[str, Any]) -> None:
    shapes = item.get("conditions") or [item["condition"]]
    with pytest.raises(ConditionError) as refusal:
        check_policy([compile_condition(condition_of(shape)) for shape in shapes])
    assert refusal.value.message == item["message"]
    assert refusal.value.part == item["part"]
    assert refusal.value.offset == item.get("offset")


def decisions() -> list[Any]:
    found = []
    for path in files("decisions"):
        document = load(path)
        for number, item in enumerate(document.get("calls", [document]), 1):
            found.append(pytest.param(document, item, id=f"{path.stem}-{number}"))
    return found


@pytest.mark.parametrize(("document", "item"), decisions())
def test_decision(document: dict[str, Any], item: dict[str, Any]) -> None:
    policies = [policy_of(shape) for shape in document["policies"]]
    over = set(item.get("overLimit", ()))
    call = ToolCall.of(**item["call"])
    expect = item["expect"]
    for ruleset in (Ruleset.build(policies), Ruleset.build(reversed(policies))):
        evaluation = ruleset.evaluate(call)
        assert evaluation == ruleset.scan(call), "the index found other policies than the plain loop"
        decision = decide(evaluation, lambda policy: policy.name in over)
        seen = {
            "status": decision.status,
            "matched": [match.policy.name for match in decision.matched],
            "shadow": [match.policy.name for match in decision.shadow],
            "counted": [policy.name for policy in decision.counted],
            "action": decision.action,
            "reason": decision.reason,
        }
        wanted = {"matched": [], "shadow": [], "counted": []} | expect
        wanted.pop("because", None)
        assert {name: seen[name] for name in wanted} == wanted
        reasons = {match.policy.name: match.reason for match in (*decision.matched, *decision.shadow)}
        for name, reason in expect.get("because", {}).items():
            assert reasons[name] == reason
