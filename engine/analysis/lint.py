"""What is wrong, useless or risky about policies that load: each finding proven, or shown by a call.

Decides which findings there are. A finding that says what happens to calls carries a tool call on which the
engine was asked; one without says what follows from the documents alone (`structural`). What cannot be
proven is not claimed: silence does not mean that a policy is good.

An example that shows a case is how its author says that it is meant, so such cases are not reported.

It must not know files beyond where a policy stands in them, nor how findings are printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engine.analysis import subsumption, witness
from engine.conditions.compiled import CompiledCondition
from engine.conditions.examples import call_of
from engine.conditions.operators import OPERATORS
from engine.fields.facts import Facts
from engine.fields.paths import DERIVED
from engine.matching.matcher import Rule
from engine.matching.ruleset import Ruleset
from engine.model import ALWAYS_PRESENT, STRENGTH, Json, Policy, ToolCall

Level = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")

ALWAYS_ASKED: Final = 500
"""Policies that are always asked about another's witness; more only while `EFFORT` lasts."""

EFFORT: Final = 4_000_000
"""Policies asked in all, so that sets in which all match the same calls take seconds and not hours."""

MOST_COVERING: Final = 256
"""Policies that match a witness and are tried as the one that makes another needless."""

CODES: Final[Mapping[str, tuple[Level, str]]] = {
    "dead": ("error", "the conditions can never all hold"),
    "shadowed": ("warning", "another policy decides every call that this one matches"),
    "contradictory": ("warning", "it allows what another policy stops"),
    "duplicate": ("warning", "another policy has the same conditions and the same effect"),
    "only-lists": ("warning", "no single value satisfies all conditions on a field"),
    "redundant-condition": ("warning", "another condition of the policy implies it"),
    "unindexed": ("note", "every call has to be tested against it"),
    "missing-triggers": ("warning", "a call without the field matches"),
    "no-examples": ("warning", "nothing says what it is for, so a mistake in it goes unnoticed"),
    "one-sided": ("note", "its examples only match, or only do not"),
    "missing-evades": ("note", "a call that omits or renames the field does not match"),
    "allow-is-void": ("note", "an `allow` loosens nothing"),
    "disabled": ("note", "it is switched off"),
    "not-compared": ("note", "too many policies match its calls to compare it with each of them"),
}
"""Every finding's code, its level, and what it says in general."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one policy. `pointer` is a JSON pointer into its document, `related` other policies.

    `call` is the witness, as `ToolCall.of` takes it; `outcome` says what the engine did with it.
    """

    code: str
    message: str
    policy: Policy
    pointer: str = ""
    call: Mapping[str, Json] | None = None
    outcome: str = ""
    related: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        return CODES[self.code][0]


def lint(
    policies: Iterable[Policy],
    *,
    only: Collection[str] | None = None,
    alone: bool = False,
) -> Iterator[Finding | None]:
    """Findings about one organisation's policies; None after each policy, for a progress bar.

    `only` narrows what is reported to some policies. `alone`: each for itself (presets), none in force.
    """
    every = {policy.policy_id: policy for policy in policies}
    if alone:
        for policy in every.values():
            rule = Rule.of(policy)
            ruleset = Ruleset.build([policy])
            yield from _of_one(rule, witness.matching(rule), bool(ruleset.stats()["unindexed"]))
            yield None
        return
    ruleset = Ruleset.build(every.values())
    rules = ruleset.rules
    unindexed = frozenset(ruleset.stats()["unindexed"])
    twins = _twins(rules)
    among = _Others(ruleset)
    for policy_id in sorted(every):
        if only is None or policy_id in only:
            rule = rules[policy_id]
            call = witness.matching(rule)
            yield from _of_one(rule, call, policy_id in unindexed)
            yield from _among(rule, call, among, twins)
        yield None


# ---- one policy by itself --------------------------------------------------------------------------------


def _of_one(rule: Rule, call: ToolCall | None, unindexed: bool) -> Iterator[Finding]:
    policy = rule.policy
    dead = None if call is not None else subsumption.contradiction(rule)
    if dead is not None:
        pointer = f"/matchConditions/{dead.conditions[-1]}"
        yield Finding("dead", f"no call can match: {dead.why}", policy, pointer)
    if not policy.enabled:
        yield Finding("disabled", "the policy is disabled", policy, "/enabled")
    yield from _examples(rule, call)
    if dead is not None:
        return
    for index, other in subsumption.redundant(rule):
        text, reason = rule.conditions[index].text, rule.conditions[other].text
        message = f"`{text}` changes nothing, since `{reason}` implies it; remove one of the two"
        yield Finding("redundant-condition", message, policy, f"/matchConditions/{index}")
    if call is not None:
        yield from _only_lists(rule, call)
        yield from _missing(rule, call)
    if unindexed:
        message = (
            "nothing in it narrows the calls it is for, so each call is tested against it; where many"
            " policies are like that, add a condition that says what to look for, such as `toolName in [...]`"
        )
        yield Finding("unindexed", message, policy, "/matchConditions")


def _examples(rule: Rule, call: ToolCall | None) -> Iterator[Finding]:
    policy = rule.policy
    sides = {example.match for example in policy.examples}
    if not sides:
        message = "there are no examples; add a call that must match and one that must not"
        outcome = "this call matches" if call is not None else ""
        yield Finding("no-examples", message, policy, "", witness.shown(call) if call else None, outcome)
    elif len(sides) == 1:
        missing = "must not match" if True in sides else "must match"
        yield Finding("one-sided", f"no example says what {missing}", policy, "/examples")


def _only_lists(rule: Rule, call: ToolCall) -> Iterator[Finding]:
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
        if not isinstance(value, list) or rule.verdict(Facts(call.document)) is not True:
            continue
        texts = " and ".join(f"`{condition.text}`" for _, condition in found)
        message = f"no single value of `{path}` satisfies {texts}; only a list does"
        pointer = f"/matchConditions/{found[-1][0]}"
        yield Finding("only-lists", message, rule.policy, pointer, witness.shown(call), "this call matches")


def _missing(rule: Rule, call: ToolCall) -> Iterator[Finding]:
    """What calls do that leave a field out: where that triggers the policy, and where it evades it."""
    policy = rule.policy
    if policy.action == "allow" or rule.verdict(Facts(call.document)) is not True:
        return
    shown = [call_of(example) for example in policy.examples]
    evaded: list[str] = []
    evading: ToolCall | None = None
    for path, conditions in _by_path(rule).items():
        if path.root == DERIVED or (path.root in ALWAYS_PRESENT and not path.segments):
            continue
        names = {condition.operator.name for _, condition in conditions if condition.operator}
        if "not_exists" in names:
            continue
        left_out = witness.without(call, path)
        matches = rule.verdict(Facts(left_out.document)) is True
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
        elif not matches and rule.verdict(Facts(left_out.document)) is False and path.text != "toolName":
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


def _is(rule: Rule, call: ToolCall) -> bool:
    return rule.verdict(Facts(call.document)) is True


def _by_path(rule: Rule) -> dict[witness.Path, list[tuple[int, CompiledCondition]]]:
    found: dict[witness.Path, list[tuple[int, CompiledCondition]]] = defaultdict(list)
    for index, condition in subsumption.known_paths(rule):
        if condition.path is not None:
            found[condition.path].append((index, condition))
    return found


# ---- a policy among the others ---------------------------------------------------------------------------


def _twins(rules: Mapping[str, Rule]) -> dict[object, list[str]]:
    """Policies with the same conditions and effect, by what they have in common; only where there are two."""
    found: dict[object, list[str]] = defaultdict(list)
    for policy_id, rule in sorted(rules.items()):
        if rule.policy.enabled:
            found[_same_effect(rule)].append(policy_id)
    return {key: ids for key, ids in found.items() if len(ids) > 1}


class _Others:
    """All policies in force, asked which match a call, within bounds."""

    def __init__(self, ruleset: Ruleset) -> None:
        self._ruleset = ruleset
        self._left = EFFORT
        self.left_out = False
        """Some policies were not looked at since this was last set to False, so silence says even less."""

    def matching(self, call: ToolCall) -> list[Rule] | None:
        """The policies that match; None where asking them would take too long, so nothing is claimed."""
        found = self._ruleset.matching_few(call, ALWAYS_ASKED)
        if found is None and self._left > 0:
            self._left -= len(self._ruleset.rules)
            found = self._ruleset.matching(call)
        self.left_out = self.left_out or found is None
        return found


def _same_effect(rule: Rule) -> object:
    policy = rule.policy
    return (
        frozenset(condition.key for condition in rule.conditions),
        *(policy.action, policy.scope, policy.mode, policy.rate_limit, policy.failure_policy),
        policy.approval_expires_after_seconds,
    )


def _among(
    rule: Rule, call: ToolCall | None, among: _Others, twins: Mapping[object, list[str]]
) -> Iterator[Finding]:
    policy = rule.policy
    if not policy.enabled:
        return
    same = twins.get(_same_effect(rule), [])
    if same and same[0] != policy.policy_id:
        message = f"it has the same conditions and effect as `{same[0]}`; remove one of the two"
        outcome = "both match this call" if call is not None else ""
        yield Finding(
            "duplicate", message, policy, "", witness.shown(call) if call else None, outcome, (same[0],)
        )
        return
    if call is None or policy.mode != "enforce":
        return
    among.left_out = False
    covering = _covering(rule, call, among)
    if covering is None and among.left_out:
        message = (
            "so many policies match its calls that it was not compared with each of them; whether another "
            "one makes it needless, or stops what it allows, is not known"
        )
        yield Finding("not-compared", message, policy)
        return
    if policy.action == "allow":
        yield from _of_allow(rule, call, among, covering)
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


def _covering(rule: Rule, call: ToolCall, among: _Others) -> Rule | None:
    """A policy that matches whatever the rule matches and is as strong. It matches the rule's witness too,
    so only those that do are tried."""
    policy = rule.policy
    found: list[Rule] = []
    for other in among.matching(call) or ():
        if other is rule or other.policy.mode != "enforce" or other.policy.rate_limit is not None:
            continue
        if _outdoes(other.policy, policy):
            found.append(other)
    found.sort(key=lambda each: (STRENGTH[each.policy.action], each.policy.name, each.policy.policy_id))
    for other in found[:MOST_COVERING]:
        if subsumption.covers(other, rule) and not _mutual(rule, other):
            return other
    among.left_out = among.left_out or len(found) > MOST_COVERING
    return None


def _outdoes(other: Policy, policy: Policy) -> bool:
    if STRENGTH[other.action] != STRENGTH[policy.action]:
        return STRENGTH[other.action] < STRENGTH[policy.action]
    same_expiry = other.approval_expires_after_seconds == policy.approval_expires_after_seconds
    return policy.action != "allow" and same_expiry


def _mutual(rule: Rule, other: Rule) -> bool:
    """Of two equally strong policies that cover each other only the later one is needless."""
    mine, theirs = rule.policy, other.policy
    if mine.action != theirs.action or mine.rate_limit is not None:
        return False
    return mine.policy_id < theirs.policy_id and subsumption.covers(rule, other)


def _of_allow(rule: Rule, call: ToolCall, among: _Others, covering: Rule | None) -> Iterator[Finding]:
    policy = rule.policy
    if covering is not None and covering.policy.action in ("block", "require_approval"):
        other = covering.policy
        message = (
            f"it can never win: `{other.name}` ({other.policy_id}) {_stops(other)} every call that it allows"
        )
        # A third policy may match the call as well, and be stronger.
        strongest = _strongest(among.matching(call) or [covering])
        outcome = f"both match this call, which is {_done(strongest or other)}"
        yield Finding(
            "contradictory", message, policy, "/action", witness.shown(call), outcome, (other.policy_id,)
        )
        return
    stopping = _stopping(rule, call, among)
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


def _stopping(rule: Rule, call: ToolCall, among: _Others) -> tuple[Policy, ToolCall] | None:
    """A policy that stops a call which the rule allows, and that call."""
    calls = [call, *(call_of(example) for example in rule.policy.examples if example.match)]
    calls += witness.satisfying(rule.conditions, attempts=4)
    for each in calls:
        matching = among.matching(each)
        if matching is None:
            return None
        if rule not in matching:
            continue
        best = _strongest(matching)
        if best is not None:
            return best, each
    return None


def _strongest(matching: Iterable[Rule]) -> Policy | None:
    """Of policies that match a call, the one that stops it."""
    stopping = [
        each.policy
        for each in matching
        if each.policy.mode == "enforce"
        and each.policy.rate_limit is None
        and each.policy.action in ("block", "require_approval")
    ]
    return min(stopping, key=lambda each: (STRENGTH[each.action], each.name, each.policy_id), default=None)


def _stops(policy: Policy) -> str:
    return "blocks" if policy.action == "block" else "holds"


def _done(policy: Policy) -> str:
    return "blocked" if policy.action == "block" else "held for approval"
