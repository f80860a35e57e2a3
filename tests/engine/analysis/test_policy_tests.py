"""Policy tests and mutants: what is noticed, and that all survivors at once come out as one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from engine.analysis import mutation
from engine.analysis.policy_tests import run
from engine.documents.policy import CallTest, PolicyTest, load_policy_test
from engine.matching.decision import decide
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Example, Policy, ToolCall
from tests.engine.analysis.test_lint import calls, policies
from tests.harness.effort import examples

PAY = Policy(
    "pay",
    "Payments",
    "block",
    (
        Condition("toolName", "in", ["pay", "wire"]),
        Condition("inputPayload.amount", "greater_than", 100),
    ),
)


def example(match: bool, tool: str, **payload: Any) -> Example:
    return Example(match, {"toolName": tool, "inputPayload": payload})


def survivors(policy: Policy, *tests: PolicyTest) -> list[str]:
    found = [s for s in mutation.scores([policy], tests, Ruleset.build([policy])) if s is not None]
    return [mutant.what for score in found for mutant in score.survivors]


def test_of(status: str, matched: set[str] | None = None, **call: Any) -> PolicyTest:
    case = CallTest("a case", ToolCall.of(**call), status, matched and frozenset(matched), None, 1)
    return PolicyTest("x_test.yaml", "about", None, (case,))


test_of.__test__ = False  # type: ignore[attr-defined]


def test_without_examples_nothing_is_noticed() -> None:
    score = next(each for each in mutation.scores([PAY]) if each is not None)
    assert score.mutants == len(score.survivors) == 9


def test_examples_at_the_threshold_and_one_per_tool_pin_everything() -> None:
    pinned = replace(
        PAY,
        examples=(
            example(True, "pay", amount=101),
            example(True, "wire", amount=101),
            example(False, "pay", amount=100),
            example(False, "mail", amount=500),
        ),
    )
    assert survivors(pinned) == []


def test_a_gap_is_named() -> None:
    loose = replace(PAY, examples=(example(True, "pay", amount=500), example(False, "pay", amount=5)))
    assert survivors(loose) == [
        'without `toolName in ["pay", "wire"]`',
        'without "wire" in `toolName in`',
        "with `inputPayload.amount greater_than_or_equal 100` instead",
        "with `inputPayload.amount greater_than 99` instead",
        "with `inputPayload.amount greater_than 101` instead",
    ]


def test_a_pin_is_an_example_that_closes_the_gap() -> None:
    policy = replace(PAY, examples=(example(True, "pay", amount=500),))
    for _ in range(10):
        scores = [each for each in mutation.scores([policy]) if each is not None]
        if not scores[0].survivors:
            break
        pin = mutation.pin(scores[0].survivors[0])
        assert pin is not None
        added = Example(pin.match, dict(pin.call.document))
        policy = replace(policy, examples=(*policy.examples, added))
    assert survivors(policy) == []


def test_a_test_of_the_whole_set_notices_too() -> None:
    policy = replace(PAY, examples=(example(True, "pay", amount=500), example(False, "pay", amount=5)))
    assert 'without `toolName in ["pay", "wire"]`' in survivors(policy)
    other = test_of("allowed", toolName="mail", inputPayload={"amount": 500})
    assert 'without `toolName in ["pay", "wire"]`' not in survivors(policy, other)


def test_a_condition_that_another_implies_has_no_mutants() -> None:
    rule = CompiledPolicy.of(
        replace(PAY, conditions=(*PAY.conditions, Condition("inputPayload.amount", "greater_than", 50)))
    )
    assert {mutant.index for mutant in mutation.mutants(rule)} == {0, 1}


def test_differences_are_told() -> None:
    source = b"""\
apiVersion: governance/v1
kind: PolicyTest
about: payments
policies: [pay, pays]
tests:
  - about: a large one
    call: {toolName: pay, inputPayload: {amount: 500}}
    expect: {status: awaiting_approval, matched: [], shadow: [tried]}
"""
    (result,) = run(load_policy_test(source, "x_test.yaml"), Ruleset.build([PAY]))
    assert result.case.line == 6
    assert [each.split(": ")[0] for each in result.differences] == [
        "`policies` names `pays`, but there is no policy `pays`; did you mean `pay`?",
        "expected `awaiting_approval`, got `blocked`",
        "expected `pay` not to match, but it does",
        "expected `tried` to match in shadow mode, but it does not; there is no policy `tried`",
    ]


def test_a_rate_limit_counts_as_not_reached() -> None:
    from engine.model import RateLimit

    limited = Ruleset.build([replace(PAY, rate_limit=RateLimit(5, 60))])
    (result,) = run(
        test_of("allowed", toolName="pay", inputPayload={"amount": 500}),
        limited,
    )
    assert result.passed


tests = st.lists(
    st.builds(
        CallTest,
        about=st.just("x"),
        call=calls,
        status=st.sampled_from(["allowed", "blocked", "awaiting_approval"]),
        matched=st.none() | st.frozensets(st.sampled_from(["p0", "p1"]), max_size=2),
        shadow=st.none(),
        line=st.just(1),
    ),
    min_size=1,
    max_size=4,
)


@examples(75, 1_500)
@given(st.lists(policies, min_size=1, max_size=4), tests)
def test_survivors_are_those_that_no_test_notices(found: list[Policy], cases: list[CallTest]) -> None:
    every = {policy.policy_id: policy for policy in found}
    ruleset = Ruleset.build(every.values())
    # Tests that hold, as they do where people look at the score.
    good = []
    for case in cases:
        decision = decide(ruleset.evaluate(case.call), lambda policy: False)
        matched = frozenset(match.policy.policy_id for match in decision.matched)
        good.append(replace(case, status=decision.status, matched=None if case.matched is None else matched))
    test = PolicyTest("x_test.yaml", "about", None, tuple(good))
    alone = {each.policy.policy_id: each for each in mutation.scores(every.values()) if each is not None}
    among = mutation.scores(every.values(), [test], ruleset)
    for score in among:
        if score is None:
            continue
        left = {(mutant.index, mutant.what) for mutant in score.survivors}
        rule = ruleset.rules[score.policy.policy_id]
        for mutant in alone[score.policy.policy_id].survivors:
            conditions = mutation.mutated(mutant, rule.conditions)
            other = Ruleset.build(every.values())
            rules = dict(other.rules)
            rules[score.policy.policy_id] = structs.replace(rule, conditions=conditions)
            noticed = not all(result.passed for result in run(test, Ruleset(_matcher(rules), 0, 0)))
            assert ((mutant.index, mutant.what) not in left) is noticed, mutant


def _matcher(rules: dict[str, CompiledPolicy]) -> Any:
    from engine.matching.matcher import Matcher

    return Matcher(rules)
