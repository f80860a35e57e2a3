"""What would happen to one call: the decision, the policies that led to it, and why each did or did not.

Nothing is counted: whether a rate limit is reached is asked of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import Json, Match, Policy, ToolCall


def simulate(
    ruleset: Ruleset,
    call: ToolCall,
    over_limit: Callable[[Policy], bool],
    *,
    explained: bool = False,
    policy_id: str | None = None,
) -> dict[str, Json]:
    """The answer in the shape of the contract; `policy_id` narrows the explanation to one policy."""
    evaluation = ruleset.evaluate(call)
    decision = decide(evaluation, over_limit)
    effective = {match.policy.policy_id for match in decision.matched}
    within = [match for match in evaluation.matches if match.policy.policy_id not in effective]
    answer: dict[str, Json] = {
        "matchedPolicies": _named(decision.matched),
        "resultingAction": decision.action,
        "toolCallStatus": decision.status,
        "reason": decision.reason,
        "policyRevision": ruleset.revision,
    }
    if decision.shadow:
        answer["shadowPolicies"] = _named(decision.shadow)
    if within:
        answer["rateLimitedPolicies"] = _named(within)
    if explained:
        answer["explanation"] = [each.as_json() for each in ruleset.explain(call, policy_id)]
    return answer


def _named(matches: Sequence[Match]) -> list[Json]:
    return [
        {
            "policyId": match.policy.policy_id,
            "name": match.policy.name,
            "action": match.policy.action,
            "reason": match.reason,
        }
        for match in matches
    ]
