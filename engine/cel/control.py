"""Operators that decide whether and how often their operands are evaluated: `&& || ! ?:` and the macros.

Decides how an ERROR travels. `&&`, `||`, `all` and `exists` absorb it, whatever the order of the operands:
FALSE && ERROR is FALSE, TRUE || ERROR is TRUE. Everything else passes it on. It knows nothing of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from engine.cel.semantics import CelError, kind, spend
from engine.model import Json

Scope = Any
"""A mapping from name to value. (Not typed further: it is read in every closure of the hot path.)"""

Run = Callable[[Scope], Any]

METER: Final = "#steps"
"""Where a scope keeps its meter; no name can be that."""


def negation_of(operand: Run) -> Run:
    def negation(scope: Scope) -> bool:
        value: Json = operand(scope)
        if value is True:
            return False
        if value is False:
            return True
        raise _no_truth("!", value)

    return negation


def logic_of(sign: str, runs: list[Run]) -> Run:
    """`&&` and `||`: one operand decides, wherever it stands; without it any ERROR is the result."""
    undecided = sign == "&&"

    def logic(scope: Scope) -> bool:
        fault: CelError | None = None
        for run in runs:
            try:
                value: Json = run(scope)
            except CelError as error:
                fault = error
                continue
            if value.__class__ is not bool:
                fault = _no_truth(sign, value)
            elif value is not undecided:
                return not undecided
        if fault is not None:
            raise fault
        return undecided

    return logic


def choice_of(test: Run, yes: Run, no: Run) -> Run:
    def choice(scope: Scope) -> Json:
        value = test(scope)
        if value is True:
            return yes(scope)
        if value is False:
            return no(scope)
        raise _no_truth("?", value)

    return choice


def _no_truth(sign: str, value: Json) -> CelError:
    return CelError(f"`{sign}` needs true or false, not {kind(value)}")


# ---- macros ------------------------------------------------------------------------------------------


class Loop:
    """The elements of a list, or the keys of an object, each put into the scope under the variable's name."""

    __slots__ = ("cost", "macro", "over", "variable")

    def __init__(self, macro: str, over: Run, variable: str, cost: int) -> None:
        self.macro, self.over, self.variable, self.cost = macro, over, variable, cost

    def turns(self, scope: Scope) -> Iterator[Json]:
        items = self.over(scope)
        if items.__class__ is not list and items.__class__ is not dict:
            raise CelError(f"`{self.macro}` needs a list or an object, not {kind(items)}")
        meter, variable, cost = scope[METER], self.variable, self.cost
        for each in items:
            spend(meter, cost)
            scope[variable] = each
            yield each


def always(scope: Scope) -> bool:
    return True


def _quantified(loop: Loop, test: Run, body: Run) -> Run:
    """`all` is one long `&&`, `exists` one long `||`."""
    undecided = loop.macro == "all"

    def quantified(scope: Scope) -> bool:
        fault: CelError | None = None
        for _ in loop.turns(scope):
            try:
                value = body(scope)
            except CelError as error:
                fault = error
                continue
            if value.__class__ is not bool:
                fault = _no_truth(loop.macro, value)
            elif value is not undecided:
                return not undecided
        if fault is not None:
            raise fault
        return undecided

    return quantified


def _holds(loop: Loop, test: Run, scope: Scope) -> bool:
    value = test(scope)
    if value.__class__ is bool:
        return bool(value)
    raise _no_truth(loop.macro, value)


def _exists_one(loop: Loop, test: Run, body: Run) -> Run:
    return lambda scope: sum(_holds(loop, body, scope) for _ in loop.turns(scope)) == 1


def _filter(loop: Loop, test: Run, body: Run) -> Run:
    return lambda scope: [each for each in loop.turns(scope) if _holds(loop, body, scope)]


def _map(loop: Loop, test: Run, body: Run) -> Run:
    return lambda scope: [body(scope) for _ in loop.turns(scope) if _holds(loop, test, scope)]


MACROS: Final[dict[str, Callable[[Loop, Run, Run], Run]]] = {
    "all": _quantified,
    "exists": _quantified,
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
