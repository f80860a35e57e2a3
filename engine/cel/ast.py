"""The nodes of an expression's tree, as frozen values, and how to walk them.

Decides what an expression consists of. It knows nothing of texts, of names that exist, or of evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from engine.fields.paths import canonical
from engine.model import Json


@dataclass(frozen=True, slots=True)
class Expr:
    """A part of an expression, at `start` to `end` of its text."""

    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    value: Json


@dataclass(frozen=True, slots=True)
class Name(Expr):
    name: str


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """`target.key`, and `target["key"]`, which is the same."""

    target: Expr
    key: str


@dataclass(frozen=True, slots=True)
class Subscript(Expr):
    target: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class ListOf(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class MapOf(Expr):
    entries: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    operator: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Logic(Expr):
    """A chain of `&&` or of `||`; none of `terms` is a chain of the same operator."""

    operator: str
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice(Expr):
    test: Expr
    yes: Expr
    no: Expr


@dataclass(frozen=True, slots=True)
class FunctionCall(Expr):
    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Has(Expr):
    """`has(target)`, of a member or of a whole root."""

    target: Select | Name


@dataclass(frozen=True, slots=True)
class Macro(Expr):
    """`over.macro(variable, body)`, or `over.map(variable, test, body)`."""

    macro: str
    over: Expr
    variable: str
    test: Expr | None
    body: Expr


def path_of(node: Expr) -> tuple[str, ...] | None:
    """The name and keys of `name.key["key"]...`; None for every other node."""
    keys: list[str] = []
    while isinstance(node, Select):
        keys.append(node.key)
        node = node.target
    return (node.name, *reversed(keys)) if isinstance(node, Name) else None


@lru_cache(maxsize=4096)
def path_text(path: tuple[str, ...]) -> str:
    """A path as it is written in a condition."""
    return canonical(path[0], path[1:])


def parts(node: Expr) -> Iterator[Expr]:
    """The nodes directly within a node, as they are written."""
    match node:  # the most frequent first
        case Literal() | Name():
            return
        case Select(target=target) | Has(target=target):
            yield target
        case Binary(left=left, right=right):
            yield from (left, right)
        case Logic(terms=terms):
            yield from terms
        case Subscript(target=target, index=index):
            yield from (target, index)
        case ListOf(items=items):
            yield from items
        case MapOf(entries=entries):
            for entry in entries:
                yield from entry
        case Unary(operand=operand):
            yield operand
        case Choice(test=test, yes=yes, no=no):
            yield from (test, yes, no)
        case FunctionCall(arguments=arguments):
            yield from arguments
        case Macro(over=over, test=test, body=body):
            yield over
            if test is not None:
                yield test
            yield body
        case _:
            return


def names(node: Expr) -> frozenset[str]:
    """All names that are read in a node, variables of macros among them."""
    if isinstance(node, Name):
        return frozenset({node.name})
    return frozenset().union(*map(names, parts(node)))
