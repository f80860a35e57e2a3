"""The load gate: a policy's own examples must hold.

Decides whether a call matches one policy's compiled conditions (the three-valued rule of the policy
language), and says in words which condition decided when an example does not hold. It knows nothing of
files or of other policies; rate limits, `enabled` and `mode` play no part in whether a policy matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.conditions.compiled import CompiledCondition
from engine.derived.facts import Facts
from engine.derived.tools import NO_TOOLS, Tools, named
from engine.model import Example, Fault, Policy, ToolCall


def failures(
    policy: Policy, conditions: Sequence[CompiledCondition], tools: Tools = NO_TOOLS
) -> Iterator[tuple[int, str]]:
    """Index and explanation of every example that does not hold."""
    for index, example in enumerate(policy.examples):
        matches, why = outcome(policy, conditions, call_of(example), tools)
        if matches is not example.match:
            expected = "must match" if example.match else "must not match"
            yield index, f"this example {expected}, but {why}"


def call_of(example: Example) -> ToolCall:
    """The call of an example, with empty defaults for the roots that every call has."""
    return ToolCall.of(**example.call)


def outcome(
    policy: Policy, conditions: Sequence[CompiledCondition], call: ToolCall, tools: Tools = NO_TOOLS
) -> tuple[bool, str]:
    """Whether the call matches the policy, and what decided it."""
    if policy.scope == "action_only" and call.just_reads:
        hint = call.document["actionHint"]
        return False, f"`scope: action_only` skips a call whose `actionHint` is `{hint}`"
    if (policy.on == "tool.completed") is not call.is_report:
        said = "and the example has no" if policy.on == "tool.completed" else "but the example has an"
        return False, f"the policy is `on: {policy.on}`, {said} `outputPayload`"
    facts = Facts(call.document, tools)
    if policy.after is not None:
        matches = named(policy.after.name) if policy.after.kind == "tool" else str.isalpha
        if not facts.memory.steps.holds(policy.after, matches):
            return False, "what `after` names did not happen before; say in `before` what did"
    faults: list[str] = []
    held: list[str] = []
    for number, condition in enumerate(conditions, 1):
        verdict = condition.evaluate(facts)
        if verdict is False:
            return (
                False,
                f"condition {number}, `{condition.text}`, does not hold: {condition.describe(facts)}",
            )
        if isinstance(verdict, Fault):
            faults.append(f"condition {number}, `{condition.text}`, cannot be evaluated: {verdict.message}")
        else:
            held.append(condition.describe(facts))
    if not faults:
        return True, "every condition holds: " + "; ".join(held)
    if policy.action == "allow":
        return False, f"{faults[0]}, and a policy that allows does not match then"
    if policy.failure_policy == "ignore":
        return False, f"{faults[0]}, and `failurePolicy: ignore` makes the policy not match then"
    return True, f"{faults[0]}, and the policy matches then"
