"""What an expression may cost is bounded: steps, texts, nesting."""

from __future__ import annotations

import time

import pytest

from engine.cel.expression import Expression
from engine.errors import ConditionError
from engine.model import Fault, ToolCall

LONG = list(range(10_000))


@pytest.mark.parametrize(
    "text",
    [
        "inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))",
        "inputPayload.l.exists(a, inputPayload.l.exists(b, inputPayload.l.exists(c, a + b + c < 0)))",
        "inputPayload.l.all(a, inputPayload.l == inputPayload.l)",
        "inputPayload.l.all(a, -1 in inputPayload.l || a == a)",
        "inputPayload.l.all(a, [-1] in inputPayload.l || a == a)",
        'inputPayload.l.all(a, inputPayload.text.contains("b") || true)',
        'inputPayload.l.all(a, inputPayload.text.matches("(a*)*b") || true)',
        'inputPayload.l.all(a, size(inputPayload.text + "x") > 0)',
        "inputPayload.l.all(a, size([] + inputPayload.l) > 0)",
        "inputPayload.l.all(a, inputPayload.text <= inputPayload.twin)",
        "inputPayload.l.exists(a, inputPayload.text == inputPayload.twin)",
        "inputPayload.l.map(a, inputPayload.l) == inputPayload.l.map(a, inputPayload.l)",
        "size(inputPayload.l.map(a, inputPayload.l.map(b, inputPayload.l))) > 0",
        "inputPayload.deep.map(a, inputPayload.wide) == inputPayload.deep.map(a, inputPayload.wide)",
    ],
)
def test_what_would_run_away_is_a_fault_within_bounded_time(text: str) -> None:
    wide = [[LONG] * 100] * 10
    payload = {"l": LONG, "text": "a" * 500_000, "twin": "a" * 499_999 + "b", "deep": [1] * 100, "wide": wide}
    expression = Expression(text)
    document = ToolCall.of(inputPayload=payload).document
    started = time.process_time()
    verdict = expression.evaluate(document)
    assert time.process_time() - started < 2  # usually below 0.1; a run-away takes minutes
    assert verdict == Fault("it takes too many steps on this call; shorten the lists or nest fewer macros")


def test_a_term_that_runs_away_does_not_hide_a_term_that_is_false() -> None:
    text = 'inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0)) && toolName == "other"'
    assert Expression(text).evaluate(ToolCall.of(toolName="mail", inputPayload={"l": LONG}).document) is False


def test_many_terms_share_the_steps_of_one() -> None:
    text = " && ".join(["inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))"] * 8)
    document = ToolCall.of(inputPayload={"l": LONG}).document
    started = time.process_time()
    assert isinstance(Expression(text).evaluate(document), Fault)
    assert time.process_time() - started < 2
    cheap = " && ".join(["has(inputPayload.l)"] * 30)
    assert Expression(f"{cheap} && inputPayload.l.all(x, x >= 0 && x < 10000)").evaluate(document) is True


def test_ten_thousand_elements_are_no_problem() -> None:
    expression = Expression("inputPayload.l.all(x, x >= 0 && x < 10000) && 9999 in inputPayload.l")
    assert expression.evaluate(ToolCall.of(inputPayload={"l": LONG}).document) is True


def test_what_plus_makes_is_bounded() -> None:
    text = " + ".join(["inputPayload.t"] * 60) + ' == ""'
    verdict = Expression(text).evaluate(ToolCall.of(inputPayload={"t": "a" * 100_000}).document)
    assert verdict == Fault("what `+` makes is longer than 1048576")


def test_texts_and_nesting_are_bounded_without_exhausting_the_stack() -> None:
    for text in ("(" * 4000 + "true" + ")" * 4000, "!" * 8000 + "true", " && ".join(["true"] * 1000)):
        assert Expression(text).evaluate({}) is True
    for text in (
        "[" * 4000 + "]" * 4000,
        "!(" * 2000 + "true" + ")" * 2000,
        "-".join("1" * 2000),
        "1" + "[0]" * 2000,
    ):
        with pytest.raises(ConditionError, match="nested deeper than 64 levels"):
            Expression(text)
    with pytest.raises(ConditionError, match="longer than 8192 characters"):
        Expression("true" + " " * 8192)
