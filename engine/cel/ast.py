"""The nodes of an expression's tree, as frozen values, and how to walk them.

Decides what an expression consists of. It knows nothing of texts, of names that exist, or of evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.fields.paths import canonical
from engine.model import Json


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression, at `start` to `end` of its text."""

    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: Json


@dataclass(frozen=True, slots=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`target.key`, and `target["key"]`, which is the same."""

    target: Node
    key: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    target: Node
    index: Node


@dataclass(frozen=True, slots=True)
class ListOf(Node):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapOf(Node):
    entries: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic(Node):
    """A chain of `&&` or of `||`; none of `terms` is a chain of the same operator."""

    operator: str
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice(Node):
    test: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Has(Node):
    """`has(target)`, of a member or of a whole root."""

    target: Select | Name


@dataclass(frozen=True, slots=True)
class Macro(Node):
    """`over.macro(variable, body)`, or `over.map(variable, test, body)`."""

    macro: str
    over: Node
    variable: str
    test: Node | None
    body: Node


def path_of(node: Node) -> tuple[str, ...] | None:
    """The name and keys of `name.key["key"]...`; None for every other node."""
    keys: list[str] = []
    while isinstance(node, Select):
        keys.append(node.key)
        node = node.target
    return (node.name, *reversed(keys)) if isinstance(node, Name) else None


def path_text(path: tuple[str, ...]) -> str:
    """A path as it is written in a condition."""
    return canonical(path[0], path[1:])


def parts(node: Node) -> Iterator[Node]:
    """The nodes directly within a node, as they are written."""
    match node:
        case Select(target=target) | Has(target=target):
            yield target
        case Index(target=target, index=index):
            yield from (target, index)
        case ListOf(items=items):
            yield from items
        case MapOf(entries=entries):
            for entry in entries:
                yield from entry
        case Unary(operand=operand):
            yield operand
        case Binary(left=left, right=right):
            yield from (left, right)
        case Logic(terms=terms):
            yield from terms
        case Choice(test=test, yes=yes, no=no):
            yield from (test, yes, no)
        case Call(arguments=arguments):
            yield from arguments
        case Macro(over=over, test=test, body=body):
            yield over
            if test is not None:
                yield test
            yield body
        case _:
            return


def names(node: Node) -> frozenset[str]:
    """All names that are read in a node, variables of macros among them."""
    if isinstance(node, Name):
        return frozenset({node.name})
    return frozenset().union(*map(names, parts(node)))
