"""Reads texts by a grammar, those that are built like an earlier one by the steps that were taken then.

Which rules an LALR parser applies depends on the kinds of the tokens alone. So they are noted when a text is
read by the tables, and a text of the same kinds is read by the notes, in a third of the time: large sets of
policies have few kinds of expressions.

INVARIANT: the notes make what the tables make, and refuse what they refuse; what the notes do not know, and
any text that is not all tokens, is left to the tables.

Knows nothing of what the rules make.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lark import Lark, Token

MOST_KINDS: Final = 1024
"""Sequences of kinds that are remembered."""

LONGEST: Final = 256
"""Tokens of a text whose steps are remembered."""

Rule = Callable[[list[Any]], Any]
Step = tuple[Rule, tuple[int, ...]]
"""A rule, and what it is applied to: tokens of the text by their number, then what earlier steps made."""


class _Token(Token):
    """A token whose line and column nobody asks for: made in a third of the time."""

    __slots__ = ()
    __new__ = str.__new__  # type: ignore[assignment]


class RememberingParser:
    """`builder` has a method for each rule, which takes the list of what the rule consists of."""

    def __init__(self, grammar: str, builder: object) -> None:
        self._noting = _Noting(builder)
        self._tables = Lark(
            grammar,
            parser="lalr",
            lexer="basic",
            maybe_placeholders=False,
            keep_all_tokens=True,
            transformer=self._noting,
        )
        terminals = sorted(  # as the lexer of the tables asks for them
            self._tables.terminals,
            key=lambda each: (
                *(-each.priority, -each.pattern.max_width, -len(each.pattern.value)),
                each.name,
            ),
        )
        pattern = "|".join(f"(?P<{each.name}>{each.pattern.to_regexp()})" for each in terminals)
        self._pieces = re.compile(pattern).finditer
        self._words = {each.pattern.value: each.name for each in terminals if each.pattern.type == "str"}
        self._ignored = frozenset(self._tables.ignore_tokens)
        self._known: dict[tuple[str, ...], tuple[Step, ...]] = {}

    def parse(self, text: str) -> Any:
        """What the rules make of the text. Raises what the tables raise."""
        found = self._tokens(text)
        if found is None or len(found) > LONGEST:
            return self._tables.parse(text)
        kinds = tuple([token.type for token in found])
        steps = self._known.get(kinds)
        if steps is None:
            return self._noted(text, found, kinds)
        for rule, places in steps:
            found.append(rule([found[place] for place in places]))
        return found[-1]

    def lex(self, text: str) -> Iterator[Token]:
        """The tokens. Raises what the tables raise."""
        found = self._tokens(text)
        return self._tables.lex(text) if found is None else iter(found)

    def _tokens(self, text: str) -> list[Any] | None:
        """The tokens; None where not all of the text is tokens."""
        found: list[Any] = []
        words, ignored, end = self._words, self._ignored, 0
        for piece in self._pieces(text):
            start, after = piece.span()
            if start != end:
                return None
            end = after
            if (kind := piece.lastgroup) not in ignored:
                token = _Token(word := piece[0])
                token.type = words.get(word) or str(kind)
                token.start_pos, token.end_pos = start, end
                found.append(token)
        return found if end == len(text) else None

    def _noted(self, text: str, tokens: list[Any], kinds: tuple[str, ...]) -> Any:
        notes = self._noting.begin()
        try:
            made = self._tables.parse(text)
        finally:
            self._noting.end()
        if len(self._known) < MOST_KINDS:
            self._known[kinds] = tuple(_steps(notes, tokens))
        return made


Note = tuple[Rule, list[Any], Any]
"""A rule, what it was applied to, and what it made."""


def _steps(notes: Sequence[Note], tokens: Sequence[Token]) -> Iterator[Step]:
    at = {token.start_pos: number for number, token in enumerate(tokens)}
    made: dict[int, int] = {}
    for number, (rule, found, result) in enumerate(notes, len(tokens)):
        yield (
            rule,
            tuple([at[each.start_pos] if isinstance(each, Token) else made[id(each)] for each in found]),
        )
        made[id(result)] = number


class _Noting:
    """The builder, with a note of every rule that is applied while somebody in this thread wants them."""

    def __init__(self, builder: object) -> None:
        self._builder = builder
        self._wanted = threading.local()

    def begin(self) -> list[Note]:
        notes: list[Note] = []
        self._wanted.notes = notes
        return notes

    def end(self) -> None:
        self._wanted.notes = None

    def __getattr__(self, name: str) -> Rule:
        rule: Rule = getattr(self._builder, name)

        def noted(found: list[Any]) -> Any:
            made = rule(found)
            notes = getattr(self._wanted, "notes", None)
            if notes is not None:
                notes.append((rule, found, made))
            return made

        return noted
