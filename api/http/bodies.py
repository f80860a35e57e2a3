"""JSON bodies: bytes to checked values, strictly.

Refused before any schema is asked: what is not JSON in UTF-8 (lone surrogates, NaN and numbers beyond a
double included), nesting deeper than 64, NUL characters (PostgreSQL cannot store them), the same key twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from api.http.problems import ApiError, all_of, invalid, problem_json
from api.http.unique_keys import RepeatedKey, unique_keys
from engine.errors import Problem
from engine.fields.json_text import is_deeper
from engine.fields.scalars import is_kept
from schemas.validation import violations

Also = Callable[[Any], Iterable[Problem]]
"""What else is wrong with a body that is not good."""
MOST_NESTED = 64
BACKSLASH = ord("\\")
"""As a number, which `in` finds in bytes far sooner than it finds text."""
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789." else 0 for byte in range(256))
"""Maps digits and points to one character, everything else to another."""
_MANY_DIGITS = b"0" * 16
"""What every fraction that is too exact contains then, and few bodies do."""
MOST_VALUES = 20_000
"""Keys and values of what policies look at in one event; it keeps the longest evaluation bounded."""
MOST_KEPT = 100_000
"""The same of an event that no policy looks at."""
MOST_DIGITS = 1_000
"""Of a number; to read and write longer ones takes time in the square of their length."""
_LONG_NUMBER = re.compile(rb"[\[,:]\s*-?[0-9]{%d}" % MOST_DIGITS)
MOST_LONG_NUMBERS = 16
_TEXT_OR_LONG_NUMBER = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"?|(%b)' % _LONG_NUMBER.pattern, re.DOTALL)
"""Whether it is one, the group says. A text without an end goes on to that of all, so that no quote in it is
tried as a beginning."""
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Escapes: pairs of surrogates, those that stand alone (the group), and all others."""
_SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf]")
MOST_PROBLEMS = 100
"""Problems of one body that are told at once."""

_Steps = tuple[()] | tuple[Any, str | int]
"""Of a pointer: those before the last one, and that."""


def decode(raw: bytes) -> Any:
    """The value of a JSON body; raises `invalid_json` or `validation_failed`."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(raw, error) from None
    except RecursionError:
        raise too_deep() from None
    check(raw, value)
    return value


def decode_unique(raw: bytes) -> Any:
    """Like `decode`, and a key that stands twice in one object is refused as well."""
    value = decode(raw)
    try:
        json.loads(raw, object_pairs_hook=unique_keys)
    except RepeatedKey as error:
        raise ApiError("invalid_json", str(error)) from None
    return value


def not_json(raw: bytes, error: Exception) -> ApiError:
    if not raw:
        return ApiError("invalid_json", "the body is empty; send a JSON object")
    if isinstance(error, UnicodeDecodeError):
        lone = _SURROGATE_BYTES.search(raw)
        what = f": there is a lone surrogate at byte {lone.start()}" if lone else ""
        return ApiError("invalid_json", f"the body is not UTF-8{what}")
    if "surrogate" in str(error) or "truncated" in str(error) or "hex escape" in str(error):
        # The reader takes it for an escape that is too short.
        lone = next((found for found in _SURROGATES.finditer(raw) if found[1]), None)
        if lone is not None:
            text = f"`{lone[1].decode()}` at byte {lone.start()} is a lone surrogate, which is no character"
            return ApiError("invalid_json", f"{text}; send text in Unicode")
    if "out of range" in str(error):
        return ApiError(
            "invalid_json", "a number is beyond 1.8e308, which nothing here holds; send it as text"
        )
    return ApiError("invalid_json", str(error).replace("JSON is malformed: ", "", 1))


def too_deep() -> ApiError:
    return ApiError("invalid_json", f"the body is nested deeper than {MOST_NESTED} levels")


def check(raw: bytes, value: Any) -> None:
    """Depth and NUL characters; both cost next to nothing for a body that has neither."""
    check_depth(raw, value)
    if BACKSLASH in raw and b"\\u0000" in raw and (pointer := _find_nul(value)) is not None:
        raise invalid(pointer, "text must not contain the NUL character")


def check_depth(raw: bytes, value: Any) -> None:
    """Refuse a value that is nested deeper than `MOST_NESTED`; next to free for a body with few brackets."""
    # `replace` jumps from one to the next: where there are few, it counts twice as fast as `count`.
    others = len(raw.replace(b"[", b"")) + len(raw.replace(b"{", b""))
    if 2 * len(raw) - others > MOST_NESTED and is_deeper(value, MOST_NESTED):
        raise too_deep()


def check_count(raw: bytes, value: Any, pointer: str, most: int = MOST_VALUES) -> None:
    """Refuse a value with more keys and values than that; next to free for a body with few."""
    few = most // 2
    if len(raw) <= few or raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= few:
        return
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        members = item.values() if isinstance(item, dict) else item
        count += len(item) * (2 if isinstance(item, dict) else 1)
        if count > most:
            raise invalid(pointer, f"more than {most:,} keys and values; send what the tool needs only")
        pending += [member for member in members if isinstance(member, (dict, list))]


def check_long_numbers(raw: bytes) -> None:
    """Refuse more than `MOST_LONG_NUMBERS` numbers of `MOST_DIGITS` digits and more, before they are read.
    INVARIANT: digits in a text are none, or a page that holds them could not be reported, and nobody would
    know that an agent has read it."""
    if len(raw) <= MOST_DIGITS * MOST_LONG_NUMBERS:
        return
    numbers = (found for found in _TEXT_OR_LONG_NUMBER.finditer(raw) if found[1])
    if _are_many(_LONG_NUMBER.finditer(raw)) and _are_many(numbers):
        message = f"there are more than {MOST_LONG_NUMBERS} numbers of over {MOST_DIGITS:,} digits"
        raise invalid("/metadata", f"{message}; send them as text")


def _are_many(found: Iterator[re.Match[bytes]]) -> bool:
    return next(islice(found, MOST_LONG_NUMBERS, None), None) is not None


def check_digits(raw: bytes, pointer: str = "/metadata") -> None:
    """Refuse a fraction with more digits than a double keeps: what is decided on is what was written."""
    if _MANY_DIGITS not in raw.translate(_DIGITS):
        return
    inexact: list[str] = []

    def read(text: str) -> float:
        number = float(text)
        if not is_kept(text, number):
            inexact.append(text)
        return number

    msgspec.json.Decoder(float_hook=read).decode(raw)
    if inexact:
        message = f"`{inexact[0][:40]}` has more digits than a number keeps; send it as text"
        raise invalid(pointer, message)


def _find_nul(value: Any) -> str | None:
    """Where a NUL stands. Each value is kept with the step to it and those before, since the pointers of all
    that stands below a long key would take many times the body."""
    pending: list[tuple[_Steps, Any]] = [((), value)]
    while pending:
        steps, item = pending.pop()
        if isinstance(item, str) and "\0" in item:
            return _pointer(steps)
        if isinstance(item, dict):
            if any("\0" in key for key in item):
                return _pointer(steps)
            pending += [((steps, key), child) for key, child in item.items()]
        elif isinstance(item, list):
            pending += [((steps, index), child) for index, child in enumerate(item)]
    return None


def _pointer(steps: _Steps) -> str:
    parts: list[str] = []
    while steps:
        steps, part = steps
        parts.append(escape(str(part)))
    return "".join(f"/{part}" for part in reversed(parts))


def escape(part: str) -> str:
    """One part of a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


def read(schema: str, raw: bytes, also: Also = lambda value: ()) -> Any:
    """A body that is good; raises ApiError of all that is wrong with it, as `validate` does."""
    value = decode_unique(raw)
    validate(schema, value, also)
    return value


def validate(schema: str, value: Any, also: Also = lambda value: ()) -> None:
    """Check a body against `schemas/bodies/<schema>.json`; its problems at once, each with its pointer, and
    what is `also` wrong with a value that has any."""
    errors = [
        {"pointer": violation.pointer, "message": violation.message, "code": violation.code}
        for violation in violations(f"bodies/{schema}", value, most=MOST_PROBLEMS)
    ]
    if errors:
        if len(errors) < MOST_PROBLEMS:
            told = {(each["pointer"], each["message"]) for each in errors}
            errors += [problem_json(each) for each in also(value) if (each.pointer, each.message) not in told]
        raise all_of(errors)
