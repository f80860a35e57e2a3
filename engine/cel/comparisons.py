"""Closures of the comparisons of CEL: `==`, `in`, and the order of two values.

What is compared with a constant is compared in the cheapest way; the rest by `semantics`.
"""

from __future__ import annotations

from engine.cel.control import METER, Run, Scope
from engine.cel.fast_paths import Constant, among_constants
from engine.cel.semantics import NUMBERS, ORDER, ORDERED, CelError, equal, kind, orderable, spend, weight
from engine.model import Json


def equality(left: Run, right: Run) -> tuple[Run, bool]:
    """`==` of two closures, and whether it needs a meter."""
    if isinstance(left, Constant):
        left, right = right, left
    if isinstance(right, Constant):
        constant = right.value
        if constant is None or constant.__class__ is bool:
            return (lambda scope: left(scope) is constant), False
        if constant.__class__ is str:
            return (lambda scope: left(scope) == constant), False
        if constant.__class__ in NUMBERS:

            def same_number(scope: Scope) -> bool:
                value = left(scope)
                return value == constant and value.__class__ is not bool

            return same_number, False
    return (lambda scope: equal(left(scope), right(scope), scope[METER])), True


def membership(left: Run, right: Run) -> tuple[Run, bool]:
    """`in` of two closures, and whether it needs a meter."""
    if isinstance(right, Constant) and right.value.__class__ is list:
        scalars = [each for each in right.value if each.__class__ not in (list, dict)]
        if len(scalars) == len(right.value):
            return among_constants(left, scalars), False

    def within(scope: Scope) -> bool:
        value, whole = left(scope), right(scope)
        if whole.__class__ is list:
            meter = scope[METER]
            spend(meter, len(whole))
            return any(equal(value, each, meter) for each in whole)
        if whole.__class__ is dict:
            if value.__class__ is str:
                return value in whole
            if value.__class__ in ORDERED:
                return False  # CEL has such keys, JSON has not
            raise CelError(f"{kind(value)} is no key of an object")
        raise CelError(f"`in` needs a list or an object, not {kind(whole)}")

    return within, True


def order(sign: str, left: Run, right: Run, *, paying: bool) -> Run:
    """`<`, `<=`, `>` or `>=` of two closures; `paying`: in a loop, for the text that it looks at."""
    compare = ORDER[sign]

    def wrong(a: Json, b: Json) -> CelError:
        return CelError(f"`{sign}` cannot compare {kind(a)} with {kind(b)}")

    if isinstance(right, Constant) and right.value.__class__ in NUMBERS:
        bound = right.value

        def against(scope: Scope) -> bool:
            value = left(scope)
            if value.__class__ in NUMBERS:
                return compare(value, bound)
            raise wrong(value, bound)

        return against

    def ordered(scope: Scope) -> bool:
        a, b = left(scope), right(scope)
        if paying:
            spend(scope[METER], weight(a))
        if orderable(a, b):
            return compare(a, b)
        raise wrong(a, b)

    return ordered
