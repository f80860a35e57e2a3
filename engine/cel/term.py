"""One term of an expression's top-level `&&`: its verdict on a call, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.cel.ast import Expr, parts, path_of
from engine.cel.compiler import compile_tree
from engine.cel.control import METER
from engine.cel.fast_paths import STEPS, metered
from engine.cel.semantics import CelError, Spent, kind
from engine.model import COMPUTED, Fault, Json, Verdict

TOO_MANY: Final = Fault("it takes too many steps on this call; shorten the lists or nest fewer macros")
TOO_MANY_TOGETHER: Final = Fault(
    "the expressions of all policies together take too many steps on this call; shorten the lists or nest"
    " fewer macros"
)


class Term:
    """One term of an expression's top-level `&&`, with the text it has there."""

    __slots__ = ("_run", "computed", "metered", "steps", "text")

    def __init__(self, text: str, tree: Expr) -> None:
        self.text = text
        self.computed = tuple(dict.fromkeys(computed_in(tree)))
        """The members it reads of what the service works out, as (root, member)."""
        self.steps = STEPS
        self._run, self.metered = compile_tree(tree)

    def evaluate(self, document: Mapping[str, Json], purse: list[int] | None = None) -> Verdict:
        """The verdict on a tool call's document; what it takes is taken from the purse. Never raises."""
        if not self.metered:
            return self._verdict(document)
        purse = [self.steps] if purse is None else purse
        steps = min(self.steps, purse[0])
        scope = metered(document, steps)
        verdict = self._verdict(scope)
        purse[0] -= steps - max(0, scope[METER][0])
        return TOO_MANY_TOGETHER if verdict is TOO_MANY and steps < self.steps else verdict

    def _verdict(self, scope: Mapping[str, Json]) -> Verdict:
        try:
            value = self._run(scope)
        except CelError as error:
            return Fault(str(error))
        except Spent:
            return TOO_MANY
        except RecursionError:
            return Fault("it is nested too deeply for the evaluation at hand")
        if value is True:
            return True
        if value is False:
            return False
        return Fault(f"it is {kind(value)}, neither true nor false")


def computed_in(node: Expr) -> Iterator[tuple[str, str]]:
    """The members that a tree reads of what the service works out, as (root, member)."""
    path = path_of(node)
    if path is not None:
        if path[0] in COMPUTED and len(path) > 1:
            yield path[0], path[1]
        return
    for part in parts(node):
        yield from computed_in(part)
