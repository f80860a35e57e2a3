"""Compiles the text of an `expression` condition, a subset of CEL over the tool call's document.

Decides the verdict of an expression (TRUE, FALSE or a fault), and what can be known of it without a call:
its top-level `&&` terms, the paths it reads without a `has()` guard, whether it restricts the tool, and what
the index may rely on. It knows nothing of policies. The language itself is in `parser` (what may be
written), `semantics` and `control` (what it means) and `compiler` (how it becomes closures, and the
list of deliberate differences from CEL).

Every top-level term is evaluated for itself, with its share of the effort there is: FALSE && anything is
FALSE even where the other term takes too long, which is what makes hints of single terms true of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, TypeGuard

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
    names,
    parts,
    path_of,
    path_text,
)
from engine.cel.fast_paths import STEPS
from engine.cel.parser import on_one_line, parse
from engine.cel.semantics import kind
from engine.cel.term import Term
from engine.errors import ConditionError
from engine.fields import computed
from engine.fields.hints import Hint, Literals, OneOf, Present, Regex, Threshold
from engine.fields.paths import Path
from engine.fields.paths import parse as parse_field
from engine.fields.pattern import compile_pattern
from engine.fields.scalars import keys_of
from engine.model import ALWAYS_PRESENT, COMPUTED, ROOTS, UNKNOWN_KIND, Fault, Json, Verdict

Key = tuple[str, ...]
"""A path as the tree has it: a name and keys."""


class Expression:
    """A compiled expression.

    `terms` are those of the top-level `&&` (one, when there is none). `hints` are necessary for any verdict
    but FALSE. `unguarded_paths` are what it reads that a call may lack, without a guard by `has()`.
    `computed` are the members it reads of what the service works out, as (root, member): the document must
    have them.
    """

    __slots__ = (
        *("_order", "_restricts", "_tree", "computed", "hints"),
        *("metered", "terms", "text", "unguarded_paths"),
    )

    def __init__(self, text: str) -> None:
        tree = parse(text)
        parts = tree.terms if isinstance(tree, Logic) and tree.operator == "&&" else (tree,)
        for part in parts:
            _must_be_truth(text, part)
        self.text = text
        self._tree = tree
        self._restricts: bool | None = None
        self.terms = tuple(Term(on_one_line(text[part.start : part.end]), part) for part in parts)
        self._order = tuple(sorted(self.terms, key=lambda term: term.metered))  # the cheap ones first
        hungry = [term for term in self.terms if term.metered]
        self.metered = bool(hungry)
        for term in hungry:
            term.steps = STEPS // len(hungry)
        self.unguarded_paths = tuple(dict.fromkeys(_unguarded(text, tree, frozenset())))
        # Nothing is sure of a term that reads what may be known only in part.
        sure = [
            part
            for part, term in zip(parts, self.terms, strict=True)
            if all(root == computed.TOOL for root, _ in term.computed)
        ]
        self.hints = _hints(sure)
        self.computed = tuple(dict.fromkeys(chain.from_iterable(term.computed for term in self.terms)))

    @property
    def shown(self) -> str:
        """The text as it is told to people."""
        return on_one_line(self.text)

    @property
    def roots(self) -> frozenset[str]:
        """The roots of a call that it reads."""
        return names(self._tree) & {*ROOTS, *COMPUTED}

    @property
    def restricts_tool_name(self) -> bool:
        """Whether most tools are excluded by their name alone, whatever else the call says."""
        if self._restricts is None:
            self._restricts = _restricts(self._tree)
        return self._restricts

    def evaluate(
        self,
        document: Mapping[str, Json],
        purse: list[int] | None = None,
        scope_of: Callable[[Term], Mapping[str, Json] | Fault] | None = None,
    ) -> Verdict:
        """The verdict on a tool call's document. `purse` holds the steps that are left for all expressions of
        this call; `scope_of` gives each term the document with the computed members that it reads, or the
        fault of one that is known only in part. Never raises."""
        fault: Fault | None = None
        purse = [STEPS] if purse is None else purse
        for term in self._order:
            scope = document if scope_of is None else scope_of(term)
            verdict = scope if isinstance(scope, Fault) else term.evaluate(scope, purse)
            if verdict is False:
                return False
            if verdict is not True and fault is None:
                fault = verdict
        return True if fault is None else fault


@lru_cache(maxsize=65536)
def compile_expression(text: str) -> Expression:
    """The expression, ready to evaluate. Raises ConditionError(part="expression") with an offset."""
    return Expression(text)


def _must_be_truth(text: str, node: Expr) -> None:
    """Refuses what can only be something else than true or false, and so would be a fault on every call."""
    match node:
        case Literal(value=value) if not isinstance(value, bool):
            what = kind(value)
        case ListOf() | Macro(macro="filter" | "map"):
            what = "a list"
        case MapOf():
            what = "an object"
        case Name(name=name):
            what = "a text" if ROOTS.get(name) == "text" else "an object"
        case FunctionCall(function="size") | Unary(operator="-") | Binary(operator="-" | "*" | "/" | "%"):
            what = "a number"
        case Binary(operator="+"):
            what = "a number, a text or a list"
        case _:
            return
    shown = text[node.start : node.end]
    raise ConditionError(
        f"`{shown}` is {what}, and a condition must be true or false; compare it, as in `{shown} == ...`",
        part="expression",
        offset=node.start,
    )


# ---- guards ------------------------------------------------------------------------------------------


def _unguarded(text: str, node: Expr, known: frozenset[Key]) -> Iterator[str]:
    """The paths that may be missing when they are read, given that those in `known` are there.

    INVARIANT: what is not reported is never read when missing. Reporting too much is allowed.
    """
    path = path_of(node)
    if path is not None:
        if not _present(path, known):
            yield path_text(path)
        return
    match node:
        case Has(target=Name() | Select(target=Name())):
            return
        case Has(target=Select(target=inner)):
            yield from _unguarded(text, inner, known)
        case Select() | Subscript():
            # A member of what is computed, or at a computed place: no `has()` can speak of it.
            yield text[node.start : node.end]
            for part in parts(node):
                yield from _unguarded(text, part, known)
        case Logic(operator=operator, terms=terms):
            # A plain guard is never an ERROR itself, so it guards its neighbours on both sides: when it
            # decides, their errors are absorbed.
            going_on = operator == "&&"
            for term in terms:
                if _plain_guard(term):
                    known |= _proved(term, going_on)
            for term in terms:
                yield from _unguarded(text, term, known)
                known |= _proved(term, going_on)
        case Choice(test=test, yes=yes, no=no):
            yield from _unguarded(text, test, known)
            yield from _unguarded(text, yes, known | _proved(test, True))
            yield from _unguarded(text, no, known | _proved(test, False))
        case Macro(over=over, variable=variable, test=first, body=body):
            yield from _unguarded(text, over, known)
            known |= frozenset((variable, key) for key in _keys_of_each(over))
            if first is not None:
                yield from _unguarded(text, first, known)
                known |= _proved(first, True)
            yield from _unguarded(text, body, known)
        case _:
            for part in parts(node):
                yield from _unguarded(text, part, known)


def _present(path: Key, known: frozenset[Key]) -> bool:
    if len(path) == 1 and (path[0] in ALWAYS_PRESENT or path[0] not in ROOTS):  # or a macro's variable
        return True
    if path[0] in COMPUTED and len(path) == 2 and not computed.MEMBERS[path[0]][path[1]].optional:
        return True
    return path in known


def _keys_of_each(node: Expr) -> Iterable[str]:
    """The keys that every element of a computed list has."""
    if isinstance(node, Macro) and node.macro == "filter":
        return _keys_of_each(node.over)
    path = path_of(node) or ("",)
    if path[0] not in COMPUTED or len(path) != 2:
        return ()
    return computed.MEMBERS[path[0]][path[1]].shape


def _plain_guard(node: Expr) -> bool:
    match node:
        case Has(target=Name() | Select(target=Name())):
            return True
        case Binary(operator="in", left=Literal(value=str()), right=Name(name=name)):
            return name in ALWAYS_PRESENT or name not in ROOTS
        case Unary(operator="!", operand=operand):
            return _plain_guard(operand)
    return False


def _proved(node: Expr, truth: bool) -> frozenset[Key]:
    """The paths that are there for certain when `node` came out as `truth`."""
    match node:
        case Has(target=target) if truth:
            return _with_owners(path_of(target))
        case Binary(operator="in", left=Literal(value=str() as key), right=right) if truth:
            path = path_of(right)
            return _with_owners((*path, key) if path is not None else None)
        case Unary(operator="!", operand=operand):
            return _proved(operand, not truth)
        case Logic(operator=operator, terms=terms):
            found = [_proved(term, truth) for term in terms]
            return frozenset.union(*found) if (operator == "&&") is truth else frozenset.intersection(*found)
    return frozenset()


def _with_owners(path: Key | None) -> frozenset[Key]:
    return frozenset(path[: length + 1] for length in range(len(path))) if path is not None else frozenset()


# ---- the tool ----------------------------------------------------------------------------------------

_TOOLS: Final = (
    "a x7 Q q_q read_file send_email gmail.send db.query db.execute stripe.charges.create kubectl shell"
    " BashTool WebFetch Read Write Task getWeather listUsers delete-user pay-invoice browser_click"
    " mcp__github__create_issue mcp__jira__search http_request s3.put_object vector/lookup calendar:add"
    " translate_text summarise python_exec sql_run crm.contacts.update transfer_funds notify slack.post"
    " upload image-gen ocr v2_submit_order tickets/close 42 日本語"
)
"""Names of all shapes that tools have; a condition that admits more than one in ten restricts none."""


def _restricts(node: Expr) -> bool:
    if isinstance(node, Logic):
        return (any if node.operator == "&&" else all)(map(_restricts, node.terms))
    reads = names(node) & {*ROOTS, *COMPUTED}
    if reads == {"tool"}:
        return (
            Term("", node).evaluate({"tool": {"kind": UNKNOWN_KIND, "effect": "write", "words": ""}}) is False
        )
    if reads != {"toolName"}:
        return False
    term, tools = Term("", node), _TOOLS.split()
    admitted = sum(term.evaluate({"toolName": tool}) is not False for tool in tools)
    return admitted * 10 <= len(tools)


# ---- hints -------------------------------------------------------------------------------------------

_CERTAIN: Final = frozenset(root for root in ALWAYS_PRESENT if ROOTS[root] == "text")
"""Roots that are there and texts in every call: testing them is never an ERROR."""


def _hints(terms: Iterable[Expr], known: frozenset[Key] = frozenset()) -> tuple[Hint, ...]:
    """What must hold for the `&&` of the terms to be anything but FALSE, ERROR included.

    INVARIANT: only a test that cannot be an ERROR, or is one just for values of another type (`typed`),
    gives a hint: one of a root in `_CERTAIN`, or of `inputPayload.<key>` where another term demands that it
    is there.
    """
    terms = tuple(terms)
    for term in terms:
        if _plain_guard(term):
            known |= _proved(term, True)
    return tuple(dict.fromkeys(hint for term in terms for hint in _term_hints(term, known)))


def _term_hints(term: Expr, known: frozenset[Key]) -> tuple[Hint, ...]:
    match term:
        case Logic(operator="&&", terms=terms):
            return _hints(terms, known)
        case Logic(terms=terms):
            return _of_all([_term_hints(each, known) for each in terms])
        case Has() | Binary(operator="in", left=Literal(), right=Name(name="inputPayload")):
            proved = [path for path in _proved(term, True) if path[0] == "inputPayload" and len(path) == 2]
            path = _field(proved[0]) if proved and _plain_guard(term) else None
            return (Present(path),) if path else ()
        case (
            Binary(operator="==", left=Literal(value=value), right=read)
            | Binary(operator="==", left=read, right=Literal(value=value))
        ):
            path = _readable(read, known)
            return (OneOf(path, keys_of([value])),) if path else ()
        case Binary(operator="in", left=read, right=ListOf(items=items)):
            path = _readable(read, known)
            keys = keys_of(each.value for each in items if isinstance(each, Literal))
            constant = all(isinstance(each, Literal) for each in items)
            return (OneOf(path, keys),) if path and constant else ()
        case FunctionCall(
            function="contains" | "startsWith" | "endsWith" | "matches" as function,
            arguments=(read, Literal(value=str() as value)),
        ):
            path = _readable(read, known)
            if path is None or not value or path.root == computed.TOOL:
                return ()
            typed = path.root not in _CERTAIN
            if function == "matches":
                return (Regex(path, compile_pattern(value).required, typed),)
            return (Literals(path, frozenset({value.casefold()}), typed),)
        case Binary(operator="<" | "<=" | ">" | ">=" as sign, left=left, right=right):
            bound, read = (left, right) if isinstance(left, Literal) else (right, left)
            path = _readable(read, known)
            if path is None or path.root != "inputPayload" or not _is_number(bound):
                return ()
            above = (sign[0] == ">") is (bound is right)
            return (Threshold.of(path, above, bound.value, typed=True),)
    return ()


def _of_all(branches: list[tuple[Hint, ...]]) -> tuple[Hint, ...]:
    """What must hold if one of the branches must: for each path that all of them speak of, the union."""
    first, *others = branches
    found: list[Hint] = []
    for hint in first:
        same = [
            next((each for each in branch if type(each) is type(hint) and each.path == hint.path), None)
            for branch in others
        ]
        if isinstance(hint, OneOf):
            keys = [each.keys for each in same if isinstance(each, OneOf)]
            if len(keys) == len(others):
                found.append(OneOf(hint.path, hint.keys.union(*keys)))
        elif isinstance(hint, Literals):
            texts = [each.any_of for each in same if isinstance(each, Literals)]
            if len(texts) == len(others):
                typed = hint.typed or any(each.typed for each in same if isinstance(each, Literals))
                found.append(Literals(hint.path, hint.any_of.union(*texts), typed))
        elif all(each == hint for each in same):
            found.append(hint)
    return tuple(found)


def _is_number(node: Expr) -> TypeGuard[Literal]:
    return isinstance(node, Literal) and node.value.__class__ in (int, float) and math.isfinite(node.value)


def _readable(node: Expr, known: frozenset[Key]) -> Path | None:
    """The field that a node reads, if reading it cannot be an ERROR."""
    path = path_of(node)
    if path is None:
        return None
    certain = (path[0] in _CERTAIN and len(path) == 1) or (path[0] == computed.TOOL and len(path) == 2)
    guarded = path[0] == "inputPayload" and len(path) == 2 and path in known
    return _field(path) if certain or guarded else None


def _field(path: Key) -> Path | None:
    try:
        return parse_field(path_text(path))
    except ConditionError:  # a key that no field can name
        return None
