"""The load gate: a policy's own examples must hold.

Decides whether a call matches one policy's compiled conditions (the three-valued rule of the policy
language), and says in words which condition decided when an example does not hold. It knows nothing of
files or of other policies; rate limits, `enabled` and `mode` play no part in whether a policy matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from engine.cel.fast_paths import STEPS
from engine.conditions.compiled import CompiledCondition
from engine.derived.facts import Facts
from engine.derived.tools import NO_TOOLS, Tools, named
from engine.model import Example, Fault, Json, Policy, ToolCall

MOST_STEPS: Final = 4 * STEPS
"""That the expressions of one policy may take in all its examples together, which everybody who loads it has
to wait for."""

_READS_TOOLS: Final = re.compile(r"\btool\b|\bderived\b(?!\.(?:shellCommands|commands|text)\b)")
"""What a condition says that reads tools; some others say it too."""


def reads_tools(policy: Policy) -> bool:
    """True where what is declared of tools may decide whether the policy matches."""
    return any(_READS_TOOLS.search(each.field or each.expression or "") for each in policy.conditions)


def failures(
    policy: Policy, conditions: Sequence[CompiledCondition], tools: Tools = NO_TOOLS
) -> Iterator[tuple[int, str]]:
    """Index and explanation of every example that does not hold, up to the first one beyond `MOST_STEPS`."""
    left = MOST_STEPS
    for index, example in enumerate(policy.examples):
        purse = [STEPS]
        matches, why = outcome(policy, conditions, call_of(example), tools, purse)
        left -= STEPS - purse[0]
        if left < 0:
            yield (
                index,
                f"the examples up to this one take more than {MOST_STEPS:,} steps together; shorten their"
                " lists, or leave some out",
            )
            return
        if matches is not example.match:
            expected = "must match" if example.match else "must not match"
            named = f" (`{example.about}`)" if example.about else ""
            yield index, f"this example{named} {expected}, but {why}"


def from_json(entry: Mapping[str, Json]) -> Example:
    """An entry of `examples`; what is not said of it is its call."""
    call = {key: value for key, value in entry.items() if key not in ("match", "about")}
    return Example(entry["match"], call, entry.get("about"))


def as_json(example: Example) -> dict[str, Json]:
    """The entry of `examples`."""
    about = {} if example.about is None else {"about": example.about}
    return {"match": example.match, **about, **example.call}


def call_of(example: Example) -> ToolCall:
    """The call of an example, with empty defaults for the roots that every call has."""
    return ToolCall.of(**example.call)


def outcome(
    policy: Policy,
    conditions: Sequence[CompiledCondition],
    call: ToolCall,
    tools: Tools = NO_TOOLS,
    purse: list[int] | None = None,
) -> tuple[bool, str]:
    """Whether the call matches the policy, and what decided it; what expressions take is taken from the
    purse."""
    if policy.scope == "action_only" and call.just_reads:
        hint = call.document["actionHint"]
        return False, f"`scope: action_only` skips a call whose `actionHint` is `{hint}`"
    if (policy.on == "tool.completed") is not call.is_report:
        said = "and the example has no" if policy.on == "tool.completed" else "but the example has an"
        return False, f"the policy is `on: {policy.on}`, {said} `outputPayload`"
    facts = Facts(call.document, tools, purse=purse)
    if policy.after is not None:
        matches = named(policy.after.name) if policy.after.kind == "tool" else str.isalpha
        if not facts.memory.steps.holds(policy.after, matches):
            return False, "what `after` names did not happen before; say in `before` what did"
    faults: list[str] = []
    for number, condition in enumerate(conditions, 1):
        verdict = condition.evaluate(facts)
        if verdict is False:
            return (
                False,
                f"condition {number}, `{condition.text}`, does not hold: {condition.describe(facts)}",
            )
        if isinstance(verdict, Fault):
            faults.append(f"condition {number}, `{condition.text}`, cannot be evaluated: {verdict.message}")
    if not faults:
        return True, "every condition holds: " + "; ".join(each.describe(facts) for each in conditions)
    if policy.action == "allow" and not policy.labels:
        return False, f"{faults[0]}, and a policy that only allows does not match then"
    if policy.is_tolerant:
        return False, f"{faults[0]}, and `failurePolicy: ignore` makes the policy not match then"
    return True, f"{faults[0]}, and the policy matches then"
