"""What is wrong with a policy among the others: a duplicate, made needless by another, stopped by another.

Each finding is proven (`subsumption`), or shown by a call on which all policies in force were asked. How many
are asked is bounded; where that was too few, nothing is claimed and the finding says so.

It must not know files or how findings are printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.analysis import subsumption, witness
from engine.analysis.findings import Finding
from engine.conditions.examples import call_of
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import STRENGTH, Policy, ToolCall

ALWAYS_ASKED: Final = 500
"""Policies that are always asked about another's witness; more only while `EFFORT` lasts."""

EFFORT: Final = 4_000_000
"""Policies asked in all, so that sets in which all match the same calls take seconds and not hours."""

MOST_COVERING: Final = 256
"""Policies that match a witness and are tried as the one that makes another needless."""


def twins(rules: Mapping[str, CompiledPolicy]) -> dict[object, list[str]]:
    """Policies with the same conditions and effect, by what they have in common; only where there are two."""
    found: dict[object, list[str]] = defaultdict(list)
    for policy_id, rule in sorted(rules.items()):
        if rule.policy.enabled:
            found[_same_effect(rule)].append(policy_id)
    return {key: ids for key, ids in found.items() if len(ids) > 1}


class InForce:
    """All policies in force, asked which match a call, within bounds."""

    def __init__(self, ruleset: Ruleset) -> None:
        self._ruleset = ruleset
        self._left = EFFORT
        self.left_out = False
        """Some policies were not looked at since this was last set to False, so silence says even less."""

    def matching(self, call: ToolCall) -> list[CompiledPolicy] | None:
        """The policies that match; None where asking them would take too long, so nothing is claimed."""
        found = self._ruleset.matching_few(call, ALWAYS_ASKED)
        if found is None and self._left > 0:
            self._left -= len(self._ruleset.rules)
            found = self._ruleset.matching(call)
        self.left_out = self.left_out or found is None
        return found


def _same_effect(rule: CompiledPolicy) -> object:
    policy = rule.policy
    return (
        frozenset(condition.key for condition in rule.conditions),
        *(policy.action, policy.scope, policy.mode, policy.rate_limit, policy.failure_policy),
        *(policy.approval, policy.on, policy.labels, policy.after),
    )


def among_others(
    rule: CompiledPolicy, call: ToolCall | None, in_force: InForce, same_effect: Mapping[object, list[str]]
) -> Iterator[Finding]:
    policy = rule.policy
    if not policy.enabled:
        return
    same = same_effect.get(_same_effect(rule), [])
    if same and same[0] != policy.policy_id:
        message = f"it has the same conditions and effect as `{same[0]}`; remove one of the two"
        outcome = "both match this call" if call is not None else ""
        yield Finding(
            "duplicate", message, policy, "", witness.shown(call) if call else None, outcome, (same[0],)
        )
        return
    if call is None or policy.mode != "enforce":
        return
    if rule.on_report or rule.after is not None or policy.labels:
        return  # what it is for is not its own call alone, so none that others stop makes it needless
    in_force.left_out = False
    covering = _covering(rule, call, in_force)
    if covering is None and in_force.left_out:
        message = (
            "so many policies match its calls that it was not compared with each of them; whether another "
            "one makes it needless, or stops what it allows, is not known"
        )
        yield Finding("not-compared", message, policy)
        return
    if policy.action == "allow":
        yield from _of_allow(rule, call, in_force, covering)
    elif covering is not None:
        other = covering.policy
        does = {"block": "blocks", "require_approval": "holds", "warn": "warns about"}[other.action]
        message = f"`{other.name}` ({other.policy_id}) already {does} every call that this policy matches"
        outcome = f"both match this call, and `{other.policy_id}` is stronger"
        if other.action == policy.action:
            outcome = "both match this call"
        yield Finding(
            "shadowed", message, policy, "/action", witness.shown(call), outcome, (other.policy_id,)
        )


def _covering(rule: CompiledPolicy, call: ToolCall, in_force: InForce) -> CompiledPolicy | None:
    """A policy that matches whatever the rule matches and is as strong. It matches the rule's witness too,
    so only those that do are tried."""
    policy = rule.policy
    found: list[CompiledPolicy] = []
    for other in in_force.matching(call) or ():
        if other is rule or other.policy.mode != "enforce" or other.policy.rate_limit is not None:
            continue
        if _outdoes(other.policy, policy):
            found.append(other)
    found.sort(key=lambda each: each.policy.order)
    for other in found[:MOST_COVERING]:
        if subsumption.covers(other, rule) and not _mutual(rule, other):
            return other
    in_force.left_out = in_force.left_out or len(found) > MOST_COVERING
    return None


def _outdoes(other: Policy, policy: Policy) -> bool:
    if STRENGTH[other.action] != STRENGTH[policy.action]:
        return STRENGTH[other.action] < STRENGTH[policy.action]
    return policy.action != "allow" and other.approval == policy.approval


def _mutual(rule: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Of two equally strong policies that cover each other only the later one is needless."""
    mine, theirs = rule.policy, other.policy
    if mine.action != theirs.action or mine.rate_limit is not None:
        return False
    return mine.policy_id < theirs.policy_id and subsumption.covers(rule, other)


def _of_allow(
    rule: CompiledPolicy, call: ToolCall, in_force: InForce, covering: CompiledPolicy | None
) -> Iterator[Finding]:
    policy = rule.policy
    if covering is not None and covering.policy.action in ("block", "require_approval"):
        other = covering.policy
        message = (
            f"it can never win: `{other.name}` ({other.policy_id}) {_stops(other)} every call that it allows"
        )
        # A third policy may match the call as well, and be stronger.
        strongest = _strongest(in_force.matching(call) or [covering])
        outcome = f"both match this call, which is {_done(strongest or other)}"
        yield Finding(
            "contradictory", message, policy, "/action", witness.shown(call), outcome, (other.policy_id,)
        )
        return
    stopping = _stopping(rule, call, in_force)
    if stopping is not None:
        other, shown = stopping
        message = (
            f"`{other.name}` ({other.policy_id}) {_stops(other)} calls that this policy allows, and wins; to "
            f"make an exception, add its opposite to the conditions of `{other.policy_id}`"
        )
        outcome = f"both match this call, which is {_done(other)}"
        yield Finding(
            "contradictory", message, policy, "/action", witness.shown(shown), outcome, (other.policy_id,)
        )
        return
    message = (
        "calls that no policy matches are allowed anyway, and a stronger policy always wins; an `allow` only "
        "puts its name into the record"
    )
    yield Finding("allow-is-void", message, policy, "/action")


def _stopping(rule: CompiledPolicy, call: ToolCall, in_force: InForce) -> tuple[Policy, ToolCall] | None:
    """A policy that stops a call which the rule allows, and that call."""
    calls = [call, *(call_of(example) for example in rule.policy.examples if example.match)]
    calls += witness.satisfying(rule.conditions, attempts=4, tools=rule.tools)
    for each in calls:
        matching = in_force.matching(each)
        if matching is None:
            return None
        if rule not in matching:
            continue
        best = _strongest(matching)
        if best is not None:
            return best, each
    return None


def _strongest(matching: Iterable[CompiledPolicy]) -> Policy | None:
    """Of policies that match a call, the one that stops it."""
    stopping = [
        each.policy
        for each in matching
        if each.policy.mode == "enforce"
        and each.policy.rate_limit is None
        and each.policy.action in ("block", "require_approval")
    ]
    return min(stopping, key=lambda each: each.order, default=None)


def _stops(policy: Policy) -> str:
    return "blocks" if policy.action == "block" else "holds"


def _done(policy: Policy) -> str:
    return "blocked" if policy.action == "block" else "held for approval"
