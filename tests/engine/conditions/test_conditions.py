"""What must be so for every condition and every call, whatever JSON comes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.conditions.compiled import CompiledCondition, check_condition, compile_condition
from engine.conditions.operators import OPERATORS
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.hints import Hint, Literals, OneOf, Present, Regex, Threshold
from engine.fields.pattern import WORK_LIMIT, compile_pattern
from engine.fields.scalars import value_keys
from engine.model import Condition, Fault
from tests.harness.values import FIELDS, calls, condition_values


@cache
def with_operator(operator: str) -> st.SearchStrategy[Condition]:
    return st.builds(Condition, st.sampled_from(FIELDS), st.just(operator), condition_values(operator))


conditions = st.sampled_from(sorted(OPERATORS)).flatmap(with_operator)


def hint_holds(hint: Hint, facts: Facts) -> bool:
    """The meaning of a hint, spelt out by its docstring and apart from operators and index."""
    if getattr(hint, "typed", False):
        types = (int, float) if isinstance(hint, Threshold) else (str,)
        if any(type(end) not in types for end in facts.at(hint.path).ends):
            return True
    match hint:
        case OneOf(path, keys):
            return any(not keys.isdisjoint(value_keys(value)) for value in facts.at(path).values())
        case Literals(path, any_of):
            folded = [text.casefold() for text in facts.at(path).texts()]
            return any(literal in text for literal in any_of for text in folded)
        case Threshold(path, above, bound):
            numbers, others = facts.at(path).numbers()
            return others or any(n >= bound if above else n <= bound for n in numbers)
        case Present(path):
            return facts.at(path).values() != ()
        case Regex(path, pattern):
            search = compile_pattern(pattern).search
            return any(search(text) is True for text in facts.at(path).texts())
    raise AssertionError(hint)


@given(conditions, calls)
def test_any_call_gets_a_verdict_and_words(condition: Condition, call: dict[str, Any]) -> None:
    compiled = compile_condition(condition)
    facts = Facts(call)
    verdict = compiled.evaluate(facts)
    assert verdict is True or verdict is False or isinstance(verdict, Fault)
    words = compiled.describe(facts)
    words.encode()
    assert words.isprintable()
    assert len(words) < 400
    compiled.text.encode()


@given(conditions, calls)
def test_a_verdict_that_is_not_false_fulfils_every_hint(condition: Condition, call: dict[str, Any]) -> None:
    compiled = compile_condition(condition)
    facts = Facts(call)
    if compiled.evaluate(facts) is not False:
        assert all(hint_holds(hint, facts) for hint in compiled.hints), compiled.hints


@given(conditions.filter(lambda c: f"not_{c.operator}" in OPERATORS), calls)
def test_not_x_is_the_negation_of_x(condition: Condition, call: dict[str, Any]) -> None:
    facts = Facts(call)
    negated = Condition(condition.field, f"not_{condition.operator}", condition.value)
    verdict = compile_condition(condition).evaluate(facts)
    opposite = compile_condition(negated).evaluate(facts)
    if isinstance(verdict, Fault):
        assert opposite == verdict
    else:
        assert opposite is (not verdict)


@given(conditions, calls)
def test_equal_conditions_are_one_object(condition: Condition, call: dict[str, Any]) -> None:
    compiled = compile_condition(condition)
    again = compile_condition(Condition(**vars_of(condition)))
    assert again is compiled
    assert again.key == compiled.key


@given(conditions, conditions, calls)
def test_equal_keys_behave_alike(one: Condition, two: Condition, call: dict[str, Any]) -> None:
    first, second = compile_condition(one), compile_condition(two)
    if first.key == second.key:
        assert first.evaluate(Facts(call)) == second.evaluate(Facts(call))


@given(conditions, calls)
def test_verdicts_do_not_depend_on_what_was_asked_before(condition: Condition, call: dict[str, Any]) -> None:
    compiled = compile_condition(condition)
    fresh = compiled.evaluate(Facts(call))
    used = Facts(call)
    for field in FIELDS:
        for operator in ("exists", "contains", "greater_than"):
            value = {"exists": None, "contains": "a", "greater_than": 1}[operator]
            compile_condition(Condition(field, operator, value)).evaluate(used)
    assert compiled.evaluate(used) == fresh


def vars_of(condition: Condition) -> dict[str, Any]:
    return {"field": condition.field, "operator": condition.operator, "value": condition.value}


def field(path: str, operator: str, value: Any = None) -> CompiledCondition:
    return compile_condition(Condition(path, operator, value))


def nested(depth: int, core: Any) -> Any:
    for number in range(depth):
        core = [core] if number % 2 else {"k": core}
    return core


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_document_of_absurd_depth_is_no_error(operator: str) -> None:
    value = {"in": ["x"], "not_in": ["x"], "exists": None, "not_exists": None}.get(operator, "x")
    if operator.endswith(("_than", "_or_equal")):
        value = 5
    facts = Facts({"toolName": "t", "inputPayload": {"a": nested(100_000, "needle x")}})
    for path in ("inputPayload", "inputPayload.a"):
        condition = field(path, operator, value)
        condition.evaluate(facts)
        condition.describe(facts)
    if operator == "contains":
        assert field("inputPayload", "contains", "needle").evaluate(facts) is True


def test_an_integer_that_cannot_be_written_is_no_error() -> None:
    facts = Facts({"toolName": "t", "inputPayload": {"a": [10**5000, "x"]}})
    assert field("inputPayload.a", "greater_than", 5).evaluate(facts) is True
    assert field("inputPayload.a", "contains", "x").evaluate(facts) is True
    assert field("inputPayload.a", "equals", 10**300).evaluate(facts) is False
    assert field("inputPayload.a", "in", [1, "x"]).evaluate(facts) is True
    assert "`inputPayload.a`" in field("inputPayload.a", "not_equals", 1).describe(facts)
    assert all(hint_holds(hint, facts) for hint in field("inputPayload.a", "equals", "x").hints)


@pytest.mark.parametrize("value", [10**309, -(10**309), [10**309], {"a": [10**400]}])
def test_numbers_beyond_a_double_are_refused_at_load(value: Any) -> None:
    with pytest.raises(ConditionError, match=r"write one between -1e308 and 1e308"):
        field("inputPayload.a", "equals", value)
    if isinstance(value, int):
        with pytest.raises(ConditionError, match=r"write one between -1e308 and 1e308"):
            field("inputPayload.a", "less_than", value)


def test_values_too_deep_or_too_many_are_refused_at_load() -> None:
    with pytest.raises(ConditionError) as refusal:
        field("inputPayload.a", "equals", nested(65, 1))
    assert refusal.value.message == "the value of `equals` is nested deeper than 64 levels; compare with less"
    with pytest.raises(ConditionError) as refusal:
        field("inputPayload.a", "in", list(range(10_001)))
    assert refusal.value.message == "operator `in` takes at most 10,000 values; make several policies of it"


@pytest.mark.parametrize(
    "condition",
    [
        Condition(),
        Condition("inputPayload.a", "equals", "b", "true"),
        Condition(expression="inputPayload.a = 1"),
        Condition("inputPaylod.a", "equals", "b"),
        Condition("inputPayload.a", "eq", "b"),
        Condition("inputPayload.a", "matches", "("),
        Condition("inputPayload.a", "in", ["b", nested(65, 1)]),
        Condition("inputPayload.a", "greater_than", 10**400),
    ],
)
def test_what_is_checked_is_refused_as_what_is_made(condition: Condition) -> None:
    refusals = []
    for refusing in (check_condition, compile_condition):
        with pytest.raises(ConditionError) as caught:
            refusing(condition)
        refusals.append((caught.value.message, caught.value.part, caught.value.offset))
    assert refusals[0] == refusals[1]


def test_half_a_character_is_refused_at_load() -> None:
    for operator in ("contains", "starts_with", "ends_with", "matches"):
        with pytest.raises(ConditionError, match=r"write the whole character"):
            field("inputPayload.a", operator, "a\ud800")


def test_a_fault_of_a_long_text_stays_a_fault_under_negation() -> None:
    text = "foo " + "b" * WORK_LIMIT + " bar"
    facts = Facts({"toolName": "t", "inputPayload": {"a": text}})
    positive = field("inputPayload.a", "matches", "foo.{0,100}bar")
    negative = field("inputPayload.a", "not_matches", "foo.{0,100}bar")
    assert isinstance(positive.evaluate(facts), Fault)
    assert negative.evaluate(facts) == positive.evaluate(facts)
    assert all(hint_holds(hint, facts) for hint in positive.hints)
    assert len(positive.describe(facts)) < 400
    clean = Facts({"toolName": "t", "inputPayload": {"a": "b" * WORK_LIMIT}})
    assert positive.evaluate(clean) is False
    assert negative.evaluate(clean) is True


def test_the_table_has_the_sixteen_operators_of_the_design() -> None:
    assert list(OPERATORS) == [
        *("equals", "not_equals", "in", "not_in", "contains", "not_contains", "starts_with", "ends_with"),
        *("matches", "not_matches", "greater_than", "greater_than_or_equal", "less_than"),
        *("less_than_or_equal", "exists", "not_exists"),
    ]
    assert [name for name, operator in OPERATORS.items() if not operator.takes_value] == [
        "exists",
        "not_exists",
    ]
    assert all(operator.meaning for operator in OPERATORS.values())
