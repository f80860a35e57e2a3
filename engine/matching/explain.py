"""Why a policy matches a call or does not, condition by condition, and what would turn each over.

Knows nothing of the index: it evaluates each condition by itself, on the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.conditions.compiled import CompiledCondition
from engine.conditions.settings import told
from engine.derived.facts import Facts
from engine.derived.tools import Tools
from engine.matching.counterfactual import Counterfactual, counterfactual, failed
from engine.matching.matcher import CompiledPolicy
from engine.model import Condition, Fault, Json, Policy, ToolCall

Result = Literal["true", "false", "error"]

MOST_ACTUAL = 10
"""Values shown where a path leads to many."""


@dataclass(frozen=True, slots=True)
class ConditionExplanation:
    """One condition: what it expects, what the call has, the result, and what would turn it over.

    `actual` is what the path leads to (a list of values when to several, up to ten), None when `missing`;
    for an expression it lists the terms that do not hold. `message` tells the result in words.
    """

    condition: Condition
    expected: str
    actual: Json
    missing: bool
    result: Result
    message: str
    counterfactual: Counterfactual

    def as_json(self) -> dict[str, Json]:
        shape: dict[str, Json] = {"condition": self.condition.as_json(), "expected": self.expected}
        if not self.missing:
            shape["actual"] = self.actual
        return shape | {"result": self.result, "message": self.message, "flip": self.counterfactual.as_json()}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One policy: whether it matches, why in a sentence, and its conditions."""

    policy: Policy
    matched: bool
    summary: str
    conditions: tuple[ConditionExplanation, ...]

    def as_json(self) -> dict[str, Json]:
        return {
            "policyId": self.policy.policy_id,
            "name": self.policy.name,
            "action": self.policy.action,
            "mode": self.policy.mode,
            "matched": self.matched,
            "summary": self.summary,
            "conditions": [condition.as_json() for condition in self.conditions],
        }


def explain(rule: CompiledPolicy, call: ToolCall) -> Explanation:
    """Why the rule matches the call or does not."""
    conditions = tuple(_condition(condition, call, rule.tools) for condition in rule.conditions)
    matched, summary = _summary(rule, call, conditions)
    return Explanation(rule.policy, matched, summary, conditions)


def _condition(condition: CompiledCondition, call: ToolCall, tools: Tools) -> ConditionExplanation:
    facts = Facts(call.document, tools)
    verdict = condition.evaluate(facts)
    result: Result = "error" if isinstance(verdict, Fault) else "true" if verdict else "false"
    actual: Json = None
    missing = False
    if condition.path is not None:
        ends = facts.at(condition.path).ends
        missing = not ends
        actual = ends[0] if len(ends) == 1 else list(ends[:MOST_ACTUAL])
    else:
        actual = list(failed(condition, facts))
    return ConditionExplanation(
        condition.condition,
        condition.text,
        None if missing else actual,
        missing,
        result,
        condition.describe(facts),
        counterfactual(condition, call.document, tools),
    )


def _summary(
    rule: CompiledPolicy, call: ToolCall, conditions: tuple[ConditionExplanation, ...]
) -> tuple[bool, str]:
    if rule.lacking:
        return False, f"the policy is inactive until {told(rule.lacking)}"
    if not rule.policy.enabled:
        return False, "the policy is disabled"
    if rule.on_report is not call.is_report:
        asked = "an outcome (`outputPayload`)" if rule.on_report else "a call before it runs"
        return False, f"the policy is asked about {asked} only"
    if rule.after is not None and not rule.after.holds(rule.facts(call)):
        return False, f"does not match: there was not {rule.after.text}"
    if rule.actions_only and call.just_reads:
        hint = call.document["actionHint"]
        return False, f"`scope: action_only` skips a call whose `actionHint` is `{hint}`"
    unmet = [condition.message for condition in conditions if condition.result == "false"]
    faults = [condition.message for condition in conditions if condition.result == "error"]
    if unmet:
        return False, "does not match: " + "; ".join(unmet)
    if faults and rule.tolerant:
        return False, "does not match, since this policy tolerates faults: " + "; ".join(faults)
    if faults:
        return True, "matches, since a condition that cannot be evaluated counts as met: " + "; ".join(faults)
    return True, "matches: every condition holds"
