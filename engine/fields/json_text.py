"""JSON within a text, the usual form of function calls: `{"arguments": "{\"command\": \"ls\"}"}`.

Decides when a text is taken for JSON and what it holds. Knows nothing of fields or of what keys mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from engine.fields.scalars import is_kept
from engine.model import Json

DEEPEST: Final = 4
"""So often JSON in a text is looked for within JSON in a text."""

MOST_LEVELS: Final = 500
"""Of lists and objects in such a text, whatever the version of Python reads."""

MOST_OPENED: Final = 20_000
"""Values that a call may hold in such texts together: as many as beside them (`api/http/bodies.py`)."""

_NUMBER: Final = 400
"""Digits from which a number stays the text that it is."""


_STRING: Final = re.compile(r'"(?>(?:[^"\\]++|\\.)*)"?', re.DOTALL)


class Unread(list[str]):
    """The texts of one call that are JSON but are not opened: they nest deeper than is read, or hold more
    values than there is `room` for."""

    room = MOST_OPENED


def opened(text: str, unread: Unread | None = None) -> dict[str, Json] | list[Json] | None:
    """The object or list that a text is, if it is one; never raises, linear in the text. A text that is not
    opened, though it may be JSON, is added to `unread`.

    A key that is there twice gives a list of objects: as a reader that takes the last value of each key has
    it, as one that takes the first has it, and the values between. Which of them a tool reads is not known.
    """
    start = text[:1]
    if start not in ("{", "[", '"'):
        if not start.isspace() and start != "\ufeff":
            return None
        text = text.lstrip("\ufeff \t\r\n")
        if text[:1] not in ("{", "[", '"'):
            return None
    value: Any = text
    for _ in range(DEEPEST):
        try:
            found: Any = _DECODER.decode(value)
        except ValueError:
            return None
        except RecursionError:
            break
        if isinstance(found, (dict, list)):
            if value.count("[") + value.count("{") > MOST_LEVELS and is_deeper(found, MOST_LEVELS):
                break
            if unread is not None:
                if (held := _most_held(value)) > unread.room:
                    unread.append(text)
                    return None
                unread.room -= held
            return found
        if not isinstance(found, str):
            return None
        value = found
    if unread is not None and value.lstrip()[:1] in ("{", "[", '"'):
        unread.append(text)
    return None


def is_deeper(value: Any, most: int) -> bool:
    """Whether a text, a list or an object has more levels of lists and objects than so many."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _most_held(text: str) -> int:
    """How many values a text holds at most, if it is JSON."""
    if len(text) > 256:
        text = _STRING.sub("", text)
    return 1 + text.count(",") + text.count("[") + text.count("{")


def strings_in(text: str) -> Iterator[str]:
    """What stands in quotes in JSON of any depth, or in what begins as JSON; linear in the text."""
    for found in _STRING.finditer(text):
        try:
            yield _DECODER.decode(found[0])
        except ValueError:
            yield found[0]


def _object(pairs: list[tuple[str, Json]]) -> Any:
    last = dict(pairs)
    if len(last) == len(pairs):
        return last
    values: dict[str, list[Json]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    first = {key: each[0] for key, each in values.items() if len(each) > 1 or _is_plain(each[0])}
    between: list[dict[str, Json]] = []
    for key, each in values.items():
        for at, value in enumerate(each[1:-1]):
            if at == len(between):
                between.append({})
            between[at][key] = value
    return Readings([last, first, *between])


class Readings(list[Json]):
    """The objects that one object may be read as."""


def is_ambiguous(value: Json) -> bool:
    """Whether something in what was opened may be read as one object or another."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, Readings):
            return True
        if isinstance(each, (dict, list)):
            stack.extend(each.values() if isinstance(each, dict) else each)
    return False


def _is_plain(value: Json) -> bool:
    """Whether a value may stand in two objects: nothing within it is doubled already.

    INVARIANT: so opening makes a text at most twice as large, however deep objects lie in it.
    """
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, Readings) or (isinstance(each, str) and "{" in each and ":" in each):
            return False
        if isinstance(each, (dict, list)):
            stack.extend(each.values() if isinstance(each, dict) else each)
    return True


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _NUMBER else digits


def _fraction(text: str) -> float | str:
    number = float(text)
    return number if is_kept(text, number) else text


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=str, strict=False
)
"""`NaN` and its like stay the texts that they are, since no comparison with a number would hold of them, and
so do numbers with more digits than are kept."""
