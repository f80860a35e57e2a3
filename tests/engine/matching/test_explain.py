"""Explanations: what matched, and the smallest change that flips it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from engine.matching.counterfactual import counterfactual
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Json, Policy, ToolCall
from tests.engine.matching.test_ruleset import policy
from tests.harness.effort import examples
from tests.test_agreement import calls, policies


def explained(found: Policy, **roots: Json) -> dict[str, Json]:
    (explanation,) = Ruleset.build([found]).explain(ToolCall.of(**roots))
    return explanation.as_json()


@pytest.mark.parametrize(
    ("condition", "payload", "result", "text"),
    [
        (("inputPayload.a", "greater_than", 10000), {"a": 12000}, "true", "set `inputPayload.a` to 10000"),
        (("inputPayload.a", "greater_than", 10000), {"a": 5}, "false", "set `inputPayload.a` to 10001"),
        (("inputPayload.a", "greater_than", 10000), {"a": "x"}, "error", "set `inputPayload.a` to 10001"),
        (("inputPayload.a", "less_than_or_equal", 5), {"a": 9}, "false", "set `inputPayload.a` to 5"),
        (("inputPayload.a", "less_than_or_equal", 5), {"a": 5}, "true", "set `inputPayload.a` to 6"),
        (("inputPayload.a", "equals", "x"), {}, "false", 'set `inputPayload.a` to "x"'),
        (("inputPayload.a", "not_equals", "x"), {}, "true", 'set `inputPayload.a` to "x"'),
        (("inputPayload.a", "in", ["red", "blue"]), {"a": "blu"}, "false", 'set `inputPayload.a` to "blue"'),
        (("inputPayload.a", "contains", "rm"), {"a": "arm"}, "true", 'set `inputPayload.a` to "a"'),
        (("inputPayload.a", "not_contains", "rm"), {"a": "arm"}, "false", 'set `inputPayload.a` to "a"'),
        (("inputPayload.a", "starts_with", "/x"), {"a": "/y"}, "false", 'set `inputPayload.a` to "/x/y"'),
        (("inputPayload.a", "matches", r"(?i)a\s+b"), {"a": "xA By"}, "true", 'set `inputPayload.a` to "xy"'),
        (("inputPayload.a", "matches", "[0-9]{4}"), {"a": "x"}, "false", 'set `inputPayload.a` to "x0000"'),
        (("inputPayload.a", "exists", None), {"a": None}, "true", "remove `inputPayload.a`"),
        (("inputPayload.a.b", "not_exists", None), {"a": {"b": 1}}, "false", "remove `inputPayload.a.b`"),
        (("inputPayload.a.b", "equals", 1), {}, "false", "set `inputPayload.a.b` to 1"),
    ],
)  # fmt: skip
def test_the_smallest_change_that_flips(
    condition: tuple[str, str, Json], payload: dict[str, Json], result: str, text: str
) -> None:
    (shown,) = explained(policy("p", condition), inputPayload=payload)["conditions"]
    assert (shown["result"], shown["flip"]["text"]) == (result, text)
    assert ("actual" in shown) is (condition[0].split(".")[1] in payload)


def test_an_expression_tells_its_terms_and_flips() -> None:
    found = policy("p", 'toolName == "wire" && inputPayload.amount > 100')
    (shown,) = explained(found, toolName="wire", inputPayload={"amount": 5})["conditions"]
    assert shown["actual"] == ["`inputPayload.amount > 100`"]
    assert shown["flip"]["changes"] == [{"field": "inputPayload.amount", "value": 101}]
    (shown,) = explained(found, toolName="wire", inputPayload={})["conditions"]
    assert shown["result"] == "error"
    assert shown["flip"]["changes"] == [{"field": "inputPayload.amount", "value": 101}]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (("toolName", "equals", 5), 'set `toolName` to "5"'),
        (("toolName", "exists", None), "no call turns it over"),
        (("user.scopes", "contains", "a"), 'set `user.scopes` to ["a"]'),
        ('"a" in user.scopes', 'set `user.scopes` to ["a"]'),
        ('user.id == "u" || false', 'set `user.id` to "u"'),
        ('toolName != "" && false', "no call turns it over"),
    ],
)
def test_no_advice_is_impossible(condition: tuple[str, str, Json] | str, text: str) -> None:
    """A tool's name is a text, scopes are a list, and what never or always holds cannot be turned over."""
    (shown,) = explained(policy("p", ("toolName", "equals", "t"), condition), toolName="t")["conditions"][1:]
    assert shown["flip"]["text"] == text


def test_a_policy_is_explained_as_a_whole() -> None:
    found = policy("p", ("toolName", "equals", "wire"), ("inputPayload.amount", "greater_than", 5))
    call: dict[str, Json] = {"toolName": "wire", "inputPayload": {"amount": "much"}}
    shown = explained(found, **call)
    assert shown["matched"] is True and "counts as met" in shown["summary"]
    assert explained(replace(found, action="allow"), **call)["matched"] is False
    assert explained(replace(found, enabled=False), **call)["summary"] == "the policy is disabled"
    skipped = explained(replace(found, scope="action_only"), actionHint="List", **call)
    assert "skips" in skipped["summary"]
    assert Ruleset.build([found]).explain(ToolCall.of(), "other") == []


@examples(300, 5_000)
@given(policies, calls)
def test_explanations_agree_with_the_evaluation_and_flips_hold(found: Policy, call: ToolCall) -> None:
    ruleset = Ruleset.build([found])
    (explanation,) = ruleset.explain(call)
    json.dumps(explanation.as_json(), default=str)
    evaluation = ruleset.scan(call)
    assert explanation.matched is bool(evaluation.matches or evaluation.shadow)
    for condition in CompiledPolicy.of(found).conditions:
        counterfactual(condition, call.document)


@pytest.mark.parametrize("operator", ["contains", "not_contains", "matches", "not_matches", "equals"])
@pytest.mark.parametrize("payload", [{}, {"q": "drop table x", "n": 1}, {"command": "SELECT 1"}])
def test_a_payload_is_never_to_become_a_text(operator: str, payload: dict[str, Json]) -> None:
    ruleset = Ruleset.build([Policy("p", "P", "block", (Condition("inputPayload", operator, "drop table"),))])
    call = ToolCall.of(toolName="q", inputPayload=payload)
    (found,) = ruleset.explain(call)[0].conditions
    if operator == "equals":
        assert found.counterfactual.as_json() == {"text": "no call turns it over", "changes": []}
        return
    (change,) = found.counterfactual.changes
    assert change.field != "inputPayload" or isinstance(change.value, dict)
    assert "an object" not in found.counterfactual.text
