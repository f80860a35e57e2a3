"""What a condition asks of a call, as small goals about single places: "`inputPayload.a` contains x".

There are alternatives, each a row of goals that should make the condition come out as wanted. They are
proposals: whoever builds or changes a call by them evaluates the condition on it afterwards.

Knows nothing of how a call is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.cel.ast import (
    Binary,
    Choice,
    Expr,
    FunctionCall,
    Has,
    ListOf,
    Literal,
    Logic,
    Macro,
    Name,
    Select,
    Subscript,
    Unary,
)
from engine.cel.parser import parse as parse_expression
from engine.conditions.compiled import CompiledCondition
from engine.fields.computed import DERIVED
from engine.model import ALWAYS_PRESENT, COMPUTED, Json

ITEM: Final = "\0item"
"""A step into the first element of a list."""

MOST: Final = 12
"""Alternatives kept at any point."""

Slot = tuple[str, ...]
"""A place in a call: a root, then keys and `ITEM`."""

Row = tuple["Goal", ...]

COMMAND: Final[Slot] = ("inputPayload", "command")
"""Where a call has its command, unless it is known better."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`operator` is one of the field form, or `size`, or `absent`; a `not_` before it says the opposite."""

    slot: Slot
    operator: str
    value: Json = None

    @property
    def avoids(self) -> bool:
        """Something must not be there."""
        return self.operator == "absent" or self.operator.startswith("not_")


_COMPARE: Final = {
    "<": "less_than",
    "<=": "less_than_or_equal",
    ">": "greater_than",
    ">=": "greater_than_or_equal",
}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_REFUSED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FUNCTIONS: Final = {
    "contains": "contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "matches": "matches",
}
_NO_IDEA: Final[list[Row]] = [()]


def goals(condition: CompiledCondition, truth: bool, command: Slot = COMMAND) -> list[Row]:
    """Alternatives that should make the condition come out as `truth`; empty when nothing can.

    Nobody can send what is worked out from the payload; `command` is the place that it is worked out from.
    """
    if condition.path is None or condition.operator is None:
        assert condition.expression is not None
        return expression_goals(condition.expression.text, truth)
    path = condition.path
    if path.root in COMPUTED and path.segments[0] != "shellCommands":
        return _NO_IDEA
    name = condition.operator.name
    if not truth:
        name = name.removeprefix("not_") if name.startswith("not_") else f"not_{name}"
    derived = condition.path.root == DERIVED
    slot = command if derived else (condition.path.root, *condition.path.segments)
    if name == "not_exists":
        name = "absent"
        if len(slot) == 1 and slot[0] in ALWAYS_PRESENT:
            return []
    return [(Goal(slot, name, None if name in ("exists", "absent") else condition.condition.value),)]


def expression_goals(text: str, truth: bool) -> list[Row]:
    """The same of the text of an expression, or of one of its terms."""
    return _goals(parse_expression(text), truth)


def _goals(node: Expr, truth: bool, bound: Mapping[str, Slot] | None = None) -> list[Row]:
    """Alternatives that should make `node` come out as `truth`; empty when nothing can."""
    bound = bound or {}
    match node:
        case Logic(operator=operator, terms=terms):
            each = [_goals(term, truth, bound) for term in terms]
            return _all(each) if (operator == "&&") is truth else _any(each)
        case Unary(operator="!", operand=operand):
            return _goals(operand, not truth, bound)
        case Literal(value=bool() as value):
            return _NO_IDEA if value is truth else []
        case Has(target=target):
            slot = _slot(target, bound)
            return [(Goal(slot, "exists" if truth else "absent"),)] if slot else _NO_IDEA
        case Choice(test=test, yes=yes, no=no):
            return _any(
                [
                    _all([_goals(test, True, bound), _goals(yes, truth, bound)]),
                    _all([_goals(test, False, bound), _goals(no, truth, bound)]),
                ]
            )
        case FunctionCall(function=function, arguments=(target, Literal(value=str() as value))) if (
            function in _FUNCTIONS
        ):
            return _one(target, _FUNCTIONS[function], value, truth, bound)
        case Binary(operator="in", left=left, right=right):
            return _in(left, right, truth, bound)
        case Binary(operator=operator, left=left, right=right):
            return _compared(operator, left, right, truth, bound)
        case Macro():
            return _macro(node, truth, bound)
        case Name() | Select() | Subscript():
            return _one(node, "equals", truth, True, bound)
    return _NO_IDEA


def _one(node: Expr, operator: str, value: Json, truth: bool, bound: Mapping[str, Slot]) -> list[Row]:
    slot = _slot(node, bound)
    if slot is None:
        return _NO_IDEA
    goal = Goal(slot, operator if truth else f"not_{operator}", value)
    # Read, so it must be there: a missing one would be a fault.
    return [(goal,) if truth else (goal, Goal(slot, "exists"))]


def _in(left: Expr, right: Expr, truth: bool, bound: Mapping[str, Slot]) -> list[Row]:
    if isinstance(right, ListOf):
        choices = [item.value for item in right.items if isinstance(item, Literal)]
        return _one(left, "in", choices, truth, bound) if choices else _NO_IDEA
    slot = _slot(right, bound)
    if slot is None or not isinstance(left, Literal):
        return _NO_IDEA
    rows: list[Row] = [(Goal((*slot, ITEM), "equals" if truth else "not_equals", left.value),)]
    if isinstance(left.value, str):
        key: Row = (Goal((*slot, left.value), "exists" if truth else "absent"),)
        rows = [key, *rows] if len(slot) == 1 else [*rows, key]
    return rows


def _compared(operator: str, left: Expr, right: Expr, truth: bool, bound: Mapping[str, Slot]) -> list[Row]:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right = right, left
        operator = _TURNED.get(operator, operator)
    if isinstance(right, Unary) and right.operator == "-" and isinstance(right.operand, Literal):
        value: Json = -right.operand.value
    elif isinstance(right, Literal):
        value = right.value
    else:
        return _NO_IDEA
    if operator == "!=":
        operator, truth = "==", not truth
    if operator in _COMPARE and not truth:
        operator, truth = _REFUSED[operator], True
    if isinstance(left, FunctionCall) and left.function == "size" and isinstance(value, (int, float)):
        slot = _slot(left.arguments[0], bound)
        if slot is None:
            return _NO_IDEA
        wanted = {"<": value - 1, ">": value + 1}.get(operator, value)
        wanted = wanted if truth else wanted + 1
        return [(Goal(slot, "size", int(wanted)),)] if 0 <= wanted <= 1000 else []
    if operator in _COMPARE:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return _NO_IDEA
        return _one(left, _COMPARE[operator], value, True, bound)
    return _one(left, "equals", value, truth, bound) if operator == "==" else _NO_IDEA


def _macro(node: Macro, truth: bool, bound: Mapping[str, Slot]) -> list[Row]:
    slot = _slot(node.over, bound)
    if slot is None:
        return _NO_IDEA
    item = {**bound, node.variable: (*slot, ITEM)}
    if node.macro in ("exists", "exists_one", "all"):
        found = _goals(node.body, truth, item)
        if truth is (node.macro == "all"):
            found = [*found, (Goal(slot, "size", 0),)]
        return found[:MOST]
    return _NO_IDEA


def _slot(node: Expr, bound: Mapping[str, Slot]) -> Slot | None:
    steps: list[str] = []
    while True:
        if isinstance(node, Select):
            steps.append(node.key)
            node = node.target
        elif isinstance(node, Subscript):
            steps.append(ITEM)
            node = node.target
        elif isinstance(node, Name):
            if node.name in COMPUTED and node.name not in bound:
                return None
            return (*bound.get(node.name, (node.name,)), *reversed(steps))
        else:
            return None


def _any(each: list[list[Row]]) -> list[Row]:
    return [row for rows in each for row in rows][:MOST]


def _all(each: list[list[Row]]) -> list[Row]:
    found: list[Row] = [()]
    for rows in each:
        found = [(*before, *row) for before in found for row in rows][:MOST]
    return found
