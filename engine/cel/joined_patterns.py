"""One search for many patterns: whether any of `text.matches("x") || text.matches("y")` may match.

Decides nothing of what they mean: most texts match none of them, and one look tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.cel.ast import Expr, FunctionCall, Literal, path_of
from engine.cel.control import METER, Run, Scope
from engine.errors import ConditionError
from engine.fields.pattern import compile_pattern
from engine.model import Json

FEWEST: Final = 3
"""Of fewer, each by itself is as soon searched."""

_Search = tuple[FunctionCall, str]
"""A call of `matches`, and its pattern."""


@dataclass(frozen=True, slots=True)
class Joined(Expr):
    """Operands of `||` that all search one text, FALSE wherever `search` is."""

    search: FunctionCall
    terms: tuple[FunctionCall, ...]


def joined(terms: Sequence[Expr]) -> Sequence[Expr]:
    """The operands of `||`, those that search one text together where the first of them stands."""
    groups: dict[tuple[str, ...], list[_Search]] = {}
    for term in terms:
        match term:
            case FunctionCall(function="matches", arguments=(target, Literal(value=str(text)))):
                if (path := path_of(target)) is not None:
                    groups.setdefault(path, []).append((term, text))
    for group in groups.values():
        search = _search(group) if len(group) >= FEWEST else None
        if search is not None:
            together = tuple(term for term, _ in group)
            first = Joined(*_place(search), search, together)
            terms = [first if each is together[0] else each for each in terms if each not in together[1:]]
    return terms


def searched_of(finds: Run, run: Run, *, in_loop: bool) -> Run:
    """What is FALSE wherever a search finds nothing. INVARIANT: it takes no more steps than `run`."""
    if not in_loop:
        return lambda scope: finds(scope) and run(scope)

    def searched(scope: Scope) -> Json:
        meter = scope[METER]
        left = meter[0]
        if not finds(scope):
            return False
        meter[0] = left
        return run(scope)

    return searched


def _search(group: Sequence[_Search]) -> FunctionCall | None:
    """None where one pattern is wrong, which is told of by itself, or cannot be set between others, and where
    they are too large together."""
    term, _ = group[0]
    if any("\\Q" in each for _, each in group):
        return None  # it may quote what stands behind it
    try:
        together = "|".join(f"(?:{compile_pattern(each).required})" for _, each in group)
        text = compile_pattern(together).required  # so that no text is too long for it
    except ConditionError:
        return None
    target, pattern = term.arguments
    return replace(term, arguments=(target, Literal(*_place(pattern), text)))


def _place(node: Expr) -> tuple[int, int, int]:
    return node.start, node.end, node.depth
