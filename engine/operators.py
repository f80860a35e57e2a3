"""The table of operators: for each its value check, its test of a call, its promise to the index, its words.

`not_x` is made from `x` by negation of the whole, so it is TRUE where `x` finds nothing; a fault stays a
fault. Where a path leads to several values (arrays), one that satisfies is enough for the positive operator.
Knows nothing of policies, expressions or the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final

from engine.errors import ConditionError
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
    number_of,
    text_of,
    value_key,
    whole,
)
from engine.model import Fault, Json, Verdict
from engine.patterns import compile_pattern, shorten

MAX_DEPTH: Final = 64
MAX_CHOICES: Final = 10_000

Test = Callable[[Facts], Verdict]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `check` refuses a value of the wrong kind; `compile` and `hint` want a checked one.

    `witness` gives the value that speaks for TRUE (for `not_x`: the value that was seen), MISSING if none.
    `phrase` completes "`field` is <value>, ..." for people; `%s` in it is the condition's own value.
    """

    name: str
    takes_value: bool
    check: Callable[[Json], None]
    compile: Callable[[Path, Json], Test]
    hint: Callable[[Path, Json], tuple[Hint, ...]]
    witness: Callable[[Facts, Path, Json], Json]
    phrase: str
    meaning: str


# ---- equality ----------------------------------------------------------------------------------------


def json_equal(expected: Json, actual: Json) -> bool:
    """JSON equality: numbers by value, true and false equal nothing but themselves, objects in any order.

    Recurses as deep as `expected`, whose depth was checked at load.
    """
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)):
        return isinstance(actual, (int, float)) and expected == actual
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(expected) == len(actual)
            and all(map(json_equal, expected, actual))
        )
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and len(expected) == len(actual)
            and all(key in actual and json_equal(value, actual[key]) for key, value in expected.items())
        )
    return type(expected) is type(actual) and bool(expected == actual)


def _membership(choices: Iterable[Json]) -> Callable[[Json], bool]:
    """Whether a value equals one of `choices`, where a text also equals the JSON text of another scalar."""
    strings: set[str] = set()
    texts: set[str] = set()
    numbers: set[int | float] = set()
    others: list[Json] = []
    for choice in choices:
        if isinstance(choice, str):
            strings.add(choice)
        elif isinstance(choice, (list, dict)):
            others.append(choice)
        else:
            texts.add(text_of(choice))
            if isinstance(choice, (int, float)) and not isinstance(choice, bool):
                numbers.add(choice)
            else:
                others.append(choice)
    texts |= strings

    def holds(value: Json) -> bool:
        if isinstance(value, str):
            return value in texts
        if isinstance(value, (list, dict)):
            return any(json_equal(choice, value) for choice in others)
        if isinstance(value, bool) or value is None:
            return text_of(value) in strings or any(choice is value for choice in others)
        return value in numbers or (bool(strings) and text_of(value) in strings)

    return holds


def _any_value(path: Path, holds: Callable[[Json], bool]) -> Test:
    def test(facts: Facts) -> Verdict:
        for value in facts.values(path):  # noqa: SIM110 - a generator would cost more than the test itself
            if holds(value):
                return True
        return False

    return test


def _witness_value(facts: Facts, path: Path, holds: Callable[[Json], bool]) -> Json:
    return next((value for value in facts.values(path) if holds(value)), MISSING)


def _compile_equals(path: Path, value: Json) -> Test:
    return _any_value(path, _membership([value]))


def _compile_in(path: Path, value: Json) -> Test:
    return _any_value(path, _membership(value))


# ---- text --------------------------------------------------------------------------------------------


def _contains(text: str, part: str) -> bool:
    return part in text


def _text_test(holds: Callable[[str, str], bool]) -> Callable[[Path, Json], Test]:
    def compile_(path: Path, value: Json) -> Test:
        def test(facts: Facts) -> Verdict:
            for text in facts.texts(path):  # noqa: SIM110 - see _any_value
                if holds(text, value):
                    return True
            return False

        return test

    return compile_


def _text_witness(holds: Callable[[str, str], bool]) -> Callable[[Facts, Path, Json], Json]:
    def witness(facts: Facts, path: Path, value: Json) -> Json:
        for text in facts.texts(path):
            if holds(text, value):
                at = text.find(value) if holds is _contains else 0 if holds is str.startswith else len(text)
                return excerpt(text, at, at + len(value))
        return MISSING

    return witness


def _compile_matches(path: Path, value: Json) -> Test:
    search = compile_pattern(value).search_bytes

    def test(facts: Facts) -> Verdict:
        verdict: Verdict = False
        for text in facts.encoded(path):
            found = search(text)
            if found is True:
                return True
            if found is not False:
                verdict = found
        return verdict

    return test


def _match_witness(facts: Facts, path: Path, value: Json) -> Json:
    pattern = compile_pattern(value)
    for text in facts.texts(path):
        span = pattern.find(text)
        if span is not None:
            return excerpt(text, *span)
    return MISSING


def excerpt(text: str, start: int, end: int, limit: int = 80) -> str:
    """At most `limit` characters of `text` around what was found from `start` to `end`."""
    if len(text) <= limit:
        return text
    first = max(0, min(start - (limit - min(end - start, limit)) // 2, len(text) - limit + 2))
    cut = text[first : first + limit - 2]
    return ("…" if first else "") + cut + ("…" if first + limit - 2 < len(text) else "")


# ---- numbers -----------------------------------------------------------------------------------------


def _comparison(
    compare: Callable[[Any, Any], bool], above: bool
) -> tuple[
    Callable[[Path, Json], Test],
    Callable[[Path, Json], tuple[Hint, ...]],
    Callable[[Facts, Path, Json], Json],
]:
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

    return compile_, hint, witness


def _not_a_number(facts: Facts, path: Path) -> Fault:
    for end in facts.ends(path):
        for value in end if isinstance(end, list) else (end,):
            if number_of(value) is None:
                return Fault(f"`{path}` is {show(value)}, which is not a number")
    return Fault(f"`{path}` is not a number")


# ---- presence and negation ---------------------------------------------------------------------------


def _compile_exists(path: Path, value: Json) -> Test:
    return lambda facts: facts.ends(path) != ()


def _seen(facts: Facts, path: Path, value: Json) -> Json:
    ends = facts.ends(path)
    return ends[0] if ends else MISSING


def _no_hint(path: Path, value: Json) -> tuple[Hint, ...]:
    return ()


def _negated(positive: Operator, name: str, phrase: str, meaning: str) -> Operator:
    def compile_(path: Path, value: Json) -> Test:
        test = positive.compile(path, value)

        def negation(facts: Facts) -> Verdict:
            verdict = test(facts)
            if verdict is True:
                return False
            return True if verdict is False else verdict

        return negation

    return Operator(name, positive.takes_value, positive.check, compile_, _no_hint, _seen, phrase, meaning)


# ---- checks of `value` -------------------------------------------------------------------------------


def _refuse(message: str) -> ConditionError:
    return ConditionError(message, part="value")


def _check_json(name: str, value: Json) -> None:
    stack: list[tuple[Json, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _refuse(
                f"the value of `{name}` is nested deeper than {MAX_DEPTH} levels; compare with less"
            )
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            _check_finite(name, item)
        elif isinstance(item, list):
            stack.extend((member, depth + 1) for member in item)
        elif isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise _refuse(f"the value of `{name}` has a key that is not a text; quote it")
            stack.extend((member, depth + 1) for member in item.values())
        elif item is not None and not isinstance(item, (str, bool)):
            raise _refuse(
                f"the value of `{name}` is not JSON; write a text, number, true, false, null, list or object"
            )


def _check_finite(name: str, value: int | float) -> None:
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise _refuse(f"operator `{name}` cannot take this number; write one between -1e308 and 1e308")


def _check_equals(name: str) -> Callable[[Json], None]:
    return lambda value: _check_json(name, value)


def _check_in(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if not isinstance(value, list):
            raise _refuse(f"operator `{name}` needs a list of values; write `value: [...]`")
        if not value:
            raise _refuse(f"operator `{name}` needs at least one value in its list; write `value: [...]`")
        if len(value) > MAX_CHOICES:
            raise _refuse(f"operator `{name}` takes at most {MAX_CHOICES:,} values; split the policy")
        _check_json(name, value)

    return check


def _check_text(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if not isinstance(value, str):
            shown = f'"{show(value)}"' if isinstance(value, (int, float)) else '"..."'
            raise _refuse(f"operator `{name}` needs a text; write `value: {shown}`")
        if not value:
            raise _refuse(
                f"operator `{name}` with an empty text holds for every text; write some text, or use `exists`"
            )
        if whole(value) != value:
            raise _refuse("the text has half of a character (a lone surrogate); write the whole character")

    return check


def _check_pattern(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if not isinstance(value, str):
            raise _refuse(f"operator `{name}` needs a pattern, which is a text; write `value: '...'`")
        if not value:
            raise _refuse(
                f"operator `{name}` with an empty pattern holds for every text; write a pattern, or use `exists`"
            )
        compile_pattern(value)

    return check


def _check_number(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            number = number_of(value)
            shown = show(number) if number is not None else "10"
            raise _refuse(
                f"operator `{name}` needs a number without quotes; write for example `value: {shown}`"
            )
        _check_finite(name, value)

    return check


def _check_nothing(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if value is not None:
            raise _refuse(f"operator `{name}` takes no value; leave `value` out")

    return check


# ---- words -------------------------------------------------------------------------------------------


def show(value: Json) -> str:
    """A value for a reviewer's eyes: short, on one line, never a whole payload."""
    if isinstance(value, str):
        return '"' + shorten(value).replace('"', '\\"') + '"'
    if value is MISSING:
        return "missing"
    if isinstance(value, dict):
        return f"an object with {len(value):,} {'key' if len(value) == 1 else 'keys'}"
    if isinstance(value, list):
        if len(value) <= 5 and not any(isinstance(item, (list, dict)) for item in value):
            listed = "[" + ", ".join(map(show, value)) + "]"
            if len(listed) <= 80:
                return listed
        return f"a list of {len(value):,} {'value' if len(value) == 1 else 'values'}"
    return shorten(text_of(value))


# ---- the table ---------------------------------------------------------------------------------------


def _table() -> Mapping[str, Operator]:
    def value_hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (OneOf(path, frozenset({value_key(value)})),)

    def choice_hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (OneOf(path, frozenset(map(value_key, value))),)

    def text_hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Literals(path, frozenset({value.casefold()})),)

    def pattern_hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Regex(path, compile_pattern(value).required),)

    def presence_hint(path: Path, value: Json) -> tuple[Hint, ...]:
        return (Present(path),)

    def equals_witness(facts: Facts, path: Path, value: Json) -> Json:
        return _witness_value(facts, path, _membership([value]))

    def in_witness(facts: Facts, path: Path, value: Json) -> Json:
        return _witness_value(facts, path, _membership(value))

    table: dict[str, Operator] = {}

    def add(*operators: Operator) -> None:
        table.update((operator.name, operator) for operator in operators)

    equals = Operator(
        "equals", True, _check_equals("equals"), _compile_equals, value_hint, equals_witness,
        "equal to %s", "is this value; a text also equals the number or boolean that reads the same",
    )  # fmt: skip
    among = Operator(
        "in", True, _check_in("in"), _compile_in, choice_hint, in_witness,
        "one of %s", "equals one of the listed values",
    )  # fmt: skip
    contains = Operator(
        "contains", True, _check_text("contains"), _text_test(_contains), text_hint,
        _text_witness(_contains),
        "containing %s", "has this text in it; in an object or list anywhere, keys included",
    )  # fmt: skip
    matches = Operator(
        "matches", True, _check_pattern("matches"), _compile_matches, pattern_hint, _match_witness,
        "matching %s", "holds a match of this RE2 pattern; case-sensitive unless `(?i)`",
    )  # fmt: skip
    exists = Operator(
        "exists", False, _check_nothing("exists"), _compile_exists, presence_hint, _seen,
        "present", "the path leads to a value, null included",
    )  # fmt: skip
    add(
        equals,
        _renamed(_negated(equals, "not_equals", "not equal to %s", "`equals` does not hold"), _check_equals),
        among,
        _renamed(_negated(among, "not_in", "not one of %s", "`in` does not hold"), _check_in),
        contains,
        _renamed(
            _negated(contains, "not_contains", "not containing %s", "`contains` does not hold"), _check_text
        ),
    )
    for name, holds, phrase, meaning in (
        ("starts_with", str.startswith, "starting with %s", "begins with this text"),
        ("ends_with", str.endswith, "ending with %s", "ends with this text"),
    ):
        add(
            Operator(
                name, True, _check_text(name), _text_test(holds), text_hint, _text_witness(holds),
                phrase, meaning,
            )
        )  # fmt: skip
    add(
        matches,
        _renamed(
            _negated(matches, "not_matches", "not matching %s", "`matches` does not hold"), _check_pattern
        ),
    )
    for name, compare, above, words in (
        ("greater_than", gt, True, "greater than"),
        ("greater_than_or_equal", ge, True, "greater than or equal to"),
        ("less_than", lt, False, "less than"),
        ("less_than_or_equal", le, False, "less than or equal to"),
    ):
        compile_, hint, witness = _comparison(compare, above)
        meaning = f"is a number, or the text of one, {words} this; any other value cannot be evaluated"
        add(Operator(name, True, _check_number(name), compile_, hint, witness, f"{words} %s", meaning))
    add(exists, _renamed(_negated(exists, "not_exists", "absent", "`exists` does not hold"), _check_nothing))
    return table


def _renamed(operator: Operator, check: Callable[[str], Callable[[Json], None]]) -> Operator:
    """A negated operator whose refusals name itself."""
    return Operator(
        operator.name, operator.takes_value, check(operator.name), operator.compile, operator.hint,
        operator.witness, operator.phrase, operator.meaning,
    )  # fmt: skip


OPERATORS: Final[Mapping[str, Operator]] = _table()
"""Every operator of the field form, in the order in which people read about them."""
