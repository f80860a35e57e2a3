"""How well examples and tests pin policies: small changes of conditions that none of them notices.

A mutant is a policy with one condition dropped, negated, moved by one, or short of one list entry. It is
noticed when an example of the policy comes out differently, or a test of the set does. For one that is not,
`pin` looks for a call that the two tell apart: the example that is missing.

A change that provably changes nothing is no mutant. It must not know files nor how results are printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from engine.analysis import subsumption, witness
from engine.analysis.policy_tests import narrowed
from engine.conditions.compiled import CompiledCondition, compile_condition
from engine.conditions.examples import call_of
from engine.conditions.operands import show
from engine.conditions.settings import SAMPLES, in_force
from engine.derived.tools import NO_TOOLS, Tools
from engine.documents.policy import CallTest, PolicyTest
from engine.errors import ConditionError
from engine.matching.decision import decide
from engine.matching.matcher import CompiledPolicy, Matcher
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Evaluation, Json, Match, Policy, ToolCall

MOST_ENTRIES: Final = 50
"""Entries of one list that are dropped, one at a time."""

_OPPOSITE: Final[Mapping[str, str]] = {
    "greater_than": "less_than_or_equal",
    "greater_than_or_equal": "less_than",
    "less_than": "greater_than_or_equal",
    "less_than_or_equal": "greater_than",
}
_INCLUSIVE: Final[Mapping[str, str]] = {
    "greater_than": "greater_than_or_equal",
    "greater_than_or_equal": "greater_than",
    "less_than": "less_than_or_equal",
    "less_than_or_equal": "less_than",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed policy: which condition (by index), what was done, and what it is now (None: gone)."""

    policy: Policy
    index: int
    what: str
    changed: CompiledCondition | None

    @property
    def pointer(self) -> str:
        return f"/matchConditions/{self.index}"


@dataclass(frozen=True, slots=True)
class Pin:
    """A call that the policy and its mutant treat differently; `match` says what the policy does."""

    match: bool
    call: ToolCall


@dataclass(slots=True)
class Score:
    """How many mutants of a policy there are, and which nobody noticed."""

    policy: Policy
    mutants: int = 0
    survivors: tuple[Mutant, ...] = ()


def scores(
    policies: Iterable[Policy],
    tests: Sequence[PolicyTest] = (),
    ruleset: Ruleset | None = None,
    tools: Tools = NO_TOOLS,
) -> Iterator[Score | None]:
    """The score of each policy; None after each one's examples were tried, for a progress bar.

    Those with survivors come last, since tests of the whole set are asked about all survivors at once.
    """
    open_scores: list[Score] = []
    rules: dict[str, CompiledPolicy] = {}
    for written in policies:
        policy = in_force(written, SAMPLES)
        rule = CompiledPolicy.of(policy, tools)
        score = Score(policy)
        survivors = []
        calls = [
            (rule.facts(call), call, example.match)
            for example in policy.examples
            for call in [call_of(example)]
        ]
        verdicts = [[condition.evaluate(facts) for condition in rule.conditions] for facts, _, _ in calls]
        for mutant in mutants(rule):
            score.mutants += 1
            for (facts, call, match), row in zip(calls, verdicts, strict=True):
                changed = [] if mutant.changed is None else [mutant.changed.evaluate(facts)]
                rest = [*row[: mutant.index], *changed, *row[mutant.index + 1 :]]
                skipped = rule.actions_only and call.just_reads
                if (_met(rest, rule.tolerant) and not skipped) is not match:
                    break
            else:
                survivors.append(mutant)
        score.survivors = tuple(survivors)
        rules[policy.policy_id] = rule
        if survivors:
            open_scores.append(score)
        else:
            yield score
        yield None
    if tests and ruleset is not None and open_scores:
        noticed = _noticed(open_scores, rules, tests, ruleset)
        for score in open_scores:
            score.survivors = tuple(mutant for mutant in score.survivors if id(mutant) not in noticed)
    yield from open_scores


def _met(verdicts: Collection[object], tolerant: bool) -> bool:
    if any(verdict is False for verdict in verdicts):
        return False
    return not tolerant or all(verdict is True for verdict in verdicts)


# ---- making them -----------------------------------------------------------------------------------------


def mutants(rule: CompiledPolicy) -> Iterator[Mutant]:
    """Every small change of the rule that could matter."""
    needless = {index for index, _ in subsumption.redundant(rule)}
    for index, condition in enumerate(rule.conditions):
        if index in needless:
            continue
        if len(rule.conditions) > 1:
            yield Mutant(rule.policy, index, f"without `{condition.text}`", None)
        for what, changed in _changes(condition.condition):
            try:
                compiled = compile_condition(changed)
            except ConditionError:
                continue
            yield Mutant(rule.policy, index, what or f"with `{compiled.text}` instead", compiled)


def _changes(condition: Condition) -> Iterator[tuple[str, Condition]]:
    if condition.expression is not None:
        yield f"with `!({condition.expression})` instead", Condition(expression=f"!({condition.expression})")
        terms = compile_condition(condition).expression
        if terms is not None and len(terms.terms) > 1:
            for gone in terms.terms:
                rest = " && ".join(f"({term.text})" for term in terms.terms if term is not gone)
                yield f"without `{gone.text}`", Condition(expression=rest)
        return
    field, name, value = condition.field, condition.operator or "", condition.value
    if name in _OPPOSITE:
        yield "", Condition(field, _OPPOSITE[name], value)
        yield "", Condition(field, _INCLUSIVE[name], value)
        for moved in (value - 1, value + 1):
            yield "", Condition(field, name, moved)
        return
    turned = name.removeprefix("not_") if name.startswith("not_") else f"not_{name}"
    if name in ("starts_with", "ends_with"):
        yield "", Condition(field, "contains", value)
        yield "", Condition(field, "not_contains", value)
    else:
        yield "", Condition(field, turned, value)
    if name in ("in", "not_in") and len(value) > 1:
        for entry in value[:MOST_ENTRIES]:
            rest_of: list[Json] = [each for each in value if each is not entry]
            yield f"without {show(entry)} in `{field} {name}`", Condition(field, name, rest_of)


def mutated(mutant: Mutant, conditions: Sequence[CompiledCondition]) -> tuple[CompiledCondition, ...]:
    changed = () if mutant.changed is None else (mutant.changed,)
    return (*conditions[: mutant.index], *changed, *conditions[mutant.index + 1 :])


# ---- tests of the whole set --------------------------------------------------------------------------------


def _noticed(
    open_scores: Sequence[Score],
    rules: Mapping[str, CompiledPolicy],
    tests: Sequence[PolicyTest],
    ruleset: Ruleset,
) -> set[int]:
    """The `id` of each survivor that a test notices.

    All survivors go into one index, so a test call costs what its matches cost, however many there are.
    """
    by_key: dict[str, Mutant] = {}
    made: dict[str, CompiledPolicy] = {}
    of_policy: dict[str, list[str]] = defaultdict(list)
    for score in open_scores:
        rule = rules[score.policy.policy_id]
        if not score.policy.enabled or score.policy.rate_limit is not None:
            continue  # no test can notice what takes no effect in a single call
        for number, mutant in enumerate(score.survivors):
            key = f"{score.policy.policy_id}\0{number}"
            by_key[key] = mutant
            policy = replace(score.policy, policy_id=key)
            made[key] = structs.replace(rule, policy=policy, conditions=mutated(mutant, rule.conditions))
            of_policy[score.policy.policy_id].append(key)
    matcher = Matcher(made, ruleset.tools)
    noticed: set[int] = set()
    for test in tests:
        chosen = narrowed(test, ruleset)
        for case in test.tests:
            evaluation = chosen.evaluate(case.call)
            now = {match.policy.policy_id for match in (*evaluation.matches, *evaluation.shadow)}
            then = {rule.policy.policy_id for rule in matcher.matching(case.call) or ()}
            differing = {key for key in then if key.split("\0")[0] not in now}
            differing |= {key for policy_id in now for key in of_policy.get(policy_id, ()) if key not in then}
            for key in differing:
                policy_id = key.split("\0")[0]
                if policy_id in chosen.policies and id(by_key[key]) not in noticed:
                    policy = chosen.policies[policy_id]
                    if not _as_expected(case, _with(evaluation, policy, policy_id not in now)):
                        noticed.add(id(by_key[key]))
    return noticed


def _with(evaluation: Evaluation, policy: Policy, added: bool) -> Evaluation:
    """The evaluation with one policy more, or less."""

    def changed(matches: tuple[Match, ...], mode: str) -> tuple[Match, ...]:
        if added:
            matches = (*matches, Match(policy, "")) if policy.mode == mode else matches
        else:
            matches = tuple(match for match in matches if match.policy.policy_id != policy.policy_id)
        return tuple(sorted(matches, key=lambda match: match.policy.order))

    return Evaluation(changed(evaluation.matches, "enforce"), changed(evaluation.shadow, "shadow"))


def _as_expected(case: CallTest, evaluation: Evaluation) -> bool:
    decision = decide(evaluation, lambda policy: False)
    matched = frozenset(match.policy.policy_id for match in decision.matched)
    shadow = frozenset(match.policy.policy_id for match in decision.shadow)
    return (
        decision.status == case.status and case.matched in (None, matched) and case.shadow in (None, shadow)
    )


# ---- what would pin it -------------------------------------------------------------------------------------


def pin(mutant: Mutant, tools: Tools = NO_TOOLS) -> Pin | None:
    """A call that the policy and its mutant treat differently; None when none was found."""
    rule = CompiledPolicy.of(mutant.policy, tools)
    other = structs.replace(rule, conditions=mutated(mutant, rule.conditions))
    old = rule.conditions[mutant.index]
    rest = mutated(replace(mutant, changed=None), rule.conditions)

    def differs(call: ToolCall) -> bool:
        return _matches(rule, call) is not _matches(other, call)

    changed = () if mutant.changed is None else (mutant.changed,)
    for conditions, unmet in (((*rest, *changed), (old,)), ((*rest, old), changed), (rest, (old,))):
        call = next(witness.satisfying(conditions, unmet, accepts=differs), None)
        if call is not None:
            return Pin(_matches(rule, call), call)
    return None


def _matches(rule: CompiledPolicy, call: ToolCall) -> bool:
    if rule.actions_only and call.just_reads:
        return False
    verdict = rule.verdict(rule.facts(call))
    return verdict is True or (verdict is not False and not rule.tolerant)
