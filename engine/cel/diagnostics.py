"""What to say of a text that is not in the language, in particular of the parts of CEL that are left out.

Decides only words. It knows nothing of trees or evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lark import Token, UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from engine.errors import ConditionError
from engine.fields.pattern import shorten
from engine.model import COMPUTED, ROOTS
from schemas.suggestion import closest

METHODS: Final = ("size", "contains", "startsWith", "endsWith", "matches")
MACROS: Final = ("all", "exists", "exists_one", "filter", "map")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CASE = 'write `matches("(?i)...")` to disregard case'
_TIME = "a time is a text here; ISO 8601 texts of one form compare in the right order"
_CONVERT = "leave it out, whole and other numbers compare and mix here"
_TEXT = "compare with a text, or test it by `matches`"
_OPTIONAL = 'write `has(...)` first, as in `has(inputPayload.a) && inputPayload.a == "b"`'

LEFT_OUT: Final[Mapping[str, str]] = {
    "int": _CONVERT,
    "uint": _CONVERT,
    "double": _CONVERT,
    "dyn": "leave it out, every value may have any type here",
    "bool": "compare with `true` or `false`",
    "string": "compare with the value itself",
    "bytes": "use a text",
    "type": "compare the value itself; comparing another type than expected is an error, `==` is false",
    "timestamp": _TIME,
    "duration": _TIME,
    **dict.fromkeys(
        _words(
            "getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes"
            " getMonth getSeconds"
        ),
        _TIME,
    ),
    "lowerAscii": _CASE,
    "upperAscii": _CASE,
    **dict.fromkeys(
        _words(
            "charAt find findAll format indexOf join lastIndexOf quote replace reverse split substring trim"
        ),
        _TEXT,
    ),
    **dict.fromkeys(_words("or orValue optMap optFlatMap hasValue value"), _OPTIONAL),
    "existsOne": "write `exists_one`",
    "transformList": "write `map`",
    "transformMap": "write `map`",
    "transformMapEntry": "write `map`",
    **dict.fromkeys(
        _words("sum min max isSorted distinct flatten slice sort sortBy"), "write `all` or `exists`"
    ),
}
"""Functions and macros of CEL, its extensions and Kubernetes that are left out -> what to write."""

LIBRARIES: Final = _words("base64 cel lists math net optional proto regex sets strings")

RESERVED: Final = _words(
    "as break const continue else for function if import let loop namespace package return var void while"
)

_WORDS: Final[Mapping[str, str]] = {
    "and": "&&",
    "or": "||",
    "not": "!",
    "is": "==",
    "eq": "==",
    "equals": "==",
    "like": ".matches(...)",
    **{name: f".{name}(...)" for name in (*METHODS, "all", "exists")},
}
"""Words that other languages write between or before values -> what is written here."""

_CHARACTERS: Final[Mapping[str, str]] = {"=": "==", "&": "&&", "|": "||"}


def refuse(message: str, offset: int | None = None) -> ConditionError:
    return ConditionError(message, part="expression", offset=offset)


def unknown_name(name: str, start: int, variables: tuple[str, ...]) -> ConditionError:
    if name.lower() in ("true", "false", "null", "none"):
        return refuse(f"unknown name `{name}`; write `{name.lower().replace('none', 'null')}`", start)
    close = closest(name, (*variables, *ROOTS, *COMPUTED), cutoff=0.7)
    if close:
        return refuse(f"unknown name `{name}`; did you mean `{close}`?", start)
    return refuse(
        f'unknown name `{name}`; write `inputPayload.{name}` for a key of the payload, `"{name}"` for a text',
        start,
    )


def unknown_function(name: str, start: int) -> ConditionError:
    advice = LEFT_OUT.get(name)
    if advice:
        return refuse(f"`{name}()` of CEL is not supported; {advice}", start)
    known = ("has", *METHODS, *MACROS)
    close = closest(name, known, cutoff=0.7)
    hint = f"did you mean `{close}`?" if close else "there is " + ", ".join(f"`{each}`" for each in known)
    return refuse(f"unknown function `{name}`; {hint}", start)


def explain(
    text: str,
    error: UnexpectedCharacters | UnexpectedToken | UnexpectedEOF,
    lex: Callable[[str], Iterator[Token]],
) -> ConditionError:
    """Says what is wrong at the place where reading stopped."""
    if isinstance(error, UnexpectedCharacters):
        return _explain_character(text, error.pos_in_stream or 0)
    token = error.token if isinstance(error, UnexpectedToken) else None
    if token is None or token.type == "$END":
        if not text.strip():
            return refuse('the expression is empty; write for example `toolName == "mail"`', 0)
        return refuse("the expression ends too early; a value, or a closing bracket, is missing", len(text))
    at = token.start_pos or 0
    before = None
    for before in lex(text[:at]):  # noqa: B007
        pass
    last = before.type if before is not None else ""
    word = shorten(str(token), 40)
    if word == "?" and (last in ("LSQB", "LBRACE", "COMMA", "DOT")):
        return refuse(f"optional syntax (`{before}?`) is not supported; {_OPTIONAL}", at)
    if word == "{" and last == "IDENT":
        return refuse(f'making a message (`{before}{{...}}`) is not supported; write `{{"key": value}}`', at)
    if word == "." and last not in ("DOT", "IDENT", "RPAR", "RSQB", "RBRACE", "STRING"):
        return refuse("a leading dot is not supported; start with a name", at)
    if last == "DOT" and token.type in ("TRUE", "FALSE", "NULL", "IN"):
        return refuse(f'`{word}` is a reserved word; write `["{word}"]` instead of `.{word}`', at)
    if last == "DOT":
        return refuse('a name must follow the dot; any other key is written `["a key"]`', at)
    if token.type == "FLOAT" and word[0] == "." and last in ("IDENT", "RSQB", "RPAR"):
        return refuse(f"an index is written `[{word[1:]}]`, not `{word}`", at)
    if word in _WORDS:
        return refuse(f"`{word}` is no operator; write `{_WORDS[word]}`", at)
    if before is not None and str(before) in ("not",):
        return refuse(f"`{before}` is no operator; write `!`", before.start_pos)
    if word == ",":
        return refuse("`,` is not expected here; a list is written `[1, 2]`", at)
    if word in (")", "]", "}"):
        return refuse(f"`{word}` closes nothing here, or a value is missing before it", at)
    if token.type == "QUOTED":
        return refuse(f"a quoted name `{word}` is not supported; write it without the quotes", at)
    return refuse(f"`{word}` is not expected here; an operator or a bracket may be missing before it", at)


def _explain_character(text: str, at: int) -> ConditionError:
    character = text[at]
    if character in "\"'`":
        return refuse(
            f"the text that starts here is not closed, or has a bad line end; close it with `{character}`", at
        )
    if character in _CHARACTERS:
        return refuse(f"`{character}` is no operator; write `{_CHARACTERS[character]}`", at)
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    if shown in "“”‘’«»":
        return refuse(f'`{shown}` is no quotation mark here; write `"`', at)
    return refuse(f"the character `{shown}` has no meaning here; put texts into quotes", at)
