"""What a JSON value reads as: its text, its number, the keys under which equal values meet.

Knows nothing of paths, calls or operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from math import inf, isinf, nextafter
from typing import Final

from engine.model import Json

MAX_NUMERIC_TEXT: Final = 400
WRITTEN_OUT: Final = 1e21
"""Whole numbers from here on are written with an exponent, by us and in JavaScript."""

_HALF = re.compile("[\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")

_NUMERIC_TEXT = re.compile(r"[+-]?[0-9]+(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?")


def text_of(scalar: Json) -> str:
    """The JSON text of a scalar, a string's without quotes: `true`, `1.0`, `100`, `null`."""
    if isinstance(scalar, str):
        return scalar
    if scalar is None or isinstance(scalar, bool):
        return {None: "null", True: "true", False: "false"}[scalar]
    try:
        return repr(scalar)
    except ValueError:  # an integer of more digits than the runtime agrees to write
        return hex(scalar)


def texts_of(scalar: Json) -> tuple[str, ...]:
    """All that a scalar reads as: its text, and of a whole number that is written with a point or an exponent
    that of its integer. Whoever sends `22.0` means 22, and most that read it take it for that."""
    if scalar.__class__ is float and abs(scalar) < WRITTEN_OUT and scalar.is_integer():
        return (text_of(scalar), str(int(scalar)))
    return (text_of(scalar),)


def value_keys(value: Json) -> tuple[str, ...]:
    """Texts of which two values share one whenever `equals` holds between them (and sometimes when not).

    A text is its own key. A number has its text, and a whole one that of its integer, so that 1 and 1.0 meet.
    All objects share one key, and all arrays.
    """
    if isinstance(value, str):
        return (value,)
    if isinstance(value, float) and value.is_integer():
        return (text_of(value), str(int(value)))
    if isinstance(value, dict):
        return ("{}",)
    if isinstance(value, list):
        return ("[]",)
    return (text_of(value),)


def keys_of(values: Iterable[Json]) -> frozenset[str]:
    """The `value_keys` of all values."""
    keys: set[str] = set()
    for value in values:
        if value.__class__ is str:
            keys.add(value)
        else:
            keys.update(value_keys(value))
    return frozenset(keys)


def number_of(value: Json) -> int | float | None:
    """The number a value is, or that its text spells (`"12.50"`, `"-1e3"`); None for everything else.

    Words like `nan` or `inf`, digits of other scripts, blanks and separators do not count.
    """
    if isinstance(value, str):
        if len(value) > MAX_NUMERIC_TEXT:
            return None
        found = _NUMERIC_TEXT.fullmatch(value)
        if found is None:
            return None
        if found["fraction"] is None and found["exponent"] is None:
            return int(value)
        return float(value)  # "1e400" becomes infinity, which compares as it should with every finite bound
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return value


def numbers_of(value: Json) -> tuple[int | float, ...]:
    """What `number_of` says, if anything. Of a text that has more digits than are kept also the numbers on
    both sides: one of them lies beyond each bound that the text does."""
    number = number_of(value)
    if number is None:
        return ()
    if not isinstance(value, str) or isinstance(number, int) or isinf(number) or is_kept(value, number):
        return (number,)
    return number, nextafter(number, -inf), nextafter(number, inf)


def is_kept(text: str, number: float) -> bool:
    """Whether a number is what its text says: another reader might keep more of it."""
    try:
        return Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # an exponent that even a decimal does not have
        return False


def whole(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", _HALVES.sub(_join, text))
    return text


def _join(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def shorten(text: str, limit: int = 80) -> str:
    """At most `limit` characters of a text, on one line, with an ellipsis where it was cut."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
