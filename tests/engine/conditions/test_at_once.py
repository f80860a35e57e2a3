"""What a condition says at once of a lone value is what it says of the view of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.conditions.operators import OPERATORS
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.paths import parse
from engine.model import Condition
from tests.harness.effort import examples
from tests.test_agreement import NUMBERS, values, with_operator

PATH = parse("inputPayload.a")
field_conditions = st.sampled_from(sorted(OPERATORS)).flatmap(with_operator)
told = values | st.sampled_from(NUMBERS) | st.lists(st.sampled_from(NUMBERS), max_size=3)


@examples(500, 20_000)
@given(field_conditions, told)
def test_at_once_or_through_a_view_the_verdict_is_the_same(condition: Condition, value: Any) -> None:
    operator = OPERATORS[str(condition.operator)]
    if operator.at_once is None:
        return
    try:
        operator.check(condition.value)
    except ConditionError:
        return
    wanted = operator.prepare(condition.value)
    verdict = operator.at_once(value, wanted)
    if verdict is not None:
        seen = operator.test(Facts({"inputPayload": {"a": value}}).at(PATH), wanted)
        assert verdict == seen
