"""What is wrong with `on`, `after` and labels of a policy among the others: it asks for what never happens.

Labels are given, and policies count as matched, only by what is enabled and enforced; what can never match
gives nothing. Each claim follows from the documents alone. It must not know files or how findings are
printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.analysis import subsumption
from engine.analysis.findings import Finding
from engine.cel.ast import Binary, Expr, Has, Literal, Logic, Unary, parts, path_of
from engine.cel.parser import parse
from engine.derived.tools import UNDECLARED, Tools
from engine.fields.words import words_of
from engine.matching.matcher import CompiledPolicy
from engine.model import Policy
from schemas.suggestion import suggestion

_LABELS: Final = ("run", "labels")
_NOT_REPORTED: Final = ("actionHint", "reason", "agentContext")
"""Roots that the document of an outcome has not."""
_NEVER: Final = (
    "what it comes after can never happen before it: it waits for this one in turn, or can never match"
)
MOST_LABELS: Final = 5
"""That are named of those a policy asks for one of."""
FAR: Final = 500
"""Calls that hardly a run has."""


class AskedLabels:
    """The labels that a policy asks for: `named` with the pointer of where, `needed` without one of which it
    cannot match, and whether it looks at labels in a way that may be for any of them."""

    def __init__(self, rule: CompiledPolicy) -> None:
        self.named: dict[str, str] = {}
        self.needed: list[frozenset[str]] = []
        self.any = False
        after = rule.policy.after
        if after is not None and after.kind == "label":
            self._ask([after.name], "/after/label", needed=True)
        for at, condition in enumerate(rule.conditions):
            pointer = f"/matchConditions/{at}"
            if condition.expression is not None:
                if "run" not in condition.roots:
                    continue  # and is not parsed anew, since there may be very many policies
                tree = parse(condition.expression.text)
                for term in tree.terms if isinstance(tree, Logic) and tree.operator == "&&" else (tree,):
                    self._of_tree(term, pointer, whole=True)
            elif condition.path is not None and condition.path.text == "run.labels":
                assert condition.operator is not None
                value = condition.condition.value
                texts = value if isinstance(value, list) else [value]
                if condition.operator.name in ("equals", "in", "not_equals", "not_in"):
                    self._ask(map(str, texts), pointer, needed=not condition.operator.negated)
                else:
                    self.any = True
            elif condition.path is not None and condition.path.text == "run":
                self.any = True

    def _ask(self, labels: Iterable[str], pointer: str, *, needed: bool) -> None:
        found = list(labels)
        for label in found:
            self.named.setdefault(label, pointer)
        if needed:
            self.needed.append(frozenset(found))

    def _of_tree(self, node: Expr, pointer: str, *, whole: bool = False) -> None:
        if isinstance(node, Binary) and node.operator == "in" and path_of(node.right) == _LABELS:
            label = node.left.value if isinstance(node.left, Literal) else None
            if isinstance(label, str):
                self._ask([label], pointer, needed=whole)
                return
        self.any |= path_of(node) in (_LABELS, _LABELS[:1])
        for part in parts(node):
            self._of_tree(part, pointer)


class Sequences:
    """All policies of an organisation, as far as one comes after another."""

    def __init__(self, rules: Mapping[str, CompiledPolicy], tools: Tools) -> None:
        self._rules, self._tools = rules, tools
        enabled = {policy_id: rule for policy_id, rule in rules.items() if rule.policy.enabled}
        self._asked = {policy_id: AskedLabels(rule) for policy_id, rule in enabled.items()}
        self._asked_for = {label for asked in self._asked.values() for label in asked.named}
        self._any_asked = any(asked.any for asked in self._asked.values())
        self._givers: dict[str, list[str]] = defaultdict(list)
        for policy_id, rule in sorted(rules.items()):
            for label in rule.policy.labels if _acts(rule.policy) else ():
                self._givers[label].append(policy_id)
        self._happening = self._that_may_match()

    def _that_may_match(self) -> frozenset[str]:
        """The policies that may match at all: those whose sequence begins somewhere."""
        waiting = {each for each, asked in self._asked.items() if asked.needed or self._after_policy(each)}
        awaited = {self._after_policy(each) for each in waiting}
        found, happened, given = set[str](), set[str](), set[str]()
        fresh = self._asked.keys() - waiting
        while fresh:
            found |= fresh
            for each in fresh:
                labels = self._rules[each].policy.labels
                if (labels or each in awaited) and self._may_match(each):
                    happened.add(each)
                    given.update(labels)
            fresh = {each for each in waiting if self._is_met(each, happened, given)}
            waiting -= fresh
        return frozenset(found)

    def _after_policy(self, policy_id: str) -> str | None:
        after = self._rules[policy_id].policy.after
        return after.name if after is not None and after.kind == "policy" else None

    def _is_met(self, policy_id: str, happened: set[str], given: set[str]) -> bool:
        """Whether what it waits for may have happened: these policies matched, and gave these labels."""
        before = self._after_policy(policy_id)
        if before is not None and before not in happened:
            return False
        return not any(labels.isdisjoint(given) for labels in self._asked[policy_id].needed)

    def _may_match(self, policy_id: str) -> bool:
        rule = self._rules[policy_id]
        return _acts(rule.policy) and subsumption.contradiction(rule) is None

    def findings(self, policy_id: str) -> Iterator[Finding]:
        """About one policy; nothing about what is switched off."""
        policy = self._rules[policy_id].policy
        if not policy.enabled:
            return
        found = [*self._unknown_labels(policy), *self._unknown_after(policy)]
        if not found and policy_id not in self._happening:
            pointer = "/after" if policy.after else "/matchConditions"
            found = [Finding("sequence-never", _NEVER, policy, pointer)]
        yield from found
        yield from self._unasked_labels(policy)

    def never_begins(self) -> Iterator[tuple[str, str]]:
        """The enforced policies that never come to their turn, and why: nobody does what they wait for."""
        for policy_id in sorted(self._asked.keys() - self._happening):
            policy = self._rules[policy_id].policy
            if _acts(policy):
                yield policy_id, self._why_never(policy)

    def _why_never(self, policy: Policy) -> str:
        if policy.after is not None and policy.after.kind == "policy":
            for finding in self._unknown_after(policy):
                return finding.message
        for labels in self._asked[policy.policy_id].needed:
            if not any(self._givers.get(label) for label in labels):
                named = " or ".join(f"`{label}`" for label in sorted(labels)[:MOST_LABELS])
                return f"no policy that is in force adds the label {named}"
        return _NEVER

    def _unknown_labels(self, policy: Policy) -> Iterator[Finding]:
        for label, pointer in self._asked[policy.policy_id].named.items():
            if not self._givers.get(label):
                near = suggestion(label, [each for each, givers in self._givers.items() if givers])
                message = f"no policy that is in force adds the label `{label}`{near}"
                yield Finding("label-nobody-adds", message, policy, pointer)

    def _unknown_after(self, policy: Policy) -> Iterator[Finding]:
        after = policy.after
        if after is None or after.kind == "label":
            return
        message = ""
        if after.kind == "policy":
            other = self._rules.get(after.name)
            if other is None:
                message = f"there is no policy `{after.name}`{suggestion(after.name, self._rules)}"
            elif not _acts(other.policy):
                why = "in shadow" if other.policy.enabled else "switched off"
                message = f"the policy `{after.name}` is {why}, and so never counts as matched"
            elif after.name == policy.policy_id:
                message = "it waits for itself to have matched before"
        elif self._tools.sets and self._tools.declared(_called(after.name)) is UNDECLARED:
            tools = (tool for each in self._tools.sets for tool in each.tools)
            known = {_called(name) for tool in tools for name in tool.names}
            near = suggestion(words_of(after.name), known)
            message = f"no tool set knows a tool that is called like `{after.name}`{near}"
        if message:
            yield Finding("after-unknown", message, policy, f"/after/{after.kind}")

    def _unasked_labels(self, policy: Policy) -> Iterator[Finding]:
        for label in policy.labels:
            if label not in self._asked_for and not self._any_asked:
                message = f"no policy asks for the label `{label}`; it is recorded, and changes nothing"
                yield Finding("label-nobody-asks", message, policy, "/labels/add")


def waits(rule: CompiledPolicy) -> bool:
    """Whether it may wait for something before it in the run."""
    return rule.policy.after is not None or any("run" in each.roots for each in rule.conditions)


def of_itself(rule: CompiledPolicy) -> Iterator[Finding]:
    """What is wrong with a policy's `on`, `after` and labels whatever else there is."""
    policy = rule.policy
    if policy.action != "allow":
        for at in _loosened(rule):
            message = (
                "a label that is there loosens it, and a run has the labels of whichever run its agent names"
                " as `parentRunId`; have a policy ask for a label, never that it is missing"
            )
            yield Finding("label-loosens", message, policy, f"/matchConditions/{at}")
    if policy.on == "tool.completed":
        for at, condition in enumerate(rule.conditions):
            for root in _NOT_REPORTED:
                if root in condition.roots:
                    message = f"an outcome has no `{root}`, whatever its call has; ask in one on the call"
                    yield Finding("report-lacks", message, policy, f"/matchConditions/{at}")
        if policy.scope == "action_only":
            message = "an outcome has no `actionHint`, so `scope: action_only` leaves none out"
            yield Finding("report-lacks", message, policy, "/scope")
    within = policy.after.within_calls if policy.after is not None else None
    if within is not None and within >= FAR:
        message = f"hardly a run has {within} calls; leave `withinCalls` out, which means at any time before"
        yield Finding("within-far", message, policy, "/after/withinCalls")


def _loosened(rule: CompiledPolicy) -> Iterator[int]:
    """The conditions that hold only while the run lacks a label."""
    for at, condition in enumerate(rule.conditions):
        if condition.expression is not None:
            denies = _denies_labels(parse(condition.expression.text))
        else:
            assert condition.path is not None and condition.operator is not None
            denies = condition.path.keys == _LABELS and condition.operator.negated
        if denies:
            yield at


def _denies_labels(node: Expr, denied: bool = False) -> bool:
    denied ^= isinstance(node, Unary) and node.operator == "!"
    named = path_of(node.target if isinstance(node, Has) else node)
    return (denied and named == _LABELS) or any(_denies_labels(part, denied) for part in parts(node))


def _acts(policy: Policy) -> bool:
    """Whether its matches give labels and count for `after`."""
    return policy.enabled and policy.mode == "enforce"


def _called(pattern: str) -> str:
    """A name of a tool that a pattern says."""
    return pattern.strip("= ").replace("*", "").strip()
