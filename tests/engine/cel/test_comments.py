"""Comments of an expression are for those who read the file; nobody is told them."""

from __future__ import annotations

from engine.cel.expression import Expression
from engine.conditions.compiled import compile_condition
from engine.derived.facts import Facts
from engine.matching.counterfactual import failed
from engine.model import Condition, ToolCall

WRITTEN = """// who it is for
toolName == "a // b"  // a text, no comment
  // or two
  && size(inputPayload) > 1"""


def test_an_expression_is_told_on_one_line_without_its_comments() -> None:
    expression = Expression(WRITTEN)
    assert expression.text == WRITTEN
    assert expression.shown == 'toolName == "a // b" && size(inputPayload) > 1'
    assert [term.text for term in expression.terms] == ['toolName == "a // b"', "size(inputPayload) > 1"]


def test_what_explains_a_call_has_no_comments() -> None:
    condition = compile_condition(Condition(expression=WRITTEN))
    facts = Facts(ToolCall.of(toolName="a // b", inputPayload={}).document)
    assert condition.describe(facts) == '`toolName == "a // b" && size(inputPayload) > 1` does not hold'
    assert failed(condition, facts) == ("`size(inputPayload) > 1`",)
