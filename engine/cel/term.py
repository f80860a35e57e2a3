"""One term of an expression's top-level `&&`: its verdict on a call, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from engine.cel.ast import Expr, Logic, parts, path_of
from engine.cel.compiler import compile_tree
from engine.cel.control import METER, Run
from engine.cel.fast_paths import STEPS, Constant, metered
from engine.cel.semantics import CelError, Spent, kind
from engine.fields.computed import TOOL
from engine.model import COMPUTED, Fault, Json, Verdict

WORTH: Final = 16
"""Times that a term is asked about a tool before it is compiled for it, which takes as long as some thirty
evaluations (the shipped presets, measured)."""

MOST_REMEMBERED: Final = 4_096
"""Pairs of a term and a tool."""

TOO_MANY: Final = Fault("it takes too many steps on this call; shorten the lists or nest fewer macros")
TOO_MANY_TOGETHER: Final = Fault(
    "the expressions of all policies together take too many steps on this call; shorten the lists or nest"
    " fewer macros"
)


class Term:
    """One term of an expression's top-level `&&`, with the text it has there."""

    __slots__ = ("_run", "_tree", "computed", "metered", "of_tool", "steps", "text")

    def __init__(self, text: str, tree: Expr) -> None:
        self.text = text
        self.computed = tuple(dict.fromkeys(computed_in(tree)))
        """The members it reads of what the service works out, as (root, member)."""
        self.steps = STEPS
        self._run, self.metered = compile_tree(tree)
        self._tree = tree
        self.of_tool = tuple(each for each in self.computed if each[0] == TOOL)
        """Those of them that the declaration of the tool tells."""

    def evaluate(self, document: Mapping[str, Json], purse: list[int] | None = None) -> Verdict:
        """The verdict on a tool call's document; what it takes is taken from the purse. Never raises."""
        run, hungry = self._run, self.metered
        if self.of_tool and (tool := document.get(TOOL)).__class__ is dict:
            run, hungry = self._for_tool(tool)
        if not hungry:
            return _verdict(run, document)
        purse = [self.steps] if purse is None else purse
        steps = min(self.steps, purse[0])
        scope = metered(document, steps)
        verdict = _verdict(run, scope)
        purse[0] -= steps - max(0, scope[METER][0])
        return TOO_MANY_TOGETHER if verdict is TOO_MANY and steps < self.steps else verdict

    def asked_of(self, tool: Mapping[str, Json], *known: str) -> tuple[tuple[str, str], ...]:
        """The members that it still reads where the tool is known, or these members of it: what
        `tool.kind == "shell" && ...` reads is asked of shells alone."""
        members = [member for _, member in self.of_tool if not known or member in known]
        return _asked(self, *[(member, tool.get(member)) for member in members])

    def _for_tool(self, tool: Mapping[str, Json]) -> tuple[Run, bool]:
        """What is left to be asked where the tool is known, once that tool was seen often enough."""
        known = _seen(self, *[tool.get(member) for _, member in self.of_tool])
        if known.made is None:
            known.times += 1
            if known.times < WORTH:
                return self._run, self.metered
            known.made = compile_tree(self._tree, tool)
        return known.made


class _ForTool:
    """How often a term was asked about a tool, and what is left of it there."""

    __slots__ = ("made", "times")

    def __init__(self) -> None:
        self.times = 0
        self.made: tuple[Run, bool] | None = None


@lru_cache(maxsize=MOST_REMEMBERED)
def _seen(term: Term, *tool: Json) -> _ForTool:
    return _ForTool()


@lru_cache(maxsize=MOST_REMEMBERED)
def _asked(term: Term, *tool: tuple[str, Json]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(computed_in(term._tree, dict(tool)))) if tool else term.computed


def _verdict(run: Run, scope: Mapping[str, Json]) -> Verdict:
    try:
        value = run(scope)
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


def computed_in(node: Expr, tool: Mapping[str, Json] | None = None) -> Iterator[tuple[str, str]]:
    """The members that a tree reads of what the service works out, as (root, member); of a `tool` that is
    known without what it decides by itself."""
    left = [node]
    while left:
        node = left.pop()
        if tool and isinstance(node, Logic) and isinstance(compile_tree(node, tool)[0], Constant):
            continue
        path = path_of(node)
        if path is None:
            left += reversed([*parts(node)])
        elif path[0] in COMPUTED and len(path) > 1:
            yield path[0], path[1]
