"""Closures that need no tree: constants, reading a path of the scope, membership in a constant list; meters.

Decides how the hottest conditions run: `inputPayload.a` is two look-ups, `toolName in [...]` one of a set.
"""

from __future__ import annotations

from typing import Any, Final

from engine.cel.ast import path_text
from engine.cel.control import METER, Run, Scope
from engine.cel.semantics import CelError, Spent
from engine.model import Json

STEPS: Final = 250_000
"""What an expression may spend, all its terms together, and all those of one call: some 50 ms at worst."""


def metered(scope: Scope, steps: int = STEPS) -> dict[str, Any]:
    """A scope of its own, with a meter."""
    return {**scope, METER: [steps]}


class Constant:
    """A closure that is known to answer the same always."""

    __slots__ = ("value",)

    def __init__(self, value: Json) -> None:
        self.value = value

    def __call__(self, scope: Scope) -> Json:
        return self.value


def folded(run: Run, *operands: Run) -> Run:
    """The closure, or its value when all operands are constant. What is an ERROR stays for evaluation."""
    for operand in operands:
        if operand.__class__ is not Constant:
            return run
    try:
        return Constant(run(metered({})))
    except (CelError, Spent):
        return run


def path_reader(path: tuple[str, ...]) -> Run:
    """Reads a name and its members straight from the scope."""
    name, *keys = path
    where = path_text(path)

    def lost(error: Exception) -> CelError:
        if isinstance(error, KeyError):
            return CelError(f"`{where}` is missing")
        return CelError(f"`{where}` is missing, what it should be in is no object")

    if not keys:

        def whole(scope: Scope) -> Json:
            try:
                return scope[name]
            except KeyError as error:
                raise lost(error) from None

        return whole
    if len(keys) == 1:
        key = keys[0]

        def member(scope: Scope) -> Json:
            try:
                return scope[name][key]
            except (KeyError, TypeError) as error:
                raise lost(error) from None

        return member

    def deeper(scope: Scope) -> Json:
        try:
            value = scope[name]
            for key in keys:
                value = value[key]
            return value
        except (KeyError, TypeError) as error:
            raise lost(error) from None

    return deeper


def among_constants(left: Run, scalars: list[Json]) -> Run:
    """`left in [...]` of constants. A boolean is no number here, though Python's sets think so."""
    booleans = [each for each in scalars if each.__class__ is bool]
    others = frozenset(each for each in scalars if each.__class__ is not bool)

    def among(scope: Scope) -> bool:
        value = left(scope)
        if value.__class__ is bool:
            return value in booleans
        return value.__class__ not in (list, dict) and value in others

    return folded(among, left)
