"""Which policies match a call: the index proposes, the conditions decide. `scan` is the same without index.

A policy matches when no condition is FALSE and either all are TRUE or the policy does not tolerate faults:
`block`, `require_approval` and `warn` take a condition that cannot be evaluated for met, `allow` and
`failurePolicy: ignore` do not. Disabled policies never match; `scope: action_only` skips reading calls.

A matcher never changes. A change makes another one that shares the big index and differs in a thin overlay:

    base     the index over all rules of some moment                  100,000 rules
    tiers    small indexes over what changed since                         some 64 each
    recent   the latest changes, in no index                               up to 16
    gone     rules of base and tiers that were replaced or removed

    candidates = (base + tiers + recent) - gone

INVARIANT: `match` finds exactly what `scan` finds, after any sequence of changes and compactions.

Knows nothing of precedence, rate limits, files or digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from engine.conditions.compiled import CompiledCondition, check_policy, compile_condition
from engine.conditions.message import Message
from engine.conditions.operands import check_pattern
from engine.conditions.settings import NO_SETTINGS, in_force, missing, reads
from engine.derived.facts import Facts
from engine.derived.tools import NO_TOOLS, Tools
from engine.fields.computed import DERIVED
from engine.fields.paths import Path
from engine.fields.scalars import shorten
from engine.matching.index import Index
from engine.matching.overlay import OverlayMapping
from engine.matching.sequence import OF_VALUES, CompiledAfter
from engine.model import Match, OrganisationSettings, Policy, ToolCall, Verdict

RECENT: Final = 16
"""Changes that are simply evaluated; more of them become a tier."""

TIER: Final = 64
"""A tier below this size is merged with the next, so that one change stays cheap."""

LONGEST_DESCRIPTION: Final = 300
"""Characters of a description that stand as the reason of a match."""


class CompiledPolicy(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A compiled policy. Rules compare by identity: an updated policy is another rule."""

    policy: Policy
    conditions: tuple[CompiledCondition, ...]
    tolerant: bool
    """A condition that cannot be evaluated counts as not met."""
    actions_only: bool
    tools: Tools = NO_TOOLS
    """The declarations of tools that count where the policy is."""
    told: Message | str | None = None
    """What a match is told as, instead of the conditions."""
    reads: tuple[str, ...] = ()
    """The settings that stand in the policy as it is written; `policy` has them filled in."""
    lacking: tuple[str, ...] = ()
    """Those of them that have no value, so that the policy is inactive."""
    after: CompiledAfter | None = None
    on_report: bool = False
    """It is asked about outcomes, and about nothing else."""
    values: bool = False
    """It asks where values were first seen."""
    order: tuple[CompiledCondition, ...] = ()
    """The conditions as they are evaluated; told by themselves."""

    def __post_init__(self) -> None:
        # The cheapest first, of the same effort the last: people name the tool first, which is what the
        # index has looked at already. Of expressions the first one narrows for the next.
        fields = [each for each in reversed(self.conditions) if each.expression is None]
        expressions = [each for each in self.conditions if each.expression is not None]
        force_setattr(self, "order", tuple(sorted((*fields, *expressions), key=_effort)))

    @classmethod
    def of(
        cls, policy: Policy, tools: Tools = NO_TOOLS, settings: OrganisationSettings = NO_SETTINGS
    ) -> CompiledPolicy:
        """Compile; raises ConditionError."""
        names = reads(policy)
        lacking = missing(names, settings)
        policy = in_force(policy, settings) if names else policy
        conditions = tuple(map(compile_condition, policy.conditions))
        check_policy(conditions)
        told = _told(policy)
        paths = told.paths if isinstance(told, Message) else ()
        return cls(
            policy,
            conditions,
            policy.is_tolerant,
            policy.scope == "action_only",
            tools,
            told,
            names,
            lacking,
            None if policy.after is None else CompiledAfter.of(policy.after),
            policy.on == "tool.completed",
            any(map(_asks_for_values, conditions)) or any(map(_is_of_values, paths)),
        )

    @property
    def flows(self) -> bool:
        """It concerns more than a call for itself."""
        return self.on_report or self.values or self.after is not None or bool(self.policy.labels)

    def facts(self, call: ToolCall) -> Facts:
        """What the call shows to this policy."""
        return Facts(call.document, self.tools)

    def verdict(self, facts: Facts) -> Verdict:
        """FALSE if any condition is, else a fault if any is, else TRUE."""
        if self.after is not None and not self.after.holds(facts):
            return False
        fault: Verdict = True
        for condition in self.order:
            verdict = condition.evaluate(facts)
            if verdict is not True:
                if verdict is False:
                    return False
                fault = verdict
        return fault

    def match(self, facts: Facts, verdict: Verdict) -> Match:
        """The match in words, for a verdict that is not FALSE."""
        if self.told is None:
            return self._in_conditions(facts, verdict)
        reason = self.told if isinstance(self.told, str) else self.told.filled(facts)
        if verdict is True:
            return Match(self.policy, reason)
        faults = self._in_conditions(facts, verdict).faults
        return Match(
            self.policy, "; ".join((reason, *(f"{each}, which counts as met" for each in faults))), faults
        )

    def _in_conditions(self, facts: Facts, verdict: Verdict) -> Match:
        reasons: list[str] = []
        faults: list[str] = []
        for condition in self.conditions:
            met = True if verdict is True else condition.evaluate(facts)
            words = condition.words(facts, met)
            if met is not True:
                faults.append(words)
                words += ", which counts as met"
            reasons.append(words)
        if self.after is not None:
            reasons.append(f"after {self.after.text}")
        return Match(self.policy, "; ".join(reasons), tuple(faults))


def _effort(condition: CompiledCondition) -> int:
    """What a condition costs beside others. Expressions come at the end, since all of a call share what
    effort there is; those that take none of it stand before the others."""
    path, operator, expression = condition.path, condition.operator, condition.expression
    if path is None or operator is None:
        return 5 if expression is not None and expression.metered else 4
    if path.root == DERIVED:
        return 3
    if operator.accepts is check_pattern:
        return 2
    return int(len(path.segments) > 1)


def _told(policy: Policy) -> Message | str | None:
    """The policy's message, else the beginning of its description; None where it has neither."""
    if policy.message is not None:
        return Message(policy.message)
    text = policy.description or ""
    if len(text) > LONGEST_DESCRIPTION or not text.isprintable():
        text = shorten(" ".join(text[: 2 * LONGEST_DESCRIPTION].split()), LONGEST_DESCRIPTION)
    return text.strip() or None


class Matcher:
    """All rules of one snapshot, by policy id, disabled ones included."""

    __slots__ = ("_base", "_gone", "_recent", "_tiers", "flows", "rules", "tools")

    def __init__(self, rules: Mapping[str, CompiledPolicy], tools: Tools = NO_TOOLS) -> None:
        """Build the index; this is the expensive way, see `changed` for the cheap one."""
        self.tools = tools
        self.rules = OverlayMapping(rules)
        self.flows = {policy_id: rule for policy_id, rule in rules.items() if rule.flows}
        """Those that concern more than a call for itself; they are few."""
        self._base = _indexed(rules.values())
        self._tiers: tuple[tuple[Index[CompiledPolicy], frozenset[CompiledPolicy]], ...] = ()
        self._recent: frozenset[CompiledPolicy] = frozenset()
        self._gone: frozenset[CompiledPolicy] = frozenset()

    def match(self, call: ToolCall) -> list[Match]:
        """Every policy that matches, in no particular order."""
        facts = Facts(call.document, self.tools)
        candidates = self._candidates(facts, call.is_report)
        return self._decide(candidates, call, facts) if candidates else []

    def scan(self, call: ToolCall) -> list[Match]:
        """What `match` must find, by the plain loop over every rule: its model in the tests."""
        return self._decide(self.rules.values(), call, Facts(call.document, self.tools))

    def matching(self, call: ToolCall, most: int | None = None) -> list[CompiledPolicy] | None:
        """The rules that `match` speaks of, without the words; None where more than `most` would have to be
        asked."""
        facts = Facts(call.document, self.tools)
        candidates = self._candidates(facts, call.is_report)
        if most is not None and len(candidates) > most:
            return None
        report = call.is_report
        return [
            rule
            for rule in candidates
            if rule.policy.enabled
            and rule.on_report is report
            and not (rule.actions_only and call.just_reads)
            and (verdict := rule.verdict(facts)) is not False
            and (verdict is True or not rule.tolerant)
        ]

    def candidates(self, call: ToolCall) -> Collection[CompiledPolicy]:
        """What the index proposes; for tests and statistics."""
        return self._candidates(Facts(call.document, self.tools), call.is_report)

    def _candidates(self, facts: Facts, report: bool) -> Collection[CompiledPolicy]:
        if report:
            return [rule for rule in self.flows.values() if rule.on_report]
        if facts.document.get("inputPayload").__class__ is not dict:
            return list(self.rules.values())  # no caller makes such a call, and no hint is made for it
        found = self._base.candidates(facts)
        if self._tiers or self._recent or self._gone:
            found += self._recent
            for tier, _ in self._tiers:
                found += tier.candidates(facts)
            found = list(set(found) - self._gone)
        return found

    @staticmethod
    def _decide(rules: Iterable[CompiledPolicy], call: ToolCall, facts: Facts) -> list[Match]:
        matches: list[Match] = []
        report = call.is_report
        for rule in rules:
            if rule.on_report is not report:
                continue
            verdict = rule.verdict(facts)
            if verdict is False or (rule.tolerant and verdict is not True):
                continue
            if rule.policy.enabled and not (rule.actions_only and call.just_reads):
                matches.append(rule.match(facts, verdict))
        return matches

    # ---- changes ---------------------------------------------------------------------------------------

    def changed(self, changes: Mapping[str, CompiledPolicy | None]) -> Matcher:
        """After some rules were added or replaced, or (None) removed. Costs what the overlay costs."""
        left = {rule for policy_id in changes if (rule := self.rules.get(policy_id)) is not None}
        came = {rule for rule in changes.values() if rule is not None}
        other = Matcher.__new__(Matcher)
        other.rules = self.rules.changed(changes)
        other.flows = self.flows
        if any(policy_id in self.flows for policy_id in changes) or any(rule.flows for rule in came):
            kept = {policy_id: rule for policy_id, rule in self.flows.items() if policy_id not in changes}
            other.flows = kept | {rule.policy.policy_id: rule for rule in came if rule.flows}
        other._base, other._tiers, other.tools = self._base, self._tiers, self.tools
        other._gone = self._gone | {rule for rule in left - self._recent if _is_indexed(rule)}
        other._recent = (self._recent - left) | {rule for rule in came if _is_indexed(rule)}
        if len(other._recent) > RECENT:
            other._settle()
        return other

    def _settle(self) -> None:
        """Make a tier of the recent rules, together with the last tier while that is small."""
        settled, tiers = self._recent, self._tiers
        if tiers and len(tiers[-1][1]) < TIER:
            settled |= tiers[-1][1] - self._gone
            self._gone -= tiers[-1][1]
            tiers = tiers[:-1]
        self._tiers = (*tiers, (_indexed(settled), settled))
        self._recent = frozenset()

    @property
    def overlay(self) -> int:
        """How many changes the big index does not have yet."""
        return len(self._gone) + len(self._recent) + sum(len(rules) for _, rules in self._tiers)

    def indexes(self) -> Iterator[Index[CompiledPolicy]]:
        """The big index, the tiers, and one over what is recent; for statistics."""
        yield self._base
        yield from (tier for tier, _ in self._tiers)
        yield _indexed(self._recent)


def _asks_for_values(condition: CompiledCondition) -> bool:
    if condition.expression is not None:
        return any(root == DERIVED and member in OF_VALUES for root, member in condition.expression.computed)
    return condition.path is not None and _is_of_values(condition.path)


def _is_of_values(path: Path) -> bool:
    return path.root == DERIVED and path.segments[0] in OF_VALUES


def _is_indexed(rule: CompiledPolicy) -> bool:
    """Whether it may match a call; those that are asked about outcomes are few, and `flows` has them."""
    return rule.policy.enabled and not rule.on_report


def _indexed(rules: Iterable[CompiledPolicy]) -> Index[CompiledPolicy]:
    return Index(
        (rule, [hint for condition in rule.conditions for hint in condition.hints])
        for rule in rules
        if _is_indexed(rule)
    )
