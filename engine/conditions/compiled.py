"""Both shapes of a condition, compiled: `{field, operator, value}` and `{expression}`.

Decides what a condition means as a whole, when two are the same (equal ones share one compiled object), how
it is told to a reviewer, and which policies are unsafe because an expression would fault on calls that it
was not meant for. Knows nothing of the index or of actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from engine.canonical_json import canonical_json
from engine.cel.expression import Expression, compile_expression
from engine.cel.fast_paths import STEPS
from engine.cel.term import Term
from engine.conditions.operands import check_pattern, only_texts, show
from engine.conditions.operators import Operator, operator_named
from engine.derived.facts import LOOKED_INTO, Facts
from engine.errors import ConditionError
from engine.fields.computed import DERIVED, MEMBERS, TOOL, UNREADABLE
from engine.fields.hints import Hint, Literals, OneOf, Regex
from engine.fields.paths import Path, parse
from engine.fields.pattern import compile_pattern
from engine.fields.scalars import shorten
from engine.model import UNKNOWN_KIND, Condition, Fault, Json, Verdict

LONGEST_PATTERN_SHOWN: Final = 40


class CompiledCondition(ABC):
    """A condition ready to be evaluated. Equal `key`s mean the same behaviour, and then the same object.

    `path` and `operator` are None for an expression, `expression` is None for the field form. `hints` are
    all necessary for any verdict but FALSE.
    """

    __slots__ = ("__weakref__", "condition", "expression", "hints", "key", "operator", "path")

    condition: Condition
    key: Hashable
    hints: tuple[Hint, ...]
    path: Path | None
    operator: Operator | None
    expression: Expression | None

    @property
    def roots(self) -> frozenset[str]:
        """The roots of the call that it reads."""
        if self.expression is not None:
            return frozenset(self.expression.roots)
        return frozenset() if self.path is None else frozenset((self.path.root,))

    @property
    @abstractmethod
    def text(self) -> str:
        """The condition on one line, for people."""

    @abstractmethod
    def evaluate(self, facts: Facts) -> Verdict:
        """The verdict on a call; never raises."""

    @abstractmethod
    def words(self, facts: Facts, verdict: Verdict) -> str:
        """Why that is the verdict: the condition and the value that was seen."""

    def describe(self, facts: Facts) -> str:
        """The verdict in words."""
        return self.words(facts, self.evaluate(facts))

    def __repr__(self) -> str:
        return f"<condition {self.text}>"


class _OfField(CompiledCondition):
    """`field`, `operator` and `value`."""

    __slots__ = ("_at_once", "_keys", "_relation", "_test", "_wanted")

    path: Path
    operator: Operator

    def __init__(self, condition: Condition, path: Path, operator: Operator, key: Hashable) -> None:
        self.condition = condition
        self.key = key
        self.hints = operator.hint(path, condition.value)
        self.path, self.operator, self.expression = path, operator, None
        self._test, self._wanted = operator.test, operator.prepare(condition.value)
        self._relation: str | None = None
        self._keys = path.keys
        self._at_once = None if path.root in MEMBERS or path.text in LOOKED_INTO else operator.at_once

    @property
    def text(self) -> str:
        shown = f" {show(self.condition.value)}" if self.operator.takes_value else ""
        return f"{self.path} {self.operator.name}{shown}"

    def evaluate(self, facts: Facts) -> Verdict:
        at_once = self._at_once
        if at_once is not None:  # a value at the end of a path through objects needs no view
            value: Json = facts.document
            for key in self._keys:
                if value.__class__ is not dict or key not in value:
                    break
                value = value[key]
            else:
                if (verdict := at_once(value, self._wanted)) is not None:
                    return verdict
        return self._test(facts.at(self.path), self._wanted)

    def words(self, facts: Facts, verdict: Verdict) -> str:
        if isinstance(verdict, Fault):
            return f"`{self.text}` cannot be evaluated: {verdict.message}"
        view, operator = facts.at(self.path), self.operator
        first = view.first()
        seen = operator.witness(view, self.condition.value) if verdict else first
        if seen is first:
            if (found := view.said) is None:
                found = view.said = f"`{self.path.text}` is {show(first)}"
        else:
            # An object or list is not the text that was found in it; it has it.
            within = isinstance(first, (dict, list)) and not isinstance(seen, (dict, list))
            found = f"`{self.path.text}` {'has' if within else 'is'} {show(seen)}"
        if verdict:
            return found if operator.name == "equals" else f"{found}, {self._wished()}"
        if operator.negated:
            return f"{found}, {self._wished().removeprefix('not ')}"
        return f"{found}, not {self._wished()}"

    def _wished(self) -> str:
        """How the value has to be. A long pattern says nothing to a reviewer, so it is not recited."""
        relation = self._relation
        if relation is None:
            value, operator = self.condition.value, self.operator
            long = operator.accepts is check_pattern and len(value) > LONGEST_PATTERN_SHOWN
            relation = operator.phrase.replace("%s", "the policy's pattern" if long else show(value))
            self._relation = relation  # most conditions never match, and those that do will again
        return relation


class _OfPresence(_OfField):
    """`exists` and `not_exists`."""

    __slots__ = ()

    def words(self, facts: Facts, verdict: Verdict) -> str:
        return _presence(self, facts)


def _presence(condition: _OfField, facts: Facts) -> str:
    view = facts.at(condition.path)
    return f"`{condition.path}` is {f'present ({show(view.first())})' if view.ends else 'missing'}"


class _OfDerived(_OfField):
    """What reads a derived member. Where that is known only in part it proves what it shows, never what it
    does not: that is an ERROR.

    INVARIANT: padding a call beyond the bounds of a reading never makes a condition FALSE.
    """

    __slots__ = ()

    def __init__(self, condition: Condition, path: Path, operator: Operator, key: Hashable) -> None:
        super().__init__(condition, path, operator, key)
        # Neither a number in a path nor an object has a place that could say that it is known only in part.
        is_object = MEMBERS[DERIVED][path.segments[0]].kind == "object"
        unsaid = is_object or any(index is not None for _, index in path.steps[1:])
        self.hints = () if unsaid else tuple(map(_or_unreadable, self.hints))

    def evaluate(self, facts: Facts) -> Verdict:
        verdict = self._test(view := facts.at(self.path), self._wanted)
        if verdict is self.operator.negated and view.partial:
            return _in_part(facts, self.path.segments[0])
        return verdict

    def words(self, facts: Facts, verdict: Verdict) -> str:
        if self.operator.takes_value or isinstance(verdict, Fault):
            return super().words(facts, verdict)
        return _presence(self, facts)


_COMMANDS: Final = "the commands are too many or too intricate to be read whole"
_SQL: Final = "the SQL is too long or too intricate to be read whole"
_PARTIAL: Final = {
    "recipients": "the recipients are too many or lie too deep to be read whole",
    "recipientDomains": "the recipients are too many or lie too deep to be read whole",
    "sql": _SQL,
    **dict.fromkeys(
        ("targets", "untrustedTargets", "unaskedTargets", "provenance"),
        "the targets are too many or lie too deep to be read",
    ),
    "amount": "the amount cannot be read as a number",
}
"""Whatever else is known only in part is read of commands."""


def _in_part(facts: Facts, member: str) -> Fault:
    """That a computed member is known only in part. Of a tool that nobody declared each text may be a command
    or SQL, so that much data is too much."""
    message = _PARTIAL.get(member, _COMMANDS)
    if message in (_COMMANDS, _SQL) and facts.at(_KIND).ends == (UNKNOWN_KIND,):
        message += (
            " (each text of a tool that no tool set declares is read as commands and as SQL: declare what "
            "the tool does, or send less in one call)"
        )
    return Fault(message)


_KIND: Final = parse(f"{TOOL}.kind")

_KINDS: Final = ("kind", "effect")
"""What the declaration of a tool says of it; there are few of them, however many tools there are."""
_FREE: Final = [0]
"""The purse of expressions that take no steps."""


class _OfExpression(CompiledCondition):
    """`expression`. What takes steps is asked once a call, from the purse that the whole call has."""

    __slots__ = ()

    expression: Expression

    def __init__(self, expression: Expression, key: Hashable) -> None:
        self.condition = Condition(expression=expression.text)
        self.key = key
        self.hints = expression.hints
        self.path, self.operator, self.expression = None, None, expression

    @property
    def text(self) -> str:
        return shorten(self.expression.shown, 200)

    def evaluate(self, facts: Facts) -> Verdict:
        expression = self.expression
        if not expression.metered and not expression.computed:
            return expression.evaluate(facts.document, _FREE)
        if facts.purse is None:
            facts.purse = [STEPS]
        verdict: Verdict | None = facts.verdicts.get(self.key)
        if verdict is None:
            scope_of = partial(_scope_of, facts) if expression.computed else None
            verdict = facts.verdicts[self.key] = expression.evaluate(facts.document, facts.purse, scope_of)
        return verdict

    def words(self, facts: Facts, verdict: Verdict) -> str:
        if isinstance(verdict, Fault):
            return f"`{self.text}` cannot be evaluated: {verdict.message}"
        return f"`{self.text}` {'holds' if verdict else 'does not hold'}"


def _scope_of(facts: Facts, term: Term) -> Mapping[str, Json] | Fault:
    """The document with what a term reads of computed members, as far as the kind of the tool does not decide
    that it reads them not; one known only in part is an ERROR."""
    asked = term.computed
    if term.of_tool:
        tool = facts.scope(term.of_tool)[TOOL]
        asked = term.asked_of(tool, *_KINDS)
        if any(facts.is_partial(*each) for each in asked):
            asked = term.asked_of(tool)  # whose name may decide, too
    for root, member in asked:
        if facts.is_partial(root, member):
            return _in_part(facts, member)
    return facts.scope(asked)


_interned: Final[WeakValueDictionary[Hashable, CompiledCondition]] = WeakValueDictionary()


def compile_condition(condition: Condition) -> CompiledCondition:
    """The compiled form; equal conditions give the same object.

    Raises ConditionError with `part` saying which member is wrong.
    """
    if condition.expression is not None:
        expression = _expression(condition)
        name = ("expression", expression.text)
        return _interned.get(name) or _interned.setdefault(name, _OfExpression(expression, name))
    path, operator = _field(condition)
    value = condition.value
    key = (path.text, operator.name, value if value.__class__ is str else _identity(operator, value))
    known = _interned.get(key)
    if known is not None:
        return known
    form = _OfField if operator.takes_value else _OfPresence
    if path.root == DERIVED:
        form = _OfDerived
    if condition.field != path.text:
        condition = Condition(path.text, operator.name, condition.value)
    return _interned.setdefault(key, form(condition, path, operator, key))


def _or_unreadable(hint: Hint) -> Hint:
    """The hint of a condition that may be an ERROR when the call was read only in part."""
    match hint:
        case OneOf(path, keys):
            return OneOf(path, keys | {UNREADABLE})
        case Literals(path, any_of):
            return Literals(path, any_of | {UNREADABLE})
        case Regex(path, pattern):
            return Regex(path, f"(?:{pattern})|{UNREADABLE}")
    return hint


def check_condition(condition: Condition) -> None:
    """Refuse what `compile_condition` refuses, without what only an evaluation needs."""
    if condition.expression is not None:
        _expression(condition)
    else:
        _field(condition)


def _field(condition: Condition) -> tuple[Path, Operator]:
    if condition.field is None:
        raise ConditionError(
            "a condition needs `field` and `operator`, or `expression`; write one of the two", part="field"
        )
    path = parse(condition.field)
    operator = operator_named(condition.operator)
    operator.check(condition.value)
    return path, operator


def _expression(condition: Condition) -> Expression:
    for name, member in (("field", condition.field), ("operator", condition.operator)):
        if member is not None:
            raise ConditionError(
                f"a condition has either `{name}` or `expression`; make them two conditions",
                part="expression",
            )
    if condition.value is not None:
        raise ConditionError("an expression takes no `value`; write it into the expression", part="value")
    return compile_expression(condition.expression or "")


def _identity(operator: Operator, value: Json) -> Hashable:
    """What that two values share exactly when the operator treats them alike."""
    if operator.name in ("in", "not_in"):
        if only_texts(value):
            return tuple(sorted(set(value)))
        return b"\n".join(sorted(set(map(canonical_json, value))))
    return canonical_json(value)


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
    assert condition.path is not None and condition.operator is not None
    if condition.path.root == TOOL:
        undeclared = UNKNOWN_KIND if condition.path.segments[0] == "kind" else "write"
        chosen = condition.condition.value
        return condition.operator.name in ("equals", "in") and undeclared not in (
            chosen if isinstance(chosen, list) else [chosen]
        )
    if condition.path.text != "toolName":
        return False
    if condition.operator.name == "matches":
        search = compile_pattern(condition.condition.value).search
        return not all(search(name) is True for name in _TOOL_NAMES)
    return condition.operator.name in _RESTRICTING
