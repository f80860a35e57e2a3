"""What one set of policies decides differently from another: every change in words, and calls that prove it.

For each policy that was added, removed or changed it says what changed, and looks for a call that the two
sets decide differently, on which both were asked. Where none is found it says so: often another policy
decides those calls anyway.

Knows nothing of files, of git, or of how it is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engine.analysis import witness
from engine.analysis.findings import Finding
from engine.analysis.lint import lint
from engine.conditions.compiled import CompiledCondition
from engine.conditions.examples import call_of, reads_tools
from engine.conditions.operands import show
from engine.documents.policy import policy_as_json
from engine.matching.decision import decide
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Decision, Json, Policy, ToolCall

Kind = Literal["added", "removed", "changed"]

MOST_TRIED: Final = 400
"""Calls on which both sets are asked about one policy."""

REPORTED: Final = frozenset({"shadowed", "contradictory", "dead", "duplicate"})
"""Findings of the new set that are reported beside a change, if the old one did not have them."""

_WORDS: Final[Mapping[str, str]] = {
    "name": "name",
    "description": "description",
    "message": "message",
    "presetId": "preset",
    "presetParameters": "preset parameters",
    "action": "action",
    "scope": "scope",
    "enabled": "enabled",
    "mode": "mode",
    "rateLimit": "rate limit",
    "approval": "approval",
    "failurePolicy": "failure policy",
    "on": "event",
    "labels": "labels",
    "after": "`after`",
    "examples": "examples",
}


@dataclass(frozen=True, slots=True)
class DifferingCall:
    """A call that the two sets decide differently. `beyond_limits`: once rate limits are reached."""

    call: ToolCall
    old: Decision
    new: Decision
    beyond_limits: bool = False

    @property
    def changes_action(self) -> bool:
        return self.old.action != self.new.action


@dataclass(frozen=True, slots=True)
class Difference:
    """One policy that differs: what, in words; a proof, or None; and what is wrong with it since."""

    kind: Kind
    old: Policy | None
    new: Policy | None
    words: tuple[str, ...]
    proof: DifferingCall | None
    findings: tuple[Finding, ...] = ()

    @property
    def policy(self) -> Policy:
        found = self.new or self.old
        assert found is not None
        return found


def differences(old: Ruleset, new: Ruleset) -> Iterator[Difference]:
    """Every policy that differs, by id."""
    changed = sorted(changed_ids(old, new))
    findings = _new_findings(old, new, changed)
    for policy_id in changed:
        before, after = old.policies.get(policy_id), new.policies.get(policy_id)
        kind: Kind = "added" if before is None else "removed" if after is None else "changed"
        words = tuple(_words(before, after)) if before and after else (_summary(before or after),)
        proof = _proof(old, new, policy_id)
        if before is not None and not words:
            if proof is None:
                continue
            words = ("the declarations of tools changed",)
        yield Difference(kind, before, after, words, proof, findings.get(policy_id, ()))


def changed_ids(old: Ruleset, new: Ruleset) -> list[str]:
    """The policies that `differences` looks at."""
    every = old.policies.keys() | new.policies.keys()
    tools = old.tools.sets != new.tools.sets
    return [each for each in every if not _same(old.policies.get(each), new.policies.get(each), tools)]


def _same(old: Policy | None, new: Policy | None, other_tools: bool) -> bool:
    if old is None or new is None or _content(old) != _content(new):
        return False
    return not (other_tools and reads_tools(new))


def _content(policy: Policy) -> dict[str, Json]:
    return {key: value for key, value in policy_as_json(policy).items() if key != "version"}


def _new_findings(old: Ruleset, new: Ruleset, changed: list[str]) -> dict[str, tuple[Finding, ...]]:
    """What is found in the new set and was not in the old: of changed policies, and of those that they
    shadow or contradict now."""
    if not changed:
        return {}
    touched = frozenset(changed)
    found: dict[str, list[Finding]] = {}
    known: set[tuple[str, str]] | None = None
    for finding in lint(new.policies.values(), tools=new.tools.sets):
        if finding is None or finding.code not in REPORTED:
            continue
        if finding.policy.policy_id not in touched and not touched.intersection(finding.related):
            continue
        if known is None:
            known = {
                (each.policy.policy_id, each.code)
                for each in lint(old.policies.values(), tools=old.tools.sets)
                if each is not None and each.code in REPORTED
            }
        if (finding.policy.policy_id, finding.code) not in known:
            about = finding.policy.policy_id
            if about not in touched:
                about = next(each for each in finding.related if each in touched)
            found.setdefault(about, []).append(finding)
    return {policy_id: tuple(each) for policy_id, each in found.items()}


# ---- words -----------------------------------------------------------------------------------------------


def _summary(policy: Policy | None) -> str:
    assert policy is not None
    text = " and ".join(_shown(condition) for condition in policy.conditions)
    return f"{policy.action} when {text}"


def _words(old: Policy, new: Policy) -> Iterator[str]:
    before, after = _content(old), _content(new)
    for key, word in _WORDS.items():
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if key == "examples":
            yield (
                f"{len(old.examples)} examples became {len(new.examples)}"
                if len(old.examples) != len(new.examples)
                else "examples changed"
            )
        elif key in ("description", "message", "name"):
            yield f"{word} changed"
        else:
            yield f"{word} {_value(was)} -> {_value(now)}"
    gone = [each for each in old.conditions if each not in new.conditions]
    came = [each for each in new.conditions if each not in old.conditions]
    for condition in gone:
        partner = next((each for each in came if _alike(condition, each)), None)
        if partner is None:
            yield f"condition removed: {_shown(condition)}"
            continue
        came.remove(partner)
        yield from _changed(condition, partner)
    for condition in came:
        yield f"condition added: {_shown(condition)}"
    if not gone and not came and old.conditions != new.conditions:
        yield "conditions in another order"


def _alike(old: Condition, new: Condition) -> bool:
    return old.field == new.field and (old.expression is None) is (new.expression is None)


def _changed(old: Condition, new: Condition) -> Iterator[str]:
    both_lists = isinstance(old.value, list) and isinstance(new.value, list)
    if both_lists and (old.field, old.operator) == (new.field, new.operator):
        gone = [each for each in old.value if each not in new.value]
        came = [each for each in new.value if each not in old.value]
        for each in gone:
            yield f"`{old.field} {old.operator}` no longer lists {show(each)}"
        for each in came:
            yield f"`{old.field} {old.operator}` now lists {show(each)}"
        return
    yield f"condition changed: {_shown(old)} -> {_shown(new)}"


def _shown(condition: Condition) -> str:
    if condition.expression is not None:
        return f"`{condition.expression}`"
    value = "" if condition.operator in ("exists", "not_exists") else f" {show(condition.value)}"
    return f"`{condition.field} {condition.operator}{value}`"


def _value(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " + ".join(map(str, value))
    return "none" if value is None else str(value)


# ---- calls that are decided differently ----------------------------------------------------------------


def _proof(old: Ruleset, new: Ruleset, policy_id: str) -> DifferingCall | None:
    """A call that is decided differently; second best, one with different matches but the same outcome."""
    weaker: DifferingCall | None = None
    for tried, call in enumerate(_calls(old.rules.get(policy_id), new.rules.get(policy_id))):
        if tried >= MOST_TRIED:
            break
        for beyond in (False, True):
            before = decide(old.evaluate(call), lambda policy, beyond=beyond: beyond)  # type: ignore[misc]
            after = decide(new.evaluate(call), lambda policy, beyond=beyond: beyond)  # type: ignore[misc]
            if before.action != after.action:
                return DifferingCall(call, before, after, beyond)
            if weaker is None and _ids(before) != _ids(after):
                weaker = DifferingCall(call, before, after, beyond)
    return weaker


def _ids(decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (
        tuple(match.policy.policy_id for match in decision.matched),
        tuple(match.policy.policy_id for match in decision.shadow),
    )


def _calls(old: CompiledPolicy | None, new: CompiledPolicy | None) -> Iterator[ToolCall]:
    """Calls on which the two versions of a policy might differ, the likely ones first."""
    rules = [rule for rule in (old, new) if rule is not None]
    if old is not None and new is not None:
        yield from _between(old, new)
        yield from _between(new, old)
        if old.tolerant != new.tolerant:
            yield from _faulty(new)
    for rule in rules:
        yield from witness.satisfying(rule.conditions, tools=rule.tools)
        found = witness.matching(rule)
        if found is not None:
            yield found
        for example in rule.policy.examples:
            yield call_of(example)


def _faulty(rule: CompiledPolicy) -> Iterator[ToolCall]:
    """Calls of which one condition cannot be evaluated, while the others are met."""
    for call in witness.satisfying(rule.conditions, tools=rule.tools):
        for path in witness.paths_of(rule.conditions).values():
            yield from witness.faulty(call, path)


def _between(met: CompiledPolicy, unmet: CompiledPolicy) -> Iterator[ToolCall]:
    """Calls that match the one and break a condition of the other."""
    own: dict[object, CompiledCondition] = {each.key: each for each in met.conditions}
    for condition in unmet.conditions:
        if condition.key not in own:
            yield from witness.satisfying(met.conditions, [condition], tools=met.tools)
