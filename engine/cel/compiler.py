"""Turns the tree of an expression into closures, and decides what each operator and function means.

An expression is evaluated by calling one closure with a scope: a mapping from name to JSON value, which is
the tool call's document itself. It knows nothing of policies, guards or the index.

Values are JSON's, as Python has them: whole numbers are CEL's int, other numbers CEL's double. An ERROR of
CEL is a `CelError` on its way up; `&&`, `||`, `all` and `exists` absorb it as CEL says, whatever the order
of the operands: FALSE && ERROR is FALSE, TRUE || ERROR is TRUE.

Effort is bounded. What can be long - macros, comparing lists and objects - pays steps from a meter in the
scope, and so does every operation inside a macro that looks at a whole text; a scope with a meter is a copy
of the document, so that macros can keep their variables in it. An expression that spends all steps is
`Spent`, which nothing absorbs.

Deliberate differences from CEL, each of them an ERROR or a refusal there (the tests name them one by one):
- Whole and other numbers mix in arithmetic, as double: a JSON document says 10 where it could say 10.0, and
  there is no `double()` here.
- A whole number beyond 64 bits compares by its value; only arithmetic on it is an ERROR.
- A whole number and a double compare exactly, also beyond 2^53.
- Objects have text keys only, as in JSON.
- `has()` also takes a whole root (`has(user)`) and a quoted key, and is false, never an ERROR, for a member
  of a root that the call does not have.
- The pattern of `matches` is constant, so that no caller chooses it.
- A macro's variable may not hide another name.
- A text or list that `+` makes is at most `MAX_RESULT` long.
- What CEL's type checker would refuse is refused where it is constant: `in` a text, `.contains(5)`, a whole
  condition that is a number. Otherwise types are found out at evaluation, as the document has no schema.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    path_of,
    path_text,
)
from engine.cel.comparisons import equality, membership, order
from engine.cel.control import MACROS, METER, Loop, Run, Scope, always, choice_of, logic_of, negation_of
from engine.cel.cost import cost_of, spends
from engine.cel.fast_paths import Constant, folded, path_reader
from engine.cel.joined_patterns import Joined, joined, searched_of
from engine.cel.semantics import (
    ARITHMETIC,
    ORDER,
    TEXT,
    CelError,
    item,
    kind,
    negate,
    size,
    spend,
    weight,
)
from engine.errors import ConditionError
from engine.fields.computed import TOOL
from engine.fields.pattern import compile_pattern
from engine.model import Fault, Json


def compile_tree(tree: Expr, tool: Mapping[str, Json] | None = None) -> tuple[Run, bool]:
    """The closure of a tree, and whether its scope must have a meter. Of a `tool` whose members are known it
    is the closure for that tool alone, in which what they decide is not asked any more: the verdict and its
    steps are the same.

    Raises ConditionError(part="expression") for a pattern that cannot be used."""
    compiler = _Compiler(None if tool is None else {TOOL: tool})
    return compiler.compile(tree), compiler.metered


class _Compiler:
    """One method per kind of node. `metered` tells whether a closure made so far needs a meter."""

    def __init__(self, known: Scope | None) -> None:
        self.metered = False
        self._known = known
        self._loops = 0

    def compile(self, node: Expr) -> Run:
        run = self._compiled(node)
        known = self._known
        if known is None or self._loops or not isinstance(node, (FunctionCall, Binary)):
            return run
        if isinstance(run, Constant) or spends(node) or names(node) != {TOOL}:
            return run
        with contextlib.suppress(CelError):
            return Constant(run(known))
        return run

    def _compiled(self, node: Expr) -> Run:
        match node:
            case Literal(value=value):
                return Constant(value)
            case Name() | Select():
                return self._read(node)
            case Has(target=target):
                return self._has(target)
            case Logic(operator=sign, terms=terms):
                return self._logic(sign, joined(terms) if sign == "||" else terms)
            case Joined(search=search, terms=terms):
                both = self.compile(search), self._logic("||", terms)
                return folded(searched_of(*both, in_loop=self._loops > 0), *both)
            case Binary():
                return self._binary(node)
            case Subscript(target=target, index=index):
                return self._index(target, index)
            case ListOf(items=items):
                return self._list_of([self.compile(each) for each in items])
            case MapOf(entries=entries):
                return self._map_of([(self.compile(k), self.compile(v)) for k, v in entries])
            case Unary(operator="!", operand=operand):
                return folded(negation_of(runs := self.compile(operand)), runs)
            case Unary(operand=operand):
                return self._apply(negate, operand)
            case Choice(test=test, yes=yes, no=no):
                return choice_of(*map(self.compile, (test, yes, no)))
            case FunctionCall():
                return self._call(node)
            case Macro():
                return self._macro(node)
        raise AssertionError(node)

    def _apply(self, function: Callable[..., Any], *arguments: Expr) -> Run:
        """A function of one or two values that costs little, or pays for the texts it looks at in a loop."""
        runs = [self.compile(argument) for argument in arguments]
        first, second = runs[0], runs[-1]
        if len(runs) == 1:
            return folded(lambda scope: function(first(scope)), *runs)
        if not self._loops:
            return folded(lambda scope: function(first(scope), second(scope)), *runs)

        def paying(scope: Scope) -> Any:
            a, b = first(scope), second(scope)
            spend(scope[METER], weight(a) + weight(b))
            return function(a, b)

        return folded(paying, *runs)

    def _logic(self, sign: str, terms: Sequence[Expr]) -> Run:
        """One operand decides, wherever it stands: what spends no steps is asked first, what is constant
        never. INVARIANT: what is constant only for a known tool saves no steps that others would spend."""
        undecided, spent = sign == "&&", False
        runs: list[Run] = []
        for number, term in enumerate(sorted(terms, key=spends)):
            run = self._later(term) if number else self.compile(term)
            if not isinstance(run, Constant) or run.value.__class__ is not bool:
                runs.append(run)
                spent = spent or spends(term)
            elif run.value is not undecided:
                if spent:
                    runs.append(run)
                elif self._known is not None:
                    return run  # what stands behind it was compiled before, and is never asked
                else:
                    runs = [run]
        return logic_of(sign, runs) if runs else Constant(undecided)

    # -- reading

    def _read(self, node: Expr) -> Run:
        path = path_of(node)
        if path is not None:
            return path_reader(path)
        assert isinstance(node, Select)
        target, key = self.compile(node.target), node.key
        return folded(lambda scope: item(target(scope), key), target)

    def _index(self, target: Expr, index: Expr) -> Run:
        whole, place = self.compile(target), self.compile(index)
        return folded(lambda scope: item(whole(scope), place(scope)), whole, place)

    def _has(self, target: Select | Name) -> Run:
        if isinstance(target, Name):
            name = target.name
            return lambda scope: name in scope
        key = target.key
        if isinstance(target.target, Name):
            root = target.target.name
            if root == TOOL and self._known is not None:
                return Constant(True)  # every tool has them all, whichever of them are known here
            none: dict[str, Json] = {}

            def member(scope: Scope) -> bool:
                value = scope.get(root, none)
                if value.__class__ is dict:
                    return key in value
                raise CelError(f"`{root}` is {kind(value)} and has no members")

            return member
        inner = self.compile(target.target)
        path = path_of(target.target)
        owner = f"`{path_text(path)}`" if path is not None else "what `has` asks"

        def deeper(scope: Scope) -> bool:
            value = inner(scope)
            if value.__class__ is dict:
                return key in value
            raise CelError(f"{owner} is {kind(value)} and has no members")

        return folded(deeper, inner)

    def _list_of(self, runs: list[Run]) -> Run:
        return folded(lambda scope: [run(scope) for run in runs], *runs)

    def _map_of(self, runs: list[tuple[Run, Run]]) -> Run:
        def made(scope: Scope) -> dict[str, Json]:
            result = {}
            for key_of, value_of in runs:
                key = key_of(scope)
                if key.__class__ is not str:
                    raise CelError(f"{kind(key)} is no key of an object")
                if key in result:
                    raise CelError("an object has the same key twice")
                result[key] = value_of(scope)
            return result

        return folded(made, *(run for pair in runs for run in pair))

    # -- operators

    def _binary(self, node: Binary) -> Run:
        sign = node.operator
        if sign in ARITHMETIC:
            return self._apply(ARITHMETIC[sign], node.left, node.right)
        left, right = self.compile(node.left), self.compile(node.right)
        if sign == "in":
            if isinstance(right, Constant) and right.value.__class__ not in (list, dict):
                raise _refuse(
                    '`in` needs a list, as in `["a", "b"]`; a part of a text is `.contains("a")`', node.right
                )
            run, metered = membership(left, right)
        elif sign in ORDER:
            run, metered = order(sign, left, right, paying=self._loops > 0), False
        else:
            same, metered = equality(left, right)
            run = same if sign == "==" else lambda scope: not same(scope)
        self.metered = self.metered or metered
        return folded(run, left, right)

    def _later(self, term: Expr) -> Run:
        """An operand behind the first; in a loop it pays for itself when it is reached."""
        run, cost = self.compile(term), cost_of(term)
        if not self._loops:
            return run

        def later(scope: Scope) -> Json:
            spend(scope[METER], cost)
            return run(scope)

        return later

    # -- functions

    def _call(self, node: FunctionCall) -> Run:
        name = node.function
        if name == "size":
            return self._apply(size, *node.arguments)
        target, piece = (self.compile(argument) for argument in node.arguments)
        if name == "matches":
            return folded(self._matches(node.arguments[1], target, piece), target)
        if isinstance(piece, Constant) and piece.value.__class__ is not str:
            raise _refuse(f'`{name}` needs a text, as in `.{name}("a")`', node.arguments[1])
        test = TEXT[name]

        def function(text: Json, piece: Json) -> bool:
            if text.__class__ is str and piece.__class__ is str:
                return test(text, piece)
            raise CelError(f"`{name}` cannot be used on {kind(text)} with {kind(piece)}")

        return self._apply(function, *node.arguments)

    def _matches(self, node: Expr, target: Run, piece: Run) -> Run:
        if not isinstance(piece, Constant):
            raise _refuse(
                "the pattern of `matches` must be a constant text, so that no caller chooses it", node
            )
        if not isinstance(piece.value, str):
            raise _refuse("the pattern of `matches` must be a text", node)
        try:
            pattern = compile_pattern(piece.value)
        except ConditionError as error:
            raise _refuse(error.message, node) from None
        search, paying = pattern.search, self._loops > 0

        def matches(scope: Scope) -> bool:
            text = target(scope)
            if text.__class__ is not str:
                raise CelError(f"`matches` cannot be used on {kind(text)}")
            if paying:
                spend(scope[METER], 8 + 8 * weight(text))
            found = search(text)
            if isinstance(found, Fault):
                raise CelError(found.message)
            return found

        return matches

    def _macro(self, node: Macro) -> Run:
        over = self.compile(node.over)
        self.metered = True
        self._loops += 1
        test = self.compile(node.test) if node.test is not None else None
        body = self.compile(node.body)
        self._loops -= 1
        cost = cost_of(node.body) + (cost_of(node.test) if node.test is not None else 0)
        return MACROS[node.macro](Loop(node.macro, over, node.variable, cost), test or always, body)


def _refuse(message: str, node: Expr) -> ConditionError:
    return ConditionError(message, part="expression", offset=node.start)
