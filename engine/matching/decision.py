"""From everything that matched a call to what happens to it: precedence, rate limits, the reason in words.

Decides nothing about conditions and counts nothing: whether a rate-limited policy is beyond its limit is
asked of the caller, who keeps the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from msgspec.structs import replace

from engine.model import STATUS, STRENGTH, Action, Decision, Evaluation, Match, Policy

NOTHING_MATCHED: Final = "no policy matched"
EXPLAINED: Final = 3
"""How many policies a reason explains; it names all of them."""

_STRENGTH: Final = STRENGTH.__getitem__

_OPENING: Final[dict[Action, str]] = {
    "block": "blocked by",
    "require_approval": "held for approval by",
    "warn": "allowed with a warning from",
    "allow": "allowed by",
}


def decide(evaluation: Evaluation, over_limit: Callable[[Policy], bool]) -> Decision:
    """The decision on one call.

    `over_limit` is asked once for each rate-limited policy that matched, and for no other; it says whether
    this call lies beyond the policy's limit. INVARIANT: the strongest effective match decides, so one more
    match never loosens a decision.
    """
    matched = _effective(evaluation.matches, over_limit)
    shadow = _effective(evaluation.shadow, over_limit)
    action: Action = min((match.policy.action for match in matched), key=_STRENGTH, default="allow")
    status = STATUS[action]
    counted: tuple[Policy, ...] = ()
    if status != "blocked":
        limited = [match.policy for match in (*evaluation.matches, *evaluation.shadow)]
        counted = tuple(policy for policy in limited if policy.rate_limit is not None)
    return Decision(action, status, explain(matched), matched, shadow, counted)


def without(decision: Decision, covered: Container[str]) -> Decision:
    """The decision as if the policies with these ids had not matched; it counts against the same rate limits.

    INVARIANT: a policy that blocks always counts.
    """
    matched = tuple(
        match
        for match in decision.matched
        if match.policy.action == "block" or match.policy.policy_id not in covered
    )
    action: Action = min((match.policy.action for match in matched), key=_STRENGTH, default="allow")
    return replace(decision, action=action, status=STATUS[action], reason=explain(matched), matched=matched)


def explain(matched: Sequence[Match]) -> str:
    """The reason of a decision: every deciding policy by name, the first few with why they matched."""
    if not matched:
        return NOTHING_MATCHED
    action = matched[0].policy.action
    deciding = [match for match in matched if match.policy.action == action]
    names = [f"`{match.policy.name}`" for match in deciding]
    opening = f"{_OPENING[action]} {_listed(names)}"
    if len(deciding) == 1:
        return f"{opening}: {deciding[0].reason}"
    reasons = [f"{name} because {match.reason}" for name, match in zip(names, deciding, strict=True)]
    return f"{opening}: {'; '.join(reasons[:EXPLAINED])}"


def _effective(matches: Sequence[Match], over_limit: Callable[[Policy], bool]) -> tuple[Match, ...]:
    effective = []
    for match in matches:
        limit = match.policy.rate_limit
        if limit is None:
            effective.append(match)
        elif over_limit(match.policy):
            calls = "1 call" if limit.limit == 1 else f"{limit.limit:,} calls"
            seconds = "1 second" if limit.window_seconds == 1 else f"{limit.window_seconds:,} seconds"
            beyond = f"beyond {calls} in {seconds} per {' and '.join(limit.per)}"
            effective.append(replace(match, reason=f"{match.reason}; {beyond}"))
    return tuple(effective)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
