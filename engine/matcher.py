"""Which policies match a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.conditions import CompiledCondition, check_policy, compile_condition
from engine.fields import Facts
from engine.model import Match, Policy, ToolCall


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A compiled policy. Rules compare by identity: an updated policy is another rule."""

    policy: Policy
    conditions: tuple[CompiledCondition, ...]
    lenient: bool
    """A condition that cannot be evaluated counts as not met."""
    actions_only: bool

    @classmethod
    def of(cls, policy: Policy) -> Rule:
        """Compile; raises ConditionError."""
        conditions = tuple(compile_condition(condition) for condition in policy.conditions)
        check_policy(conditions)
        lenient = policy.action == "allow" or policy.failure_policy == "ignore"
        return cls(policy, conditions, lenient, policy.scope == "action_only")

    def holds(self, facts: Facts) -> bool:
        """All conditions hold; one that cannot be evaluated counts as met unless the rule is lenient."""
        lenient = self.lenient
        for condition in self.conditions:
            verdict = condition.evaluate(facts)
            if verdict is False or (lenient and verdict is not True):
                return False
        return True

    def match(self, facts: Facts) -> Match:
        """The match in words; call only when `holds`."""
        faults = []
        reasons = []
        for condition in self.conditions:
            verdict = condition.evaluate(facts)
            if verdict is True:
                reasons.append(condition.describe(facts))
            elif verdict is not False:
                faults.append(f"`{condition.text}` could not be evaluated ({verdict.message})")
        if faults:
            reasons.append(" and ".join(faults) + ", which counts as a match")
        return Match(self.policy, "; ".join(reasons), tuple(faults))


class Matcher:
    """The compiled rules of one snapshot."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Sequence[Rule] = tuple(rules)

    def scan(self, call: ToolCall) -> list[Match]:
        """The plain loop over every rule: the model that the index is compared with."""
        facts = Facts(call.document)
        reads = call.just_reads
        return [
            rule.match(facts)
            for rule in self.rules
            if rule.policy.enabled and not (reads and rule.actions_only) and rule.holds(facts)
        ]

    def match(self, call: ToolCall) -> list[Match]:
        """What `scan` finds."""
        return self.scan(call)
