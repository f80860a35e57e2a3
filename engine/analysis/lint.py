"""What is wrong, useless or risky about policies that load: each finding proven, or shown by a call.

Decides which findings there are about one policy; those about a policy among the others are decided in
`interactions`. A finding that says what happens to calls carries a tool call on which the engine was asked;
one without says what follows from the documents alone. What cannot be proven is not claimed: silence does not
mean that a policy is good.

An example that shows a case is how its author says that it is meant, so such cases are not reported.

It must not know files beyond where a policy stands in them, nor how findings are printed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from engine.analysis import subsumption, witness
from engine.analysis.characters import placeholders_left, unseen_characters, words_for_json
from engine.analysis.findings import Finding
from engine.analysis.interactions import InForce, among_others, twins
from engine.analysis.repetition import repeated
from engine.analysis.sequences import Sequences, of_itself
from engine.conditions.compiled import CompiledCondition
from engine.conditions.examples import call_of
from engine.conditions.operators import OPERATORS
from engine.conditions.settings import SAMPLES, how_to_set, missing, told
from engine.conditions.values import never
from engine.derived.facts import Facts
from engine.fields.computed import DERIVED
from engine.fields.scalars import shorten
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import ALWAYS_PRESENT, COMPUTED, OrganisationSettings, Policy, ToolCall, ToolSet

OF_SERVICE: Final = "run.labels"
"""Missing by no caller's choice, as what is computed."""
_ACTED_ON: Final = frozenset(
    f"{DERIVED}.{name}"
    for name in ("recipients", "recipientDomains", "hosts", "urls", "files", "reads", "writes", "deletes")
)
"""Lists of what a call acts on, of which each has to be allowed."""
_OF_EACH: Final = {
    "not_equals": "each == {}",
    "not_in": "each in {}",
    "not_contains": "each.contains({})",
    "not_matches": "each.matches({})",
}
"""What the operator denies, of one of them."""
_LITERAL: Final = frozenset(OPERATORS) & {
    f"{no}{name}" for no in ("", "not_") for name in ("equals", "in", "contains", "starts_with", "ends_with")
}
"""Operators to which a `*` is one, and no pattern."""


def lint(
    policies: Iterable[Policy],
    *,
    only: Collection[str] | None = None,
    alone: bool = False,
    tools: Iterable[ToolSet] = (),
    settings: OrganisationSettings = SAMPLES,
) -> Iterator[Finding | None]:
    """Findings about one organisation's policies; None after each policy, for a progress bar.

    `only` narrows what is reported to some policies. `alone`: each for itself (presets), none in force.
    `tools` are the tool sets that count there, `settings` those of the organisation.
    """
    declared = tuple(tools)
    every = {policy.policy_id: policy for policy in policies}
    if alone:
        for policy in every.values():
            ruleset = Ruleset.build([policy], tools=declared, settings=SAMPLES)
            rule = ruleset.rules[policy.policy_id]
            yield from _of_one(rule, witness.matching(rule), bool(ruleset.stats()["unindexed"]))
            yield None
        return
    ruleset = Ruleset.build(every.values(), tools=declared, settings=SAMPLES)
    rules = ruleset.rules
    unindexed = frozenset(ruleset.stats()["unindexed"])
    same_effect = twins(rules)
    in_force = InForce(ruleset)
    sequences = Sequences(rules, ruleset.tools)
    for policy_id in sorted(every):
        if only is None or policy_id in only:
            rule = rules[policy_id]
            call = witness.matching(rule)
            yield from _inactive(rule, settings)
            yield from _of_one(rule, call, policy_id in unindexed)
            yield from sequences.findings(policy_id)
            yield from among_others(rule, call, in_force, same_effect)
        yield None


# ---- one policy by itself --------------------------------------------------------------------------------


def _of_one(rule: CompiledPolicy, call: ToolCall | None, unindexed: bool) -> Iterator[Finding]:
    policy = rule.policy
    dead = None if call is not None else subsumption.contradiction(rule)
    if dead is not None:
        pointer = f"/matchConditions/{dead.conditions[-1]}"
        yield Finding("dead", f"no call can match: {dead.why}", policy, pointer)
    if not policy.enabled:
        yield Finding("disabled", "the policy is disabled", policy, "/enabled")
    if policy.approval is not None and policy.action != "require_approval":
        message = (
            f"`action: {policy.action}` holds no call, so nobody is asked as `approval` says; leave it out,"
            " or write `action: require_approval`"
        )
        yield Finding("approval-is-void", message, policy, "/approval")
    yield from _examples(rule, call)
    yield from unseen_characters(policy)
    yield from placeholders_left(policy)
    yield from words_for_json(policy)
    yield from _in_vain(rule)
    yield from _literal_stars(policy)
    yield from repeated(policy)
    yield from of_itself(rule)
    if dead is not None:
        return
    for index, other in subsumption.redundant(rule):
        text, reason = rule.conditions[index].text, rule.conditions[other].text
        message = f"`{text}` changes nothing, since `{reason}` implies it; remove one of the two"
        yield Finding("redundant-condition", message, policy, f"/matchConditions/{index}")
    if call is not None:
        yield from _only_lists(rule, call)
        yield from _one_evades(rule)
        yield from _missing(rule, call)
    if unindexed:
        message = (
            "nothing in it narrows the calls it is for, so each call is tested against it; where many"
            " policies are like that, add a condition that says what to look for, such as `toolName in [...]`"
        )
        yield Finding("unindexed", message, policy, "/matchConditions")


def _inactive(rule: CompiledPolicy, settings: OrganisationSettings) -> Iterator[Finding]:
    if lacking := missing(rule.reads, settings):
        command = how_to_set(lacking[0], rule.policy.organisation_id)
        message = f"it is inactive until {told(lacking)}: {command}"
        yield Finding("needs-setting", message, rule.policy, "/matchConditions")


def _in_vain(rule: CompiledPolicy) -> Iterator[Finding]:
    for index, condition in enumerate(rule.conditions):
        if why := never(condition):
            yield Finding("value-never", why, rule.policy, f"/matchConditions/{index}")


def _literal_stars(policy: Policy) -> Iterator[Finding]:
    """`*` within the name of a tool, where tool sets and `after` take it for any characters."""
    shown = {example.call.get("toolName") for example in policy.examples}
    for index, condition in enumerate(policy.conditions):
        if condition.field != "toolName" or condition.operator not in _LITERAL:
            continue
        names = condition.value if isinstance(condition.value, list) else [condition.value]
        found = next(
            (each for each in names if isinstance(each, str) and "*" in each and each not in shown), None
        )
        if found is not None:
            no = "not_" if condition.operator.startswith("not_") else ""
            pattern = "^" + re.escape(found).replace("\\*", ".*") + "$"
            message = (
                f"`{condition.operator}` takes the `*` of `{shorten(found)}` for a part of the name, not for "
                f"any characters; write `operator: {no}matches` with `value: '{shorten(pattern)}'`"
            )
            yield Finding("literal-star", message, policy, f"/matchConditions/{index}/value")


def _examples(rule: CompiledPolicy, call: ToolCall | None) -> Iterator[Finding]:
    policy = rule.policy
    sides = {example.match for example in policy.examples}
    if not sides:
        message = "there are no examples; add a call that must match and one that must not"
        outcome = "this call matches" if call is not None else ""
        yield Finding("no-examples", message, policy, "", witness.shown(call) if call else None, outcome)
    elif len(sides) == 1:
        missing = "must not match" if True in sides else "must match"
        yield Finding("one-sided", f"no example says what {missing}", policy, "/examples")


def _only_lists(rule: CompiledPolicy, call: ToolCall) -> Iterator[Finding]:
    """Conditions on one path that only different elements of a list satisfy."""
    by_path: dict[str, list[tuple[int, CompiledCondition]]] = defaultdict(list)
    for index, condition in subsumption.known_paths(rule):
        assert condition.operator is not None
        if not condition.operator.negated and condition.operator.takes_value:
            by_path[str(condition.path)].append((index, condition))
    for path, found in by_path.items():
        if len(found) < 2 or not subsumption.needs_list([condition for _, condition in found]):
            continue
        value = Facts(call.document).at(found[0][1].path).first() if found[0][1].path else None
        if not isinstance(value, list) or rule.verdict(rule.facts(call)) is not True:
            continue
        texts = " and ".join(f"`{condition.text}`" for _, condition in found)
        message = f"no single value of `{path}` satisfies {texts}; only a list does"
        pointer = f"/matchConditions/{found[-1][0]}"
        yield Finding("only-lists", message, rule.policy, pointer, witness.shown(call), "this call matches")


def _one_evades(rule: CompiledPolicy) -> Iterator[Finding]:
    """Conditions that read as if they spoke of each of what a call acts on, and speak of all together."""
    shown = [call_of(example) for example in rule.policy.examples if not example.match]
    for index, condition in subsumption.known_paths(rule):
        path, operator = condition.path, condition.operator
        if rule.policy.action == "allow" or path is None or operator is None:
            continue
        if str(path) not in _ACTED_ON or operator.name not in _OF_EACH or never(condition):
            continue
        values = [rule.facts(call).at(path).first() for call in shown]
        if any(isinstance(value, list) and len(value) > 1 for value in values):
            continue
        wanted = json.dumps(condition.condition.value, ensure_ascii=False)
        term = f"!{path}.all(each, {_OF_EACH[operator.name].format(shorten(wanted))})"
        message = (
            f"one of several that is allowed is enough for `{condition.text}` not to hold, so a call with one"
            f" more does not match; write the expression `{term}`, or an example that shows it is meant"
        )
        yield Finding("one-evades", message, rule.policy, f"/matchConditions/{index}")


def _missing(rule: CompiledPolicy, call: ToolCall) -> Iterator[Finding]:
    """What calls do that leave a field out: where that triggers the policy, and where it evades it."""
    policy = rule.policy
    if policy.action == "allow" or rule.verdict(rule.facts(call)) is not True:
        return
    shown = [call_of(example) for example in policy.examples]
    evaded: list[str] = []
    evading: ToolCall | None = None
    for path, conditions in _by_path(rule).items():
        if (
            path.root in COMPUTED
            or path.text == OF_SERVICE
            or (path.root in ALWAYS_PRESENT and not path.segments)
        ):
            continue
        names = {condition.operator.name for _, condition in conditions if condition.operator}
        if "not_exists" in names:
            continue
        left_out = witness.without(call, path)
        matches = rule.verdict(rule.facts(left_out)) is True
        pinned = any(not Facts(each.document).at(path).ends and _is(rule, each) is matches for each in shown)
        if pinned:
            continue
        if matches and all(OPERATORS[name].negated for name in names):
            index, condition = conditions[0]
            message = (
                f"a call without `{path}` matches, since `{condition.text}` holds for what is not there; "
                f"add `{{field: {path}, operator: exists}}`, or an example that shows it is meant"
            )
            outcome = "this call matches"
            yield Finding(
                "missing-triggers",
                message,
                policy,
                f"/matchConditions/{index}",
                witness.shown(left_out),
                outcome,
            )
        elif not matches and rule.verdict(rule.facts(left_out)) is False and path.text != "toolName":
            evaded.append(path.text)
            evading = evading or left_out
    if evaded and evading is not None and policy.action in ("block", "require_approval"):
        fields = ", ".join(f"`{name}`" for name in evaded)
        message = f"a call that omits or renames {fields} does not match"
        yield Finding(
            "missing-evades",
            message,
            policy,
            "/matchConditions",
            witness.shown(evading),
            "this call does not match",
        )


def _is(rule: CompiledPolicy, call: ToolCall) -> bool:
    return rule.verdict(rule.facts(call)) is True


def _by_path(rule: CompiledPolicy) -> dict[witness.Path, list[tuple[int, CompiledCondition]]]:
    found: dict[witness.Path, list[tuple[int, CompiledCondition]]] = defaultdict(list)
    for index, condition in subsumption.known_paths(rule):
        if condition.path is not None:
            found[condition.path].append((index, condition))
    return found
