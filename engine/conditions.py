"""Both shapes of a condition, compiled: `{field, operator, value}` and `{expression}`.

Decides what a condition means as a whole, when two are the same (equal ones share one compiled object), how
it is told to a reviewer, and which policies are unsafe because an expression would fault on calls that it
was not meant for. Knows nothing of the index or of actions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from difflib import get_close_matches
from typing import Final
from weakref import WeakValueDictionary

from engine.errors import ConditionError
from engine.expression import Expression, compile_expression
from engine.fields import DERIVED, Facts, Hint, Literals, OneOf, Path, Regex, parse, value_key
from engine.model import Condition, Fault, Json, Verdict
from engine.operators import OPERATORS, Operator
from engine.patterns import compile_pattern
from engine.shell import UNREADABLE
from engine.texts import shorten
from engine.values import show

LONGEST_PATTERN_SHOWN: Final = 40


class CompiledCondition:
    """A condition ready to be evaluated. Equal `key`s mean the same behaviour, and then the same object.

    `path` and `operator` are None for an expression, `expression` is None for the field form. `hints` are
    all necessary for any verdict but FALSE.
    """

    __slots__ = (
        "__weakref__",
        "condition",
        "evaluate",
        "expression",
        "hints",
        "key",
        "operator",
        "path",
        "text",
    )

    condition: Condition
    key: Hashable
    hints: tuple[Hint, ...]
    evaluate: Callable[[Facts], Verdict]
    """The verdict on a call; never raises."""
    text: str
    """The condition on one line, for people."""
    path: Path | None
    operator: Operator | None
    expression: Expression | None

    def describe(self, facts: Facts) -> str:
        """Why the verdict is what it is: the condition and the value that was seen."""
        verdict = self.evaluate(facts)
        if isinstance(verdict, Fault):
            return f"`{self.text}` cannot be evaluated: {verdict.message}"
        if self.path is None or self.operator is None:
            return f"`{self.text}` {'holds' if verdict is True else 'does not hold'}"
        operator, value = self.operator, self.condition.value
        if not operator.takes_value:
            return self._presence(facts, verdict)
        seen = operator.witness(facts, self.path, value) if verdict is True else facts.first(self.path)
        if verdict is True and operator.name == "equals":
            return f"`{self.path}` {self._verb(facts, seen)} {show(seen)}"
        relation = operator.phrase.replace("%s", self._expected())
        if verdict is False:
            relation = relation.removeprefix("not ") if operator.negated else f"not {relation}"
        return f"`{self.path}` {self._verb(facts, seen)} {show(seen)}, {relation}"

    def _expected(self) -> str:
        """The condition's own value; a long pattern says nothing to a reviewer, so it is not recited."""
        value = self.condition.value
        if self.condition.operator in ("matches", "not_matches") and len(value) > LONGEST_PATTERN_SHOWN:
            return "the policy's pattern"
        return show(value)

    def _verb(self, facts: Facts, seen: Json) -> str:
        """An object or list is not the text that was found in it; it has it."""
        first = facts.first(self.path) if self.path else None
        return "has" if isinstance(first, (dict, list)) and not isinstance(seen, (dict, list)) else "is"

    def _presence(self, facts: Facts, verdict: bool) -> str:
        if self.path is not None and verdict is (self.condition.operator == "exists"):
            return f"`{self.path}` is present ({show(facts.first(self.path))})"
        return f"`{self.path}` is missing"

    def __repr__(self) -> str:
        return f"<condition {self.text}>"


_interned: Final[WeakValueDictionary[Hashable, CompiledCondition]] = WeakValueDictionary()


def compile_condition(condition: Condition) -> CompiledCondition:
    """The compiled form; equal conditions give the same object.

    Raises ConditionError with `part` saying which member is wrong.
    """
    if condition.expression is not None:
        return _compile_expression(condition)
    if condition.field is None:
        raise ConditionError(
            "a condition needs `field` and `operator`, or `expression`; write one of the two", part="field"
        )
    path = parse(condition.field)
    operator = _operator(condition.operator)
    operator.check(condition.value)
    key = (path.text, operator.name, _identity(operator, condition.value))
    known = _interned.get(key)
    if known is not None:
        return known
    compiled = CompiledCondition()
    compiled.condition = Condition(path.text, operator.name, condition.value)
    compiled.key = key
    compiled.hints = operator.hint(path, condition.value)
    compiled.evaluate = operator.compile(path, condition.value)
    if path.root == DERIVED and operator.takes_value:
        compiled.hints = tuple(_or_unreadable(hint) for hint in compiled.hints)
        compiled.evaluate = _or_fault(path, operator, compiled.evaluate)
    compiled.text = f"{path} {operator.name}"
    if operator.takes_value:
        compiled.text += f" {show(condition.value)}"
    compiled.path, compiled.operator, compiled.expression = path, operator, None
    return _interned.setdefault(key, compiled)


def _or_fault(path: Path, operator: Operator, test: Callable[[Facts], Verdict]) -> Callable[[Facts], Verdict]:
    """Commands that were read only in part prove what they show, never what they do not: that is an ERROR.

    INVARIANT: padding a command beyond the bounds of the reading never makes a condition FALSE.
    """
    unproven = operator.negated

    def evaluate(facts: Facts) -> Verdict:
        verdict = test(facts)
        if verdict is unproven:
            values = facts.values(path)
            if values and values[-1] == UNREADABLE:
                return Fault("the commands are too many or too intricate to be read whole")
        return verdict

    return evaluate


def _or_unreadable(hint: Hint) -> Hint:
    """The hint of a condition that may be an ERROR when the commands were read only in part."""
    match hint:
        case OneOf(path, keys):
            return OneOf(path, keys | {value_key(UNREADABLE)})
        case Literals(path, any_of):
            return Literals(path, any_of | {UNREADABLE})
        case Regex(path, pattern):
            return Regex(path, f"(?:{pattern})|{UNREADABLE}")
    return hint


def _compile_expression(condition: Condition) -> CompiledCondition:
    for name, member in (("field", condition.field), ("operator", condition.operator)):
        if member is not None:
            raise ConditionError(
                f"a condition has either `{name}` or `expression`; make them two conditions",
                part="expression",
            )
    if condition.value is not None:
        raise ConditionError("an expression takes no `value`; write it into the expression", part="value")
    text = condition.expression or ""
    expression = compile_expression(text)
    key = ("expression", text)
    known = _interned.get(key)
    if known is not None:
        return known
    evaluate = expression.evaluate
    compiled = CompiledCondition()
    compiled.condition = Condition(expression=text)
    compiled.key = key
    compiled.hints = expression.hints
    compiled.evaluate = lambda facts: evaluate(facts.document)
    compiled.text = shorten(text, 200)
    compiled.path, compiled.operator, compiled.expression = None, None, expression
    return _interned.setdefault(key, compiled)


_OTHER_NAMES: Final = {
    "==": "equals",
    "=": "equals",
    "eq": "equals",
    "is": "equals",
    "!=": "not_equals",
    "ne": "not_equals",
    "regex": "matches",
    "regexp": "matches",
    "=~": "matches",
    "like": "contains",
    "includes": "contains",
    ">": "greater_than",
    "gt": "greater_than",
    ">=": "greater_than_or_equal",
    "gte": "greater_than_or_equal",
    "<": "less_than",
    "lt": "less_than",
    "<=": "less_than_or_equal",
    "lte": "less_than_or_equal",
    "present": "exists",
    "absent": "not_exists",
}
"""What other tools call our operators; only for the did-you-mean."""


def _operator(name: str | None) -> Operator:
    if not name:
        raise ConditionError("a condition with `field` needs an `operator`", part="operator")
    operator = OPERATORS.get(name)
    if operator is None:
        word = name.strip().replace("-", "_").casefold()
        close = _OTHER_NAMES.get(word) or next(
            iter(get_close_matches(word, OPERATORS, n=1, cutoff=0.5)), None
        )
        known = ", ".join(f"`{known}`" for known in OPERATORS)
        hint = f"did you mean `{close}`?" if close else f"there are {known}"
        raise ConditionError(f"unknown operator `{shorten(name)}`; {hint}", part="operator")
    return operator


def _identity(operator: Operator, value: Json) -> str:
    """A text that two values share exactly when the operator treats them alike."""
    if operator.name in ("in", "not_in"):
        return "\n".join(sorted({json.dumps(choice, sort_keys=True) for choice in value}))
    return json.dumps(value, sort_keys=True)


# ---- which policies are unsafe -----------------------------------------------------------------------

_RESTRICTING: Final = frozenset({"equals", "in", "starts_with", "ends_with", "contains"})
_TOOL_NAMES: Final = ("x", "Bash", "send_email", "mcp__server__tool", "a.b/c:d-e", "0", " ", "漢字", "é")
"""A pattern that matches all of these excludes no tool worth the name."""


def check_policy(conditions: Sequence[CompiledCondition]) -> None:
    """Refuse a policy whose expressions may fault on calls that they were not meant for.

    An expression that reads a payload path without a `has()` guard faults on every call that lacks the path,
    and a fault holds the call up; so such a policy must say which tools it is for. Raises ConditionError.
    """
    unguarded = [
        (condition, path)
        for condition in conditions
        if condition.expression is not None
        for path in condition.expression.unguarded_paths
    ]
    if not unguarded or any(_restricts_tool(condition) for condition in conditions):
        return
    condition, path = unguarded[0]
    raise ConditionError(
        f"the expression `{shorten(condition.text)}` reads `{path}`, which calls of other tools may lack, and"
        f" would hold them up; guard it with `has({path}) && ...`, or say which tools the policy is for with"
        " a condition such as `{field: toolName, operator: equals, value: ...}`",
        part="expression",
    )


def _restricts_tool(condition: CompiledCondition) -> bool:
    if condition.expression is not None:
        return condition.expression.restricts_tool_name
    if condition.path is None or condition.path.text != "toolName" or condition.operator is None:
        return False
    if condition.operator.name == "matches":
        search = compile_pattern(condition.condition.value).search
        return not all(search(name) is True for name in _TOOL_NAMES)
    return condition.operator.name in _RESTRICTING
