"""sqlglot, with what one call may cost counted.

It is loaded when the first text is read, since that takes long, or beforehand by who serves. Its parser may
try one thing after another, so its steps are counted. Knows nothing of what a statement does.
"""

from __future__ import annotations

import logging
from functools import cache
from itertools import pairwise
from typing import Any, Final

POSTGRES, MYSQL, SQL_SERVER = "postgres", "mysql", "tsql"

STEPS: Final = 30_000
"""Tokens that the parser may go through for one call, back and forth, ..."""
STEPS_A_CHARACTER: Final = 3
"""... and so many more for each character."""
STEPS_A_TEXT: Final = 30
"""Steps that it costs to begin with a text, or with a statement that is read alone."""

ENDS: Final = {"'": "'", '"': '"', "`": "`", "[": "]", "/*": "*/"}
"""What a text may lack at its end, by what begins it: many clients run what stands before the statement in
which it breaks off."""


class Beyond(Exception):
    """A bound was reached."""


def parsed(text: str, dialect: str, steps: list[int]) -> list[Any] | None:
    """The trees of the statements; None when one of them cannot be parsed."""
    from sqlglot.errors import ErrorLevel, SqlglotError

    language, parser = _reader(dialect)
    steps[0] -= STEPS_A_TEXT
    if steps[0] < 0:
        raise Beyond
    try:
        made = parser(error_level=ErrorLevel.IMMEDIATE, dialect=language)
        made.left = steps
        return [
            tree
            for tree in made.parse(language.tokenize(text), text)
            if tree is not None and tree.key != "semicolon"
        ]
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None  # what its parser stumbles on is as little understood as what it refuses


def apart(text: str, dialect: str = POSTGRES) -> list[str]:
    """The statements of a text, so that one which cannot be read hides no other, nor does one that does not
    end; none if even the words cannot be told apart."""
    lacking = [end for begin, end in ENDS.items() if begin in text and ";" in text]
    tokens = next(filter(None, (_tokens(text + end, dialect) for end in ("", *lacking))), [])
    ends = [token.start for token in tokens if token.token_type.name == "SEMICOLON"]
    pieces = [text[start:end].strip(" ;\n\t\r") for start, end in pairwise([0, *ends, len(text)])]
    return [piece for piece in pieces if piece]


def _tokens(text: str, dialect: str) -> list[Any]:
    """Its words; none where they cannot be told apart."""
    from sqlglot.errors import SqlglotError

    try:
        return list(_reader(dialect)[0].tokenize(text))
    except (SqlglotError, ValueError):
        return []


def load_readers() -> None:
    """Load now what texts are read with, see the module."""
    for dialect in (POSTGRES, MYSQL, SQL_SERVER):
        _reader(dialect)


@cache
def _reader(dialect: str) -> tuple[Any, Any]:
    """A dialect, and its parser with its steps counted."""
    from sqlglot.dialects.dialect import Dialect

    # What it says quotes the text of the call. Not `disabled`: to configure logging later would undo that.
    logging.getLogger("sqlglot").addFilter(lambda record: False)
    language: Any = Dialect.get_or_raise(dialect)
    language.INDEX_OFFSET = 0  # with another, each `[1]` has the types of all before it worked out again
    base: Any = language.parser_class

    class Counted(base):  # type: ignore[misc, unused-ignore]
        left: list[int]

        def _advance(self, times: int = 1) -> None:
            self.left[0] -= 1
            if self.left[0] < 0:
                raise Beyond
            super()._advance(times)

    return language, Counted
