"""What can be proven of conditions without a call: that one implies another, that some can never all hold.

A condition is TRUE, FALSE or a fault, and whether a fault counts as met depends on the policy. So every claim
names levels: `TRUE`, or `OPEN`, which is TRUE or a fault. `implies(p, q, given, wanted)` says that on every
call on which p is (at least) `given`, q is `wanted`.

Arrays make less provable than it seems: `x equals 1` and `x equals 2` both hold for `x: [1, 2]`. Only the
roots that are texts (`toolName`, `agentId`, ...) have one value for certain; there, whatever follows from
trying each value of an `equals` or `in` is proven.

INVARIANT: "no" may mean "not proven", "yes" is always true. Knows nothing of policies.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from engine.cel.ast import Binary, Expr, FunctionCall, ListOf, Name, names
from engine.cel.ast import Literal as Constant
from engine.cel.parser import parse as parse_expression
from engine.cel.term import Term
from engine.conditions.compiled import CompiledCondition, compile_condition
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern
from engine.fields.scalars import number_of, text_of, whole
from engine.model import COMPUTED, ROOTS, Condition, Json, Verdict

Level = Literal["true", "open"]
TRUE: Final[Level] = "true"
OPEN: Final[Level] = "open"

SINGLE: Final = frozenset(root for root, kind in ROOTS.items() if kind == "text")
"""Paths with one text at most: never a list, an object or a number."""

_FALTERING: Final = frozenset({"greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"})
_TEXTUAL: Final = frozenset({"contains", "starts_with", "ends_with", "matches"})
_UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A condition, or one `&&` term of an expression, which is a condition by itself.

    `form` is the field form where there is an equal one. Claims with equal keys behave alike.
    """

    text: str
    key: Hashable
    form: CompiledCondition | None
    term: Term | None
    reads: frozenset[str]

    def evaluate(self, facts: Facts) -> Verdict:
        if self.form is not None:
            return self.form.evaluate(facts)
        assert self.term is not None
        return self.term.evaluate(facts.document)

    @property
    def may_fault(self) -> bool:
        return True if self.form is None else _may_fault(self.form)


def claims(condition: CompiledCondition) -> tuple[Claim, ...]:
    """What a condition claims, one by one: all of them together are the condition."""
    if condition.expression is None:
        assert condition.path is not None
        return (Claim(condition.text, condition.key, condition, None, frozenset({condition.path.root})),)
    return tuple(map(_of_term, condition.expression.terms))


def _of_term(term: Term) -> Claim:
    text = term.text.strip()
    form, reads = _read_term(text)
    if form is not None:
        return Claim(text, form.key, form, None, reads)
    # A term that counts its steps is another one with another share of them.
    return Claim(text, ("term", text, term.steps if term.metered else 0), None, term, reads)


@lru_cache(maxsize=65536)
def _read_term(text: str) -> tuple[CompiledCondition | None, frozenset[str]]:
    try:
        node = parse_expression(text)
    except ConditionError:  # a part that cannot stand alone
        return None, frozenset((*ROOTS, *COMPUTED))
    reads = names(node)
    condition = _as_field(node)
    return (compile_condition(condition) if condition else None), reads & {*ROOTS, *COMPUTED}


_CERTAIN: Final = frozenset({"toolName", "agentId", "runId", "toolCallId"})
_FUNCTIONS: Final = {"contains": "contains", "startsWith": "starts_with", "endsWith": "ends_with"}


def _as_field(node: Expr) -> Condition | None:
    """The field form of a term about a root that is a text in every call; such a term never faults."""
    match node:
        case (
            Binary(operator="==", left=Name(name=name), right=Constant(value=str() as value))
            | Binary(operator="==", left=Constant(value=str() as value), right=Name(name=name))
        ) if name in _CERTAIN:
            return Condition(name, "equals", value)
        case Binary(operator="in", left=Name(name=name), right=ListOf(items=items)) if (
            name in _CERTAIN and items
        ):
            choices = [item.value for item in items if isinstance(item, Constant)]
            if len(choices) == len(items) and all(isinstance(choice, str) for choice in choices):
                return Condition(name, "in", choices)
        case FunctionCall(function=function, arguments=(Name(name=name), Constant(value=str() as value))) if (
            name in _CERTAIN and function in _FUNCTIONS and value
        ):
            return Condition(name, _FUNCTIONS[function], value)
    return None


# ---- implication -------------------------------------------------------------------------------------


def implies(p: Claim, q: Claim, given: Level, wanted: Level) -> bool:
    """Proven: on every call on which p is `given`, q is `wanted`."""
    if p.key == q.key:
        return given == TRUE or wanted == OPEN or not p.may_fault
    if p.form is not None and (texts := every_text(p.form)) is not None:
        root = next(iter(p.reads))
        if q.reads == {root}:
            verdicts = [q.evaluate(Facts({root: text})) for text in texts]
            return all(v is True or (wanted == OPEN and v is not False) for v in verdicts)
    return p.form is not None and q.form is not None and _implies(p.form, q.form, given, wanted)


def _implies(p: CompiledCondition, q: CompiledCondition, given: Level, wanted: Level) -> bool:
    assert p.operator is not None and q.operator is not None and p.path is not None and q.path is not None
    if p.key == q.key:
        return given == TRUE or wanted == OPEN or not _may_fault(p)
    if q.operator.negated:
        if not p.operator.negated:
            return _excluded(p, _positive(q), given)
        # The contrapositive: where `not a` being FALSE means that a is TRUE, levels change sides.
        return _implies(_positive(q), _positive(p), _dual(wanted), _dual(given))
    if p.operator.negated:
        return False
    own = p.path.root == q.path.root and p.path.segments[: len(q.path.segments)] == q.path.segments
    if not own:
        return False
    if q.operator.name == "exists":
        return True
    return _implies_value(p, q, p.path.text == q.path.text, given, wanted)


def _implies_value(
    p: CompiledCondition, q: CompiledCondition, same: bool, given: Level, wanted: Level
) -> bool:
    """For positive operators; q's path is p's (`same`), or that of something which holds it."""
    assert p.operator is not None and q.operator is not None
    name, other = p.operator.name, q.operator.name
    value, bound = p.condition.value, q.condition.value
    if name in ("equals", "in"):
        choices = value if name == "in" else [value]
        return all(_choice_implies(choice, other, bound, same) for choice in choices)
    if name in _FALTERING and other in _FALTERING and same:
        return given in (wanted, TRUE) and _tighter(name, value, other, bound)
    if name in _TEXTUAL and other in _TEXTUAL:
        if name == other and value == bound:
            return given == TRUE or wanted == OPEN or not _may_fault(p)
        return not _may_fault(p) and not _may_fault(q) and _text_implies(name, value, other, bound)
    return False


def _choice_implies(choice: Json, other: str, bound: Json, same: bool) -> bool:
    """Every value that equals `choice` satisfies `other bound`."""
    if other in ("equals", "in") and same:
        known = bound if other == "in" else [bound]
        if isinstance(choice, (list, dict)):
            return False
        # By its text too, since 0.0 and -0.0 equal different texts.
        return any(type(each) is type(choice) and text_of(each) == text_of(choice) for each in known)
    if other in _FALTERING and same:
        number = number_of(choice)
        return number is not None and _compare(other, number, bound)
    if other in _TEXTUAL:
        # Null has no text, and equals the text "null"; a number has several texts.
        if isinstance(choice, bool):
            choice = text_of(choice)
        if not isinstance(choice, str) or choice == "null" or whole(choice) != choice:
            return False
        return _text_holds(other, choice, bound)
    return False


def _text_holds(operator: str, text: str, value: str) -> bool:
    if operator == "contains":
        return value in text
    if operator == "starts_with":
        return text.startswith(value)
    if operator == "ends_with":
        return text.endswith(value)
    return compile_pattern(value).search(text) is True


def _compare(operator: str, number: int | float, bound: int | float) -> bool:
    if operator == "greater_than":
        return number > bound
    if operator == "greater_than_or_equal":
        return number >= bound
    return number < bound if operator == "less_than" else number <= bound


def _tighter(name: str, value: int | float, other: str, bound: int | float) -> bool:
    if name.startswith("greater") is not other.startswith("greater"):
        return False
    if name.startswith("greater"):
        return value > bound or (value == bound and not (name.endswith("equal") and other == "greater_than"))
    return value < bound or (value == bound and not (name.endswith("equal") and other == "less_than"))


_LITERAL: Final = re.compile(r"(?P<fold>\(\?i\))?(?P<start>\^)?(?P<body>[^\\.+*?()|\[\]{}^$]+)(?P<end>\$)?")
_ALTERNATIVES: Final = re.compile(r"(?P<fold>\(\?i\))?(?P<body>[^\\()\[\]{}]+)")


def _text_implies(name: str, value: str, other: str, bound: str) -> bool:
    """A text of which `name value` holds has `other bound` hold too."""
    mine, theirs = _shape(name, value), _shape(other, bound)
    if mine is None or theirs is None:
        return name == other == "matches" and _fewer_alternatives(value, bound)
    (fold, start, body, end), (their_fold, their_start, their_body, their_end) = mine, theirs
    if fold and not their_fold:
        return False
    if their_fold:
        if not (body.isascii() and their_body.isascii()):
            return False
        body, their_body = body.lower(), their_body.lower()
    if their_start and their_end:
        return start and end and body == their_body
    if their_start:
        return start and body.startswith(their_body)
    if their_end:
        return end and body.endswith(their_body)
    return their_body in body


def _shape(name: str, value: str) -> tuple[bool, bool, str, bool] | None:
    """(any case, at the start, what, at the end) of a condition that looks for one fixed text."""
    if name != "matches":
        return False, name == "starts_with", value, name == "ends_with"
    found = _LITERAL.fullmatch(value)
    if found is None:
        return None
    return bool(found["fold"]), bool(found["start"]), found["body"], bool(found["end"])


def _fewer_alternatives(value: str, bound: str) -> bool:
    mine, theirs = _ALTERNATIVES.fullmatch(value), _ALTERNATIVES.fullmatch(bound)
    if mine is None or theirs is None or (mine["fold"] and not theirs["fold"]):
        return False
    if theirs["fold"] and not mine["fold"]:
        return False
    return set(mine["body"].split("|")) <= set(theirs["body"].split("|"))


def excludes(p: Claim, q: Claim, level: Level) -> bool:
    """Proven: no call has both at `level`."""
    for one, two in ((p, q), (q, p)):
        if one.form is None:
            continue
        if two.form is not None and two.form.operator is not None and two.form.operator.negated:
            positive = _positive(two.form)
            if _implies(one.form, positive, level, _dual(level)):
                return True
        elif two.form is not None and not _negated(one.form) and _excluded(one.form, two.form, level):
            return True
    return False


def _excluded(p: CompiledCondition, x: CompiledCondition, given: Level) -> bool:
    """Proven: where p (positive) is `given`, x (positive) is FALSE. Both on one path with a single text."""
    assert p.path is not None and x.path is not None and p.operator is not None and x.operator is not None
    if p.path.text != x.path.text or p.path.text not in SINGLE:
        return False
    texts = every_text(p)
    if texts is not None:
        return all(x.evaluate(Facts({p.path.root: text})) is False for text in texts)
    one, two = p.condition.value, x.condition.value
    if p.operator.name == x.operator.name == "starts_with":
        return not one.startswith(two) and not two.startswith(one)
    if p.operator.name == x.operator.name == "ends_with":
        return not one.endswith(two) and not two.endswith(one)
    texts = every_text(x)
    return texts is not None and all(p.evaluate(Facts({p.path.root: text})) is False for text in texts)


def every_text(p: CompiledCondition) -> list[str] | None:
    """Every text the path can have where p is not FALSE; None when they are not that few."""
    if p.path is None or p.operator is None or p.path.text not in SINGLE:
        return None
    if p.operator.name == "equals":
        choices = [p.condition.value]
    elif p.operator.name == "in":
        choices = p.condition.value
    else:
        return None
    return [text_of(choice) for choice in choices if not isinstance(choice, (list, dict))]


def _positive(condition: CompiledCondition) -> CompiledCondition:
    assert condition.operator is not None
    name = condition.operator.name.removeprefix("not_")
    return compile_condition(Condition(condition.condition.field, name, condition.condition.value))


def _negated(condition: CompiledCondition) -> bool:
    return condition.operator is not None and condition.operator.negated


def _dual(level: Level) -> Level:
    return OPEN if level == TRUE else TRUE


def _may_fault(condition: CompiledCondition) -> bool:
    assert condition.operator is not None
    name = condition.operator.name.removeprefix("not_")
    if name == "matches":
        return compile_pattern(condition.condition.value).exact_bytes < _UNBOUNDED
    return name in _FALTERING
