"""Lint claims nothing false: readable cases, and every claim put to random calls."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from api.cli.commands import lint as command
from engine.analysis import implication, mutation, subsumption, witness
from engine.analysis.findings import Finding
from engine.analysis.lint import lint
from engine.conditions.compiled import compile_condition
from engine.conditions.operators import OPERATORS
from engine.conditions.settings import SAMPLES
from engine.derived.facts import Facts
from engine.documents.approval_terms import terms_from_json
from engine.documents.policy import condition_from_json
from engine.documents.sequence import after_from_json
from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern
from engine.fields.samples import samples
from engine.matching.decision import decide
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import (
    STRENGTH,
    Condition,
    Example,
    OrganisationSettings,
    Policy,
    RateLimit,
    ToolCall,
)
from schemas.lint_codes import CODES
from tests.engine.fields.test_required_literals import patterns
from tests.harness import case_files, places
from tests.harness.effort import examples
from tests.harness.values import compiles
from tests.test_agreement import EXPRESSIONS

CASES = sorted((places.CASES / "lint").glob("*.yaml"))


def often(share: float = 1.0) -> settings:
    return examples(int(300 * share), int(2_000 * share))


def policy_of(shape: dict[str, Any]) -> Policy:
    limit = shape.get("rateLimit")
    return Policy(
        policy_id=shape["name"],
        name=shape["name"],
        action=shape["action"],
        conditions=tuple(map(condition_from_json, shape["matchConditions"])),
        enabled=shape.get("enabled", True),
        scope=shape.get("scope", "all"),
        mode=shape.get("mode", "enforce"),
        failure_policy=shape.get("failurePolicy", "fail"),
        on=shape.get("on", "tool.called"),
        approval=terms_from_json(shape.get("approval")),
        labels=tuple(shape.get("labels", {}).get("add", ())),
        after=after_from_json(shape.get("after")),
        rate_limit=limit and RateLimit(limit["limit"], limit["windowSeconds"]),
        examples=tuple(
            Example(each["match"], {key: value for key, value in each.items() if key != "match"})
            for each in shape.get("examples", ())
        ),
    )


def told(finding: Finding, wanted: dict[str, Any]) -> dict[str, Any]:
    seen = {
        "policy": finding.policy.policy_id,
        "code": finding.code,
        "says": finding.message.removeprefix("no call can match: "),
        "related": list(finding.related),
        "call": finding.call,
        "outcome": finding.outcome,
        "pointer": finding.pointer,
    }
    return {key: seen[key] for key in wanted}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = case_files.read(path)
    policies = [policy_of(shape) for shape in case["policies"]]
    settings = OrganisationSettings(case["settings"]) if "settings" in case else SAMPLES
    found = [each for each in lint(policies, settings=settings) if each and each.code != "no-examples"]
    found.sort(key=lambda each: (each.policy.policy_id, each.code))
    wanted = sorted(case["expect"], key=lambda each: (each["policy"], each["code"]))
    assert [each.code for each in found] == [each["code"] for each in wanted], found
    assert [told(finding, entry) for finding, entry in zip(found, wanted, strict=True)] == wanted
    for finding in found:
        bears_out(finding, Ruleset.build(policies, settings=SAMPLES))


def test_every_code_has_a_case_and_a_line_of_help() -> None:
    seen = {each["code"] for path in CASES for each in case_files.read(path)["expect"]}
    assert seen | {"no-examples", "not-compared"} == CODES.keys()
    for code, (level, text) in CODES.items():
        assert any(line.split() == [code, level, *text.split()] for line in command.EPILOG.splitlines()), code


@pytest.mark.parametrize("action", ["block", "allow"])
def test_what_was_not_looked_at_is_said(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = [{"field": "toolName", "operator": "contains", "value": "wire"}]
    shapes = [{"name": f"p{number}", "action": "block", "matchConditions": where} for number in range(3)]
    shapes += [{"name": "q", "action": action, "matchConditions": [{**where[0], "value": "wire_x"}]}]
    policies = [policy_of(shape) for shape in shapes]

    def codes() -> set[str]:
        found = (each for each in lint(policies, only={"q"}) if each is not None)
        return {each.code for each in found} - {"no-examples", "missing-evades"}

    assert codes() == {"contradictory" if action == "allow" else "shadowed"}
    monkeypatch.setattr("engine.analysis.interactions.ALWAYS_ASKED", 1)
    monkeypatch.setattr("engine.analysis.interactions.EFFORT", 0)
    assert codes() == {"not-compared"}


# ---- random policies and calls ---------------------------------------------------------------------------

FIELDS = (
    "toolName",
    "toolName",
    "agentId",
    "actionHint",
    "inputPayload",
    "inputPayload.a",
    "inputPayload.a.b",
)
WORDS = ("wire", "wi", "re", "k", "K", "null", "true", "1", "1.0", "100", "ss", "ß", "wire transfer", "-0.0")
NUMBERS = (0, 1, -1, 1.0, 100, 0.5, -0.0, 0.0, 10**22, 1e22, 2**53 + 1)
PATTERNS = (
    "wi",
    "(?i)WI",
    "^wi",
    "re$",
    "^wire$",
    "wi|re",
    "wi|re|k",
    "(?i)k|S",
    "w.re",
    "[a-k]+",
    "a{3,900}b",
)

words, numbers = st.sampled_from(WORDS), st.sampled_from(NUMBERS)
scalars = st.one_of(words, numbers, st.booleans(), st.none())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "wire"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@cache
def with_operator(name: str) -> st.SearchStrategy[Condition]:
    base = name.removeprefix("not_")
    value: st.SearchStrategy[Any] = {
        "exists": st.none(),
        "in": st.lists(scalars, min_size=1, max_size=4),
        "equals": scalars | values,
        "matches": st.sampled_from(PATTERNS) | patterns,
        "contains": words,
        "starts_with": words,
        "ends_with": words,
    }.get(base, numbers)
    return st.builds(Condition, st.sampled_from(FIELDS), st.just(name), value)


def valid(condition: Condition) -> bool:
    try:
        compile_condition(condition)
    except ConditionError:
        return False
    return True


conditions = st.one_of(
    st.sampled_from(sorted(OPERATORS)).flatmap(with_operator),
    st.sampled_from((*EXPRESSIONS, 'toolName.contains("wire")', 'toolName == "wi"')).map(
        lambda text: Condition(expression=text)
    ),
).filter(valid)


policies = st.builds(
    Policy,
    policy_id=st.integers(0, 9).map(lambda n: f"p{n}"),
    name=st.sampled_from(["one", "two"]),
    action=st.sampled_from(["block", "require_approval", "warn", "allow"]),
    conditions=st.lists(conditions, min_size=1, max_size=3).map(tuple),
    enabled=st.sampled_from([True] * 9 + [False]),
    scope=st.sampled_from(["all", "all", "action_only"]),
    mode=st.sampled_from(["enforce", "enforce", "shadow"]),
    failure_policy=st.sampled_from(["fail", "fail", "ignore"]),
).filter(compiles)
payloads = st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=3)
calls = st.builds(
    ToolCall.of,
    toolName=words,
    inputPayload=payloads | st.fixed_dictionaries({"a": values}),
    agentId=words,
    actionHint=st.sampled_from([None, "read", "write", "wire"]),
)


def near(rules: list[CompiledPolicy]) -> list[ToolCall]:
    """Calls made to measure, where random ones hardly ever come."""
    found: list[ToolCall] = []
    for rule in rules:
        found += list(witness.satisfying(rule.conditions, attempts=4))
        for condition in rule.conditions:
            found += list(witness.satisfying([condition], attempts=2))
    return found


def matches(rule: CompiledPolicy, call: ToolCall) -> bool:
    if rule.actions_only and call.just_reads:
        return False
    verdict = rule.verdict(Facts(call.document))
    return verdict is True or (verdict is not False and not rule.tolerant)


@often()
@given(st.lists(policies, min_size=2, max_size=6), st.lists(calls, min_size=1, max_size=6))
def test_what_lint_claims_is_so(found: list[Policy], asked: list[ToolCall]) -> None:
    every = {policy.policy_id: policy for policy in found}
    ruleset = Ruleset.build(every.values())
    rules = ruleset.rules
    asked = asked + near(list(rules.values()))
    for finding in lint(every.values()):
        if finding is None:
            continue
        rule = rules[finding.policy.policy_id]
        bears_out(finding, ruleset)
        others = [rules[each] for each in finding.related]
        for call in asked:
            if finding.code == "dead":
                assert not matches(rule, call), (finding, call)
            elif finding.code == "shadowed" or "never win" in finding.message:
                assert not matches(rule, call) or matches(others[0], call), (finding, call)
            elif finding.code == "duplicate":
                assert matches(rule, call) is matches(others[0], call), (finding, call)
            elif finding.code == "redundant-condition":
                index = int(finding.pointer.rsplit("/", 1)[1])
                rest = (*rule.conditions[:index], *rule.conditions[index + 1 :])
                less = CompiledPolicy(rule.policy, rest, rule.tolerant, rule.actions_only)
                assert matches(rule, call) is matches(less, call), (finding, call)


def bears_out(finding: Finding, ruleset: Ruleset) -> None:
    """The engine does with the witness what the finding says."""
    if finding.call is None:
        assert finding.code in CODES and not finding.outcome
        return
    call = ToolCall.of(**finding.call)
    rule = ruleset.rules[finding.policy.policy_id]
    matched = {each.policy.policy_id for each in ruleset.matching(call)}
    if finding.outcome == "this call does not match":
        assert not matches(rule, call), finding
    else:
        assert matches(rule, call), finding
    if "both match" in finding.outcome:
        assert {finding.policy.policy_id, *finding.related} <= matched, finding
    if "which is" in finding.outcome:
        decision = decide(ruleset.evaluate(call), lambda policy: False)
        assert decision.status == ("blocked" if "blocked" in finding.outcome else "awaiting_approval"), (
            finding
        )
    if finding.code == "shadowed":
        other = ruleset.policies[finding.related[0]]
        assert STRENGTH[other.action] <= STRENGTH[finding.policy.action]
        assert other.enabled and other.mode == "enforce" and other.rate_limit is None


@often()
@given(conditions, conditions, st.lists(calls, min_size=1, max_size=8))
def test_what_is_proven_of_conditions_is_so(one: Condition, two: Condition, asked: list[ToolCall]) -> None:
    p, q = compile_condition(one), compile_condition(two)
    asked = asked + list(witness.satisfying([p], attempts=4)) + list(witness.satisfying([q], attempts=4))
    asked += list(witness.satisfying([p], [q], attempts=4))
    for mine in implication.claims(p):
        for theirs in implication.claims(q):
            for given_ in (implication.TRUE, implication.OPEN):
                for wanted in (implication.TRUE, implication.OPEN):
                    proven = implication.implies(mine, theirs, given_, wanted)
                    for call in asked if proven else ():
                        facts = Facts(call.document)
                        if at(mine.evaluate(facts), given_):
                            assert at(theirs.evaluate(facts), wanted), (mine, theirs, given_, wanted, call)
                if implication.excludes(mine, theirs, given_):
                    for call in asked:
                        facts = Facts(call.document)
                        both = at(mine.evaluate(facts), given_) and at(theirs.evaluate(facts), given_)
                        assert not both, (mine, theirs, given_, call)


def at(verdict: object, level: str) -> bool:
    return verdict is True or (level == implication.OPEN and verdict is not False)


POSITIVE = [name for name, each in OPERATORS.items() if each.takes_value and not each.negated]
on_one_field = (
    st.sampled_from(POSITIVE)
    .flatmap(with_operator)
    .map(lambda each: Condition("inputPayload.a", each.operator, each.value))
    .filter(valid)
)


@often()
@given(st.lists(on_one_field, min_size=2, max_size=3), st.lists(scalars, min_size=1, max_size=8))
def test_conditions_that_need_a_list_refuse_single_values(found: list[Condition], asked: list[Any]) -> None:
    compiled = list(map(compile_condition, found))
    if subsumption.needs_list(compiled):
        for value in [*asked, *NUMBERS, *WORDS, None, True, False]:
            facts = Facts({"toolName": "", "inputPayload": {"a": value}})
            assert not all(each.evaluate(facts) is True for each in compiled), value


@often()
@given(policies)
def test_witnesses_match(policy: Policy) -> None:
    rule = CompiledPolicy.of(policy)
    call = witness.matching(rule)
    if call is not None:
        assert matches(rule, call)
        assert matches(rule, ToolCall.of(**witness.shown(call))), "what is printed must be the same call"
        assert subsumption.contradiction(rule) is None, "a policy that matches something is not dead"


@often()
@given(patterns)
def test_samples_of_patterns_match(pattern: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ConditionError:
        assume(False)
    for text in samples(pattern):
        assert compiled.search(text) is True


@often(0.5)
@given(policies)
def test_pins_tell_policy_and_mutant_apart(policy: Policy) -> None:
    rule = CompiledPolicy.of(policy)
    for mutant in list(mutation.mutants(rule))[:6]:
        pin = mutation.pin(mutant)
        if pin is not None:
            changed = CompiledPolicy(
                policy, mutation.mutated(mutant, rule.conditions), rule.tolerant, rule.actions_only
            )
            assert matches(rule, pin.call) is pin.match
            assert matches(changed, pin.call) is not pin.match


@pytest.mark.parametrize(
    "shape",
    [
        [{"field": "inputPayload.items.price", "operator": "greater_than", "value": 9}],
        [{"field": "inputPayload", "operator": "matches", "value": r"(?i)\brm\s+-rf\s+/"}],
        [{"field": 'inputPayload["a.b"].c', "operator": "ends_with", "value": "x"}],
        [{"field": "user.scopes", "operator": "contains", "value": "pay"}],
        [{"field": "run.task", "operator": "exists"}, {"field": "reason", "operator": "not_exists"}],
        [{"expression": 'toolName == "t" && inputPayload.items.exists(i, i.price > 9 && i.name != "x")'}],
        [{"expression": 'toolName in ["a", "b"] && size(inputPayload.to) > 3'}],
        [{"expression": '(toolName == "a" || toolName == "b") && !has(inputPayload.ok)'}],
        [{"expression": 'toolName == "a" && (inputPayload.x > 3 ? inputPayload.y == "q" : false)'}],
        [{"field": "toolName", "operator": "not_matches", "value": "(?i)some|bash|read"}],
        [
            {"field": "inputPayload.cmd", "operator": "starts_with", "value": "git "},
            {"field": "inputPayload.cmd", "operator": "contains", "value": "push"},
            {"field": "inputPayload.cmd", "operator": "ends_with", "value": "--force"},
            {"field": "inputPayload.cmd", "operator": "not_contains", "value": "origin"},
        ],
    ],
)
def test_witnesses_are_found_for_what_people_write(shape: list[dict[str, Any]]) -> None:
    policy = Policy("p", "p", "block", tuple(map(condition_from_json, shape)))
    call = witness.matching(CompiledPolicy.of(policy))
    assert call is not None and CompiledPolicy.of(policy).verdict(Facts(call.document)) is True
