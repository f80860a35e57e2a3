"""What the operators of expressions mean, on values alone.

Decides equality, order, arithmetic, size and index: CEL's, with JSON's values as Python has them. Whole
numbers are CEL's int, other numbers its double. It knows nothing of trees or scopes.

What CEL calls an ERROR is a `CelError` here. Work that grows with a value is paid in steps from a meter, a
list of one number, before it is done; when nothing is left, the work is not done and the evaluation is
`Spent`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from engine.model import Json

MAX_RESULT: Final = 1 << 20
"""Characters or elements of what `+` makes."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
NUMBERS: Final = frozenset({int, float})
ORDERED: Final = frozenset({int, float, str, bool})
_ABSENT: Final = object()


class CelError(Exception):
    """CEL's ERROR: the value cannot be computed."""


class Spent(Exception):  # not a CelError: nothing absorbs it
    """The evaluation took too many steps."""


def kind(value: Json) -> str:
    """What sort of value it is, for people. Values themselves are never shown: they may be huge."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def spend(meter: list[int], steps: int) -> None:
    meter[0] -= steps
    if meter[0] < 0:
        raise Spent


def weight(value: Json) -> int:
    """Steps that it costs to look at a whole text, or to copy a list."""
    return len(value) >> 6 if value.__class__ in (str, list) else 0


def equal(a: Json, b: Json, meter: list[int]) -> bool:
    """Equality across all types, never an ERROR: 1 == 1.0, true != 1, NaN != NaN."""
    rest = [(a, b)]
    while rest:
        a, b = rest.pop()
        if a.__class__ is list and b.__class__ is list:
            if len(a) != len(b):
                return False
            spend(meter, len(a) + 1)
            rest.extend(zip(a, b, strict=True))
        elif a.__class__ is dict and b.__class__ is dict:
            if len(a) != len(b):
                return False
            spend(meter, len(a) + 1)
            for key, value in a.items():
                other = b.get(key, _ABSENT)
                if other is _ABSENT:
                    return False
                rest.append((value, other))
        elif a.__class__ is bool or b.__class__ is bool:
            if a is not b:
                return False
        else:
            spend(meter, weight(a))
            if a != b:
                return False
    return True


def orderable(a: Json, b: Json) -> bool:
    one, other = a.__class__, b.__class__
    return (one is other and one in ORDERED) or (one in NUMBERS and other in NUMBERS)


def _in_range(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError("a whole number is beyond 64 bits")


def _numbers(a: Json, b: Json, sign: str) -> bool:
    """True when both are whole, False when both are numbers; else an ERROR."""
    one, other = a.__class__, b.__class__
    if one is int:
        _in_range(a)
    if other is int:
        _in_range(b)
    if one is int and other is int:
        return True
    if one in NUMBERS and other in NUMBERS:
        return False
    raise CelError(f"`{sign}` cannot be used on {kind(a)} and {kind(b)}")


def add(a: Any, b: Any) -> Json:
    if a.__class__ is b.__class__ and a.__class__ in (str, list):
        if len(a) + len(b) > MAX_RESULT:
            raise CelError(f"what `+` makes is longer than {MAX_RESULT}")
        return a + b
    return _in_range(a + b) if _numbers(a, b, "+") else a + b


def subtract(a: Json, b: Json) -> Json:
    return _in_range(a - b) if _numbers(a, b, "-") else a - b


def multiply(a: Json, b: Json) -> Json:
    return _in_range(a * b) if _numbers(a, b, "*") else a * b


def divide(a: Json, b: Json) -> Json:
    if _numbers(a, b, "/"):
        if b == 0:
            raise CelError("a whole number is divided by zero")
        quotient = abs(a) // abs(b)  # towards zero, unlike `//`
        return _in_range(quotient if (a < 0) == (b < 0) else -quotient)
    a, b = float(a), float(b)
    if b:
        return a / b
    # IEEE 754, where Python raises: the sign of zero counts.
    return a * math.copysign(math.inf, b)


def modulo(a: Json, b: Json) -> Json:
    if not _numbers(a, b, "%"):
        raise CelError("`%` takes whole numbers")
    if b == 0:
        raise CelError("a whole number is divided by zero")
    if b == -1:
        _in_range(-a)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def negate(a: Json) -> Json:
    if a.__class__ is int:
        _in_range(a)
        return _in_range(-a)
    if a.__class__ is float:
        return -a
    raise CelError(f"`-` cannot be used on {kind(a)}")


def size(value: Json) -> int:
    if value.__class__ in (str, list, dict):
        return len(value)
    raise CelError(f"`size` cannot be asked of {kind(value)}")


def item(value: Json, index: Json) -> Json:
    """`value[index]`."""
    if value.__class__ is list:
        if index.__class__ is float and index.is_integer():
            index = int(index)
        if index.__class__ is not int:
            raise CelError(f"{kind(index)} is no index of a list")
        if 0 <= index < len(value):
            return value[index]
        raise CelError("the list is too short for the index")
    if value.__class__ is dict:
        if index.__class__ is str and index in value:
            return value[index]
        raise CelError("the object has no such key")
    raise CelError(f"{kind(value)} has no members")


ARITHMETIC: Final[dict[str, Callable[[Json, Json], Json]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
}
ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXT: Final[dict[str, Callable[[str, str], bool]]] = {
    "contains": lambda text, piece: piece in text,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
