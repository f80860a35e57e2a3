"""Reads the text of an expression into a tree, and refuses by name whatever is not in the language.

Decides what may be written: the grammar of `grammar/condition.lark`, the names there are, how long and how
deeply nested a text may be, and what to say about everything else, in particular about the parts of CEL
that are left out. It knows nothing of evaluation.

The tree is built while the text is read, bottom up, so that no text, however nested, can exhaust the stack;
every node knows its depth, and the one walk downwards (`_check`) happens on trees of bounded depth.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final, NoReturn

from lark import Token, UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from engine.cel.ast import (
    Binary,
    Choice,
    Expr,
    FunctionCall,
    Has,
    ListOf,
    Literal,
    Logic,
    Macro,
    MapOf,
    Name,
    Select,
    Subscript,
    Unary,
    parts,
    path_of,
    path_text,
)
from engine.cel.diagnostics import (
    LIBRARIES,
    MACROS,
    METHODS,
    RESERVED,
    explain,
    refuse,
    unknown_function,
    unknown_name,
)
from engine.cel.remembered_steps import RememberingParser
from engine.cel.semantics import INT_MAX, INT_MIN
from engine.errors import ConditionError
from engine.fields import computed, paths
from engine.model import COMPUTED, ROOTS, Json
from grammar import condition_grammar

MAX_LENGTH: Final = 8192
"""Characters of an expression."""

MAX_DEPTH: Final = 64
"""Levels of nested operations; chains of `&&` and `||` count as one level."""

MAX_MACROS: Final = 16
"""Macros in one expression."""

MAX_MACRO_DEPTH: Final = 4
"""Macros within macros."""


_ESCAPE: Final = re.compile(
    r"""\\(?:(?P<plain>[abfnrtv\\?"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"""
    r"""|U(?P<big>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<wrong>.?))""",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"//[^\r\n]*")
_PLAIN: Final = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


def parse(text: str) -> Expr:
    """The tree of an expression. Raises ConditionError(part="expression") with an offset."""
    if len(text) > MAX_LENGTH:
        raise refuse(
            f"the expression is longer than {MAX_LENGTH} characters; split it into several conditions"
        )
    try:
        tree = _parser().parse(text)
    except (UnexpectedCharacters, UnexpectedToken, UnexpectedEOF) as error:
        raise explain(text, error, _parser().lex) from None
    assert isinstance(tree, Expr)
    macros = _check(tree, (), 0)
    if macros > MAX_MACROS:
        raise refuse(
            f"there are {macros} macros and at most {MAX_MACROS} are allowed; split the expression", 0
        )
    return tree


@cache
def _parser() -> RememberingParser:
    return RememberingParser(condition_grammar(), _Builder())


def on_one_line(text: str) -> str:
    """A good expression, or a part of one, as it is told to people: without its comments and line breaks."""
    return _without_breaks(text) if "\n" in text else text


@lru_cache(maxsize=4096)
def _without_breaks(text: str) -> str:
    told, end = "", 0
    for token in _parser().lex(text):
        apart = told and token.start_pos != end
        told += f" {token}" if apart else token
        end = token.end_pos or 0
    return told


def comments(text: str) -> list[str]:
    """Those of an expression, from `//` to the end of the line; none where something in it is no word."""
    found: list[str] = []
    end = 0
    try:
        for token in _parser().lex(text):
            found += _COMMENT.findall(text, end, token.start_pos or 0)
            end = token.end_pos or 0
    except UnexpectedCharacters:
        return []
    return found + _COMMENT.findall(text, end)


# ---- from tokens to nodes ----------------------------------------------------------------------------


class _Builder:
    """One method per rule of the grammar. `found` holds all tokens and nodes of the rule, in order."""

    def start(self, found: list[Expr]) -> Expr:
        return _in_range(found[0])

    def literal(self, found: list[Token]) -> Expr:
        token = found[0]
        start, end = token.start_pos or 0, token.end_pos or 0
        return Literal(start, end, 1, _value(token, start))

    def name(self, found: list[Token]) -> Expr:
        name, start = str(found[0]), found[0].start_pos or 0
        if name in RESERVED:
            raise refuse(f"`{name}` is a reserved word of CEL and cannot be a name; choose another", start)
        return Name(start, found[0].end_pos or 0, 1, name)

    def group(self, found: list[Any]) -> Expr:
        start, end = _span(found)
        inner: Expr = found[1]
        return replace(_in_range(inner), start=start, end=end)

    def select(self, found: list[Any]) -> Expr:
        target, _, key = found
        if isinstance(target, Literal):
            raise refuse(f"`{key}` is asked of a plain value, which has no members", key.start_pos)
        return Select(*_place(found), target, str(key))

    def index(self, found: list[Any]) -> Expr:
        target, _, index, _ = found
        if isinstance(index, Literal) and isinstance(index.value, str):
            return Select(*_place(found), target, index.value)
        return Subscript(*_place(found), target, index)

    def quoted(self, found: list[Any]) -> NoReturn:
        token = found[-1]
        key = str(token)[1:-1]
        raise refuse(f'a quoted name `{token}` is not supported; write `["{key}"]`', token.start_pos)

    def negation(self, found: list[Any]) -> Expr:
        # An even number of `!` is none at all, as in CEL.
        if len(found) % 2:
            operand: Expr = found[-1]
            return replace(operand, start=_span(found)[0])
        return Unary(*_place(found), "!", found[-1])

    def negative(self, found: list[Any]) -> Expr:
        operand, start = found[-1], _span(found)[0]
        plain = isinstance(operand, Literal) and type(operand.value) in (int, float)
        if plain and operand.value != INT_MIN and (len(found) == 2 or operand.value <= INT_MAX):
            value = operand.value if len(found) % 2 else -operand.value
            return Literal(start, operand.end, 1, value)
        if len(found) % 2:  # as for `!`
            return replace(_in_range(operand), start=start)
        return Unary(*_place(found), "-", _in_range(operand))

    def binary(self, found: list[Any]) -> Expr:
        left, operator, right = found
        return Binary(*_place(found), str(operator), left, right)

    def all_of(self, found: list[Any]) -> Expr:
        return self._chain("&&", found)

    def any_of(self, found: list[Any]) -> Expr:
        return self._chain("||", found)

    def _chain(self, operator: str, found: list[Any]) -> Expr:
        terms: list[Expr] = []
        for term in found[::2]:
            same = isinstance(term, Logic) and term.operator == operator
            terms.extend(term.terms if same else (term,))
        return Logic(*_place(found), operator, tuple(terms))

    def choice(self, found: list[Any]) -> Expr:
        return Choice(*_place(found), found[0], found[2], found[4])

    def list_of(self, found: list[Any]) -> Expr:
        return ListOf(*_place(found), tuple(_nodes(found)))

    def map_of(self, found: list[Any]) -> Expr:
        nodes = _nodes(found)
        entries = tuple(zip(nodes[::2], nodes[1::2], strict=True))
        seen: set[str] = set()
        for key, _ in entries:
            if not isinstance(key, Literal):
                continue
            if not isinstance(key.value, str):
                raise refuse("a key of an object must be a text, as in JSON; put it into quotes", key.start)
            if key.value in seen:
                raise refuse(f"the key `{key.value}` is there twice; leave one out", key.start)
            seen.add(key.value)
        return MapOf(*_place(found), entries)

    def function(self, found: list[Any]) -> Expr:
        name, given = found[0], tuple(_nodes(found))
        match str(name), given:
            case "has", (target,):
                return self._has(found, target)
            case "size", (_,):
                return FunctionCall(*_place(found), "size", given)
            case "has" | "size", _:
                raise refuse(f"`{name}` takes one value, as in `{name}(inputPayload.a)`", name.start_pos)
            case (("contains" | "startsWith" | "endsWith" | "matches" | "all" | "exists" as word), _):
                raise refuse(
                    f"`{word}` comes after a value, as in `inputPayload.a.{word}(...)`", name.start_pos
                )
        raise unknown_function(name, name.start_pos or 0)

    def _has(self, found: list[Any], target: Expr) -> Expr:
        if not isinstance(target, Select | Name):
            raise refuse("`has` takes a path, as in `has(inputPayload.a)`", target.start)
        return Has(*_place(found), target)

    def method(self, found: list[Any]) -> Expr:
        target, _, name, *_ = found
        given = tuple(_nodes(found[3:]))
        word = str(name)
        if isinstance(target, Name) and target.name in LIBRARIES and (word not in METHODS or len(given) > 1):
            raise refuse(f"`{target.name}.{word}()` of CEL's libraries is not supported", target.start)
        if word in METHODS:
            needed = 0 if word == "size" else 1
            if len(given) != needed:
                example = (
                    "`.size()`, with nothing in it" if word == "size" else f'`.{word}("a")`, with one text'
                )
                raise refuse(f"write {example}", name.start_pos)
            return FunctionCall(*_place(found), word, (target, *given))
        if word in MACROS:
            return self._macro(found, target, name, given)
        raise unknown_function(name, name.start_pos or 0)

    def _macro(self, found: list[Any], over: Expr, name: Token, given: tuple[Expr, ...]) -> Expr:
        word = str(name)
        if len(given) == 3 and word != "map":
            raise refuse(
                f"`{word}` over two variables is not supported; write `.{word}(x, ...)`", name.start_pos
            )
        if len(given) not in (2, 3):
            raise refuse(
                f"`{word}` takes a name and what to do with it, as in `.{word}(x, ...)`", name.start_pos
            )
        variable = given[0]
        if not isinstance(variable, Name):
            raise refuse(f"`{word}` needs a plain name first, as in `.{word}(x, ...)`", variable.start)
        test = given[1] if len(given) == 3 else None
        return Macro(*_place(found), word, over, variable.name, test, given[-1])


def _nodes(found: list[Any]) -> list[Expr]:
    return [each for each in found if isinstance(each, Expr)]


def _span(found: list[Any]) -> tuple[int, int]:
    first, last = found[0], found[-1]
    start = first.start if isinstance(first, Expr) else first.start_pos
    end = last.end if isinstance(last, Expr) else last.end_pos
    return start, end


def _place(found: list[Any]) -> tuple[int, int, int]:
    start, end = _span(found)
    depth = 0
    for each in found:
        if isinstance(each, Expr):
            depth = max(depth, _in_range(each).depth)
    if depth >= MAX_DEPTH:
        raise refuse(f"the expression is nested deeper than {MAX_DEPTH} levels; split it", start)
    return start, end, depth + 1


def _in_range(node: Expr) -> Expr:
    """The node, unless it is the one whole number that is only allowed after a minus."""
    if isinstance(node, Literal) and type(node.value) is int and node.value > INT_MAX:
        raise refuse("the whole number is beyond 64 bits; write it with `.0` at its end", node.start)
    return node


def _value(token: Token, start: int) -> Json:
    match token.type:
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case "NULL":
            return None
        case "INT":
            value = int(token, 16) if token[:2] == "0x" else int(token) if len(token) < 40 else INT_MAX + 2
            if value > INT_MAX + 1:
                raise refuse("the whole number is beyond 64 bits; write it with `.0` at its end", start)
            return value
        case "FLOAT":
            return float(token)
        case "UINT":
            raise refuse(
                f"the unsigned number `{token}` is not supported; write it without `{token[-1]}`", start
            )
        case "BYTES":
            raise refuse(f"bytes (`{token[0]}` before a text) are not supported; write the text alone", start)
    raw = token[0] in "rR"
    body = str(token)[1:] if raw else str(token)
    quotes = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1
    body = body[quotes:-quotes]
    return body if raw else _unescape(body, start + quotes)


def _unescape(body: str, start: int) -> str:
    def one(escape: re.Match[str]) -> str:
        if (plain := escape["plain"]) is not None:
            return _PLAIN.get(plain, plain)
        if (octal := escape["octal"]) is not None:
            return chr(int(octal, 8))
        digits = escape["x"] or escape["u"] or escape["big"]
        if digits is None:
            raise refuse(
                f"`{escape[0]}` has no meaning in a text; write two backslashes, or `r` before the text",
                start + escape.start(),
            )
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise refuse(
                f"`{escape[0]}` is no character; write `\\U` and its eight digits", start + escape.start()
            )
        return chr(code)

    return _ESCAPE.sub(one, body) if "\\" in body else body


# ---- names -------------------------------------------------------------------------------------------


def _check(node: Expr, variables: tuple[str, ...], loops: int) -> int:
    """Every name is known and every path possible. Returns how many macros there are."""
    if isinstance(node, Name):
        if node.name in COMPUTED and node.name not in variables:
            known = ", ".join(f"`{node.name}.{member}`" for member in computed.MEMBERS[node.name])
            raise refuse(f"`{node.name}` alone is no value; name one of {known}", node.start)
        if node.name not in ROOTS and node.name not in variables:
            raise unknown_name(node.name, node.start, variables)
        return 0
    path = path_of(node)
    if path is not None and path[0] not in variables:
        _check_path(node, path)
        if path[0] in COMPUTED or path[0] in ROOTS:
            return 0
    if isinstance(node, Macro):
        variable = node.variable
        if variable in ROOTS or variable in COMPUTED or variable in variables:
            raise refuse(f"the name `{variable}` is taken; choose another for `{node.macro}`", node.start)
        if loops == MAX_MACRO_DEPTH:
            raise refuse(
                f"macros are nested deeper than {MAX_MACRO_DEPTH} levels; split the expression", node.start
            )
        inner = (*variables, variable)
        count = 1 + _check(node.over, variables, loops) + _check(node.body, inner, loops + 1)
        return count + (_check(node.test, inner, loops + 1) if node.test is not None else 0)
    return sum(_check(part, variables, loops) for part in parts(node))


def _check_path(node: Expr, path: tuple[str, ...]) -> None:
    """Members of roots whose members are known: a mistyped one would be missing for ever."""
    root = path[0]
    if root in paths.MEMBERS or root in COMPUTED or ROOTS.get(root) == "text":
        try:
            paths.parse(path_text(path))
        except ConditionError as error:
            raise refuse(error.message, node.start) from None
