"""The table of operators: for each its value check, its test of a call, its promise to the index, its words.

`not_x` is made from `x` by negation of the whole, so it is TRUE where `x` finds nothing; a fault stays a
fault. Where a path leads to several values (arrays), one that satisfies is enough for the positive operator.
Knows nothing of policies, expressions or the index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final, Literal

from engine.conditions.operands import (
    Check,
    Choices,
    check_any,
    check_list,
    check_nothing,
    check_number,
    check_pattern,
    check_text,
    excerpt,
    show,
)
from engine.derived.facts import MISSING, View
from engine.errors import ConditionError
from engine.fields.hints import Hint, Literals, OneOf, Present, Regex, Threshold
from engine.fields.paths import Path
from engine.fields.pattern import Pattern, compile_pattern, in_characters
from engine.fields.scalars import keys_of, number_of, shorten
from engine.model import Fault, Json, Verdict
from schemas.suggestion import closest


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; everything here wants a checked value.

    `prepare` brings the value into the form that `test` wants it in. `witness` gives the value that speaks
    for a verdict of TRUE (of `not_x`: the value that was seen). `phrase` completes "`field` is <value>, ..."
    for people; `%s` in it is the condition's own value.
    """

    name: str
    accepts: Check
    prepare: Callable[[Json], Any]
    test: Callable[[View, Any], Verdict]
    hint: Callable[[Path, Json], tuple[Hint, ...]]
    witness: Callable[[View, Json], Json]
    phrase: str
    meaning: str
    negated: bool = False
    at_once: Callable[[Json, Any], Verdict | None] | None = None
    """What `test` says of a path that ends at this one value; None where only `test` can tell."""

    @property
    def takes_value(self) -> bool:
        return self.accepts is not check_nothing

    def check(self, value: Json) -> None:
        """Raises ConditionError(part="value") when the operator cannot take this value."""
        self.accepts(self.name, value)


def _as_it_is(value: Json) -> Json:
    return value


# ---- equality ----------------------------------------------------------------------------------------


def _choice(value: Json) -> Choices:
    return Choices((value,))


def _test_in(view: View, wanted: Choices) -> Verdict:
    for value in view.values():  # noqa: SIM110 - a generator would cost more than the test itself
        if wanted.hold(value):
            return True
    return False


def _in_at_once(value: Json, wanted: Choices) -> Verdict | None:
    if value.__class__ is not list:
        return wanted.hold(value)
    if wanted.hold(value):
        return True
    for item in value:  # noqa: SIM110 - see _test_in
        if wanted.hold(item):
            return True
    return False


def _hint_equals(path: Path, value: Json) -> tuple[Hint, ...]:
    return (OneOf(path, keys_of([value])),)


def _hint_in(path: Path, value: Json) -> tuple[Hint, ...]:
    return (OneOf(path, keys_of(value)),)


def _witness_equals(view: View, value: Json) -> Json:
    values = view.values()
    return values[0] if len(values) == 1 else next(filter(_choice(value).hold, values), MISSING)


def _witness_in(view: View, value: Json) -> Json:
    values = view.values()
    return values[0] if len(values) == 1 else next(filter(Choices(value).hold, values), MISSING)


# ---- text --------------------------------------------------------------------------------------------


MANY: Final = 32
"""More texts than these are asked all at once whether there is anything to look for; one by one, the
hundreds of thousands that a call may hold would take too long."""


def _has(text: str, part: str) -> bool:
    return part in text


def _on_texts(
    name: str,
    holds: Callable[[str, str], bool],
    phrase: str,
    meaning: str,
    place: Literal["start", "end", ""] = "",
) -> Operator:
    def test(view: View, wanted: str) -> Verdict:
        texts = view.texts()
        if len(texts) > MANY and wanted.encode() not in view.joined():
            return False
        for text in texts:  # noqa: SIM110 - see _test_in
            if holds(text, wanted):
                return True
        return False

    def at_once(value: Json, wanted: str) -> Verdict | None:
        return holds(value, wanted) if value.__class__ is str and value.isascii() else None

    def hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Literals(path, frozenset({value.casefold()}), place=place),)

    def witness(view: View, value: Json) -> Json:
        texts = view.texts()
        for text in texts:
            if len(texts) == 1 or holds(text, value):
                start = len(text) - len(value) if holds is str.endswith else text.find(value)
                return excerpt(text, start, start + len(value))
        return MISSING

    return Operator(name, check_text, _as_it_is, test, hint, witness, phrase, meaning, at_once=at_once)


def _test_matches(view: View, pattern: Pattern) -> Verdict:
    verdict: Verdict = False
    texts = view.encoded()
    if len(texts) > MANY:
        # One search over all tells where to look, or that there is nothing to look for.
        at = pattern.search_joined(view.joined())
        if at is None:
            return False
        if at >= 0:
            texts = (view.text_at(at), *texts)
    for text in texts:
        span = pattern.span(text)
        if isinstance(span, tuple):
            view.hit = (pattern, text, span)
            return True
        if span is not None:
            verdict = span
    return verdict


def _matches_at_once(value: Json, pattern: Pattern) -> Verdict | None:
    if value.__class__ is not str or not value.isascii():
        return None
    return pattern.search_bytes(value.encode()) if pattern.may_match(value) else False


def _hint_matches(path: Path, value: Json) -> tuple[Hint, ...]:
    return (Regex(path, compile_pattern(value).required),)


def _witness_matches(view: View, value: Json) -> Json:
    pattern = compile_pattern(value)
    if view.hit is None or view.hit[0] is not pattern:
        _test_matches(view, pattern)  # what it found has made room for what another pattern did
    if view.hit is None:
        return MISSING
    _, text, span = view.hit
    return excerpt(text.decode(), *in_characters(text, span))


# ---- numbers -----------------------------------------------------------------------------------------


def _on_numbers(name: str, compare: Callable[[Any, Any], bool], above: bool, words: str) -> Operator:
    def test(view: View, bound: int | float) -> Verdict:
        numbers, others = view.numbers()
        for number in numbers:
            if compare(number, bound):
                return True
        return _not_a_number(view) if others else False

    def at_once(value: Json, bound: int | float) -> Verdict | None:
        return compare(value, bound) if value.__class__ is int else None

    def hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Threshold.of(path, above, value),)

    def witness(view: View, value: Json) -> Json:
        numbers, _ = view.numbers()
        if len(numbers) == 1:
            return numbers[0]
        return next((number for number in numbers if compare(number, value)), MISSING)

    meaning = f"is a number, or the text of one, {words} this; any other value that is there is an error"
    return Operator(
        name, check_number, _as_it_is, test, hint, witness, f"{words} %s", meaning, at_once=at_once
    )


def _not_a_number(view: View) -> Fault:
    for end in view.ends:
        for value in end if isinstance(end, list) and end else (end,):
            if number_of(value) is None:
                return Fault(f"`{view.path}` is {show(value)}, which is not a number")
    return Fault(f"`{view.path}` is not a number")


# ---- presence and negation ---------------------------------------------------------------------------


def _test_exists(view: View, wanted: None) -> Verdict:
    return view.ends != ()


def _hint_exists(path: Path, value: Json) -> tuple[Hint, ...]:
    return (Present(path),)


def _first(view: View, value: Json) -> Json:
    return view.first()


def _no_hint(path: Path, value: Json) -> tuple[Hint, ...]:
    return ()


def _negated(verdict: Verdict) -> Verdict:
    return not verdict if isinstance(verdict, bool) else verdict


def _not(positive: Operator) -> Operator:
    holds, holds_at_once = positive.test, positive.at_once

    def test(view: View, wanted: Any) -> Verdict:
        return _negated(holds(view, wanted))

    def at_once(value: Json, wanted: Any) -> Verdict | None:
        verdict = None if holds_at_once is None else holds_at_once(value, wanted)
        return None if verdict is None else _negated(verdict)

    return Operator(
        f"not_{positive.name}",
        positive.accepts,
        positive.prepare,
        test,
        _no_hint,
        _first,
        f"not {positive.phrase}",
        f"`{positive.name}` does not hold",
        negated=True,
        at_once=at_once,
    )


# ---- the table ---------------------------------------------------------------------------------------

_EQUALS = Operator(
    "equals",
    check_any,
    _choice,
    _test_in,
    _hint_equals,
    _witness_equals,
    "equal to %s",
    "is this value; a text also equals the number, boolean or null that reads the same:"
    " `22.0` reads as `22`, too",
    at_once=_in_at_once,
)
_IN = Operator(
    "in",
    check_list,
    Choices,
    _test_in,
    _hint_in,
    _witness_in,
    "one of %s",
    "equals one of the listed values",
    at_once=_in_at_once,
)
_CONTAINS = _on_texts(
    "contains",
    _has,
    "containing %s",
    "has this text in it; of an object or list in any key or value at any depth",
)
_STARTS_WITH = _on_texts("starts_with", str.startswith, "starting with %s", "begins with this text", "start")
_ENDS_WITH = _on_texts("ends_with", str.endswith, "ending with %s", "ends with this text", "end")
_MATCHES = Operator(
    "matches",
    check_pattern,
    compile_pattern,
    _test_matches,
    _hint_matches,
    _witness_matches,
    "matching %s",
    "holds a match of this RE2 pattern; case-sensitive unless it says `(?i)`",
    at_once=_matches_at_once,
)
_EXISTS = Operator(
    "exists",
    check_nothing,
    _as_it_is,
    _test_exists,
    _hint_exists,
    _first,
    "present",
    "the path leads to a value, null included",
)

OPERATORS: Final[Mapping[str, Operator]] = {
    operator.name: operator
    for operator in (
        _EQUALS,
        _not(_EQUALS),
        _IN,
        _not(_IN),
        _CONTAINS,
        _not(_CONTAINS),
        _STARTS_WITH,
        _ENDS_WITH,
        _MATCHES,
        _not(_MATCHES),
        _on_numbers("greater_than", gt, True, "greater than"),
        _on_numbers("greater_than_or_equal", ge, True, "greater than or equal to"),
        _on_numbers("less_than", lt, False, "less than"),
        _on_numbers("less_than_or_equal", le, False, "less than or equal to"),
        _EXISTS,
        _not(_EXISTS),
    )
}
"""Every operator of the field form, in the order in which people read about them."""

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


def operator_named(name: str | None) -> Operator:
    """The operator. Raises ConditionError(part="operator") with a did-you-mean."""
    if not name:
        raise ConditionError("a condition with `field` needs an `operator`", part="operator")
    operator = OPERATORS.get(name)
    if operator is None:
        word = name.strip().replace("-", "_").casefold()
        close = _OTHER_NAMES.get(word) or closest(word, OPERATORS, cutoff=0.5)
        known = ", ".join(f"`{known}`" for known in OPERATORS)
        hint = f"did you mean `{close}`?" if close else f"there are {known}"
        raise ConditionError(f"unknown operator `{shorten(name)}`; {hint}", part="operator")
    return operator
