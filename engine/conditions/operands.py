"""The `value` of a condition: which are allowed, when two JSON values are equal, how a value is shown.

Knows nothing of paths, calls or what the operators do; only what each wants for a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from engine.derived.facts import MISSING
from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern
from engine.fields.scalars import number_of, shorten, text_of, texts_of, whole
from engine.model import Json

MAX_DEPTH: Final = 64
MAX_CHOICES: Final = 10_000


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


def only_texts(values: Iterable[Json]) -> bool:
    return set(map(type, values)) == {str}


class Choices:
    """Values that another may equal. When exactly one of the two is a text, it is compared with the texts of
    the other, if that is a number, boolean or null."""

    __slots__ = ("_numbers", "_others", "_strings", "_texts")

    def __init__(self, choices: Iterable[Json]) -> None:
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
        self._strings = _compact(strings)
        self._texts = _compact(strings | texts) if texts else self._strings
        self._numbers = _compact(numbers)
        self._others = tuple(others)

    def hold(self, value: Json) -> bool:
        """Whether the value equals one of them."""
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, (list, dict)):
            return any(json_equal(choice, value) for choice in self._others)
        if isinstance(value, bool) or value is None:
            return text_of(value) in self._strings or any(choice is value for choice in self._others)
        if value in self._numbers:
            return True
        return bool(self._strings) and any(text in self._strings for text in texts_of(value))


def _compact(values: set[Any]) -> Collection[Any]:
    """The same values; a few take less room in a tuple."""
    return tuple(values) if len(values) <= 4 else frozenset(values)


# ---- what each operator takes ------------------------------------------------------------------------

Check = Callable[[str, Json], None]
"""Refuses a value of the wrong kind for the operator of that name: raises ConditionError(part="value")."""


def check_any(name: str, value: Json) -> None:
    """Any JSON value that is finite and not too deep."""
    if value.__class__ is str:
        return
    stack: list[tuple[Json, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if item.__class__ is str and depth <= MAX_DEPTH:
            continue
        if depth > MAX_DEPTH:
            raise _refuse(
                f"the value of `{name}` is nested deeper than {MAX_DEPTH} levels; compare with less"
            )
        if isinstance(item, list):
            stack.extend((member, depth + 1) for member in item)
        elif isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise _refuse(f"the value of `{name}` has a key that is not a text; put the key into quotes")
            stack.extend((member, depth + 1) for member in item.values())
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            _check_finite(name, item)
        elif item is not None and not isinstance(item, (str, bool)):
            raise _refuse(f"the value of `{name}` is no JSON value; put it into quotes")


def check_list(name: str, value: Json) -> None:
    if not isinstance(value, list):
        raise _refuse(f"operator `{name}` needs a list of values; write `value: [...]`")
    if not value:
        raise _refuse(f"operator `{name}` needs at least one value in its list; write `value: [...]`")
    if len(value) > MAX_CHOICES:
        raise _refuse(f"operator `{name}` takes at most {MAX_CHOICES:,} values; make several policies of it")
    if not only_texts(value):
        check_any(name, value)


def check_text(name: str, value: Json) -> None:
    if not isinstance(value, str):
        shown = text_of(value) if isinstance(value, (int, float)) else "..."
        raise _refuse(f'operator `{name}` needs a text; write `value: "{shown}"`')
    if not value:
        raise _refuse(f"operator `{name}` with an empty text holds for every text; write what to look for")
    if whole(value) != value:
        raise _refuse("the text has half of a character (a lone surrogate); write the whole character")


def check_pattern(name: str, value: Json) -> None:
    if not isinstance(value, str):
        raise _refuse(f"operator `{name}` needs a pattern, which is a text; write `value: '...'`")
    if not value:
        raise _refuse(f"operator `{name}` with an empty pattern holds for every text; write what to look for")
    compile_pattern(value)


def check_number(name: str, value: Json) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        number = number_of(value)
        shown = "10" if number is None else shorten(text_of(number))
        raise _refuse(f"operator `{name}` needs a number without quotes; write for example `value: {shown}`")
    _check_finite(name, value)


def check_nothing(name: str, value: Json) -> None:
    if value is not None:
        raise _refuse(f"operator `{name}` takes no value; leave `value` out")


def _check_finite(name: str, value: int | float) -> None:
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise _refuse(f"operator `{name}` cannot take this number; write one between -1e308 and 1e308")


def _refuse(message: str) -> ConditionError:
    return ConditionError(message, part="value")


# ---- for a reviewer's eyes ---------------------------------------------------------------------------

_QUOTED: Final = re.compile(r'(?<!\\)(\\*+)("|\Z)')
"""A quote or the end, and the backslashes before it, which are doubled so that no text seems to end early."""


def _escaped(found: re.Match[str]) -> str:
    return found[1] * 2 + ('\\"' if found[2] else "")


def show(value: Json) -> str:
    """A value on one line, about 80 characters at most, never a whole payload."""
    if isinstance(value, str):
        text = shorten(value)
        if '"' in text or text.endswith("\\"):
            text = _QUOTED.sub(_escaped, text)
        return f'"{text}"'
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


def excerpt(text: str, start: int, end: int, limit: int = 80) -> str:
    """At most `limit` characters of `text` around what was found from `start` to `end`."""
    if len(text) <= limit:
        return text
    first = max(0, min(start - (limit - min(end - start, limit)) // 2, len(text) - limit + 2))
    cut = text[first : first + limit - 2]
    return ("…" if first else "") + cut + ("…" if first + limit - 2 < len(text) else "")
