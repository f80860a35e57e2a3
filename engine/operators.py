"""The table of operators: for each its value check, its test of a call, its promise to the index, its words.

`not_x` is made from `x` by negation of the whole, so it is TRUE where `x` finds nothing; a fault stays a
fault. Where a path leads to several values (arrays), one that satisfies is enough for the positive operator.
Knows nothing of policies, expressions or the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final

from engine.fields import (
    MISSING,
    Facts,
    Hint,
    Literals,
    OneOf,
    Path,
    Present,
    Regex,
    Threshold,
)
from engine.model import Fault, Json, Verdict
from engine.patterns import compile_pattern
from engine.texts import number_of, value_key
from engine.values import (
    Check,
    check_any,
    check_list,
    check_nothing,
    check_number,
    check_pattern,
    check_text,
    excerpt,
    one_of,
    show,
)

Test = Callable[[Facts], Verdict]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; `compile`, `hint` and `witness` want a checked value.

    `witness` gives the value that speaks for TRUE (of `not_x`: the value that was seen), MISSING if none.
    `phrase` completes "`field` is <value>, ..." for people; `%s` in it is the condition's own value.
    """

    name: str
    accepts: Check
    compile: Callable[[Path, Json], Test]
    hint: Callable[[Path, Json], tuple[Hint, ...]]
    witness: Callable[[Facts, Path, Json], Json]
    phrase: str
    meaning: str
    negated: bool = False

    @property
    def takes_value(self) -> bool:
        return self.accepts is not check_nothing

    def check(self, value: Json) -> None:
        """Raises ConditionError(part="value") when the operator cannot take this value."""
        self.accepts(self.name, value)


# ---- equality ----------------------------------------------------------------------------------------


def _compile_equals(path: Path, value: Json) -> Test:
    return _any_value(path, one_of([value]))


def _compile_in(path: Path, value: Json) -> Test:
    return _any_value(path, one_of(value))


def _any_value(path: Path, holds: Callable[[Json], bool]) -> Test:
    def test(facts: Facts) -> Verdict:
        for value in facts.values(path):  # noqa: SIM110 - a generator would cost more than the test itself
            if holds(value):
                return True
        return False

    return test


def _hint_equals(path: Path, value: Json) -> tuple[Hint, ...]:
    return (OneOf(path, frozenset({value_key(value)})),)


def _hint_in(path: Path, value: Json) -> tuple[Hint, ...]:
    return (OneOf(path, frozenset(map(value_key, value))),)


def _witness_equals(facts: Facts, path: Path, value: Json) -> Json:
    return next(filter(one_of([value]), facts.values(path)), MISSING)


def _witness_in(facts: Facts, path: Path, value: Json) -> Json:
    return next(filter(one_of(value), facts.values(path)), MISSING)


# ---- text --------------------------------------------------------------------------------------------


MANY: Final = 32
"""More texts than these are asked all at once whether there is anything to look for; one by one, the
hundreds of thousands that a call may hold would take too long."""


def _has(text: str, part: str) -> bool:
    return part in text


def _on_texts(name: str, holds: Callable[[str, str], bool], phrase: str, meaning: str) -> Operator:
    def compile_(path: Path, value: Json) -> Test:
        def test(facts: Facts) -> Verdict:
            texts = facts.texts(path)
            if len(texts) > MANY and value.encode() not in facts.joined(path):
                return False
            for text in texts:  # noqa: SIM110 - see _any_value
                if holds(text, value):
                    return True
            return False

        return test

    def hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Literals(path, frozenset({value.casefold()})),)

    def witness(facts: Facts, path: Path, value: Json) -> Json:
        for text in facts.texts(path):
            if holds(text, value):
                start = len(text) - len(value) if holds is str.endswith else text.find(value)
                return excerpt(text, start, start + len(value))
        return MISSING

    return Operator(name, check_text, compile_, hint, witness, phrase, meaning)


def _compile_matches(path: Path, value: Json) -> Test:
    pattern = compile_pattern(value)
    search = pattern.search_bytes

    def test(facts: Facts) -> Verdict:
        verdict: Verdict = False
        texts = facts.encoded(path)
        if len(texts) > MANY:
            # One search over all tells where to look, or that there is nothing to look for.
            at = pattern.search_joined(facts.joined(path))
            if at is None:
                return False
            if at >= 0 and search(facts.text_at(path, at)) is True:
                return True
        for text in texts:
            found = search(text)
            if found is True:
                return True
            if found is not False:
                verdict = found
        return verdict

    return test


def _hint_matches(path: Path, value: Json) -> tuple[Hint, ...]:
    return (Regex(path, compile_pattern(value).required),)


def _witness_matches(facts: Facts, path: Path, value: Json) -> Json:
    pattern = compile_pattern(value)
    for text in facts.texts(path):
        span = pattern.find(text)
        if span is not None:
            return excerpt(text, *span)
    return MISSING


# ---- numbers -----------------------------------------------------------------------------------------


def _on_numbers(name: str, compare: Callable[[Any, Any], bool], above: bool, words: str) -> Operator:
    def compile_(path: Path, value: Json) -> Test:
        def test(facts: Facts) -> Verdict:
            numbers, others = facts.numbers(path)
            for number in numbers:
                if compare(number, value):
                    return True
            return _not_a_number(facts, path) if others else False

        return test

    def hint(path: Path, value: Json) -> tuple[Hint, ...]:
        bound = float(value)
        if bound != value:  # rounded on the way: step outwards, so that the hint stays necessary
            bound = math.nextafter(bound, -math.inf if above else math.inf)
        return (Threshold(path, above, bound),)

    def witness(facts: Facts, path: Path, value: Json) -> Json:
        return next((number for number in facts.numbers(path)[0] if compare(number, value)), MISSING)

    meaning = f"is a number, or the text of one, {words} this; any other value that is there is an error"
    return Operator(name, check_number, compile_, hint, witness, f"{words} %s", meaning)


def _not_a_number(facts: Facts, path: Path) -> Fault:
    for end in facts.ends(path):
        for value in end if isinstance(end, list) else (end,):
            if number_of(value) is None:
                return Fault(f"`{path}` is {show(value)}, which is not a number")
    return Fault(f"`{path}` is not a number")


# ---- presence and negation ---------------------------------------------------------------------------


def _compile_exists(path: Path, value: Json) -> Test:
    return lambda facts: facts.ends(path) != ()


def _hint_exists(path: Path, value: Json) -> tuple[Hint, ...]:
    return (Present(path),)


def _first(facts: Facts, path: Path, value: Json) -> Json:
    return facts.first(path)


def _no_hint(path: Path, value: Json) -> tuple[Hint, ...]:
    return ()


def _not(positive: Operator) -> Operator:
    def compile_(path: Path, value: Json) -> Test:
        test = positive.compile(path, value)

        def negation(facts: Facts) -> Verdict:
            verdict = test(facts)
            if verdict is True:
                return False
            return True if verdict is False else verdict

        return negation

    return Operator(
        f"not_{positive.name}",
        positive.accepts,
        compile_,
        _no_hint,
        _first,
        f"not {positive.phrase}",
        f"`{positive.name}` does not hold",
        negated=True,
    )


# ---- the table ---------------------------------------------------------------------------------------

_EQUALS = Operator(
    "equals",
    check_any,
    _compile_equals,
    _hint_equals,
    _witness_equals,
    "equal to %s",
    "is this value; a text also equals the number, boolean or null that reads the same",
)
_IN = Operator(
    "in", check_list, _compile_in, _hint_in, _witness_in, "one of %s", "equals one of the listed values"
)
_CONTAINS = _on_texts(
    "contains",
    _has,
    "containing %s",
    "has this text in it; of an object or list in any key or value at any depth",
)
_STARTS_WITH = _on_texts("starts_with", str.startswith, "starting with %s", "begins with this text")
_ENDS_WITH = _on_texts("ends_with", str.endswith, "ending with %s", "ends with this text")
_MATCHES = Operator(
    "matches",
    check_pattern,
    _compile_matches,
    _hint_matches,
    _witness_matches,
    "matching %s",
    "holds a match of this RE2 pattern; case-sensitive unless it says `(?i)`",
)
_EXISTS = Operator(
    "exists",
    check_nothing,
    _compile_exists,
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
