"""JSON within a text, the usual form of function calls: `{"arguments": "{\"command\": \"ls\"}"}`.

Decides when a text is taken for JSON and what it holds. Knows nothing of fields or of what keys mean.
"""

from __future__ import annotations

import json
from typing import Any, Final

from engine.model import Json

DEEPEST: Final = 4
"""So often JSON in a text is looked for within JSON in a text."""

_NUMBER: Final = 400
"""Digits from which a number stays the text that it is."""


def opened(text: str) -> dict[str, Json] | list[Json] | None:
    """The object or list that a text is, if it is one; never raises, linear in the text.

    A key that is there twice gives a list of objects, each with the first, second, ... value of each key:
    which of them a tool reads is not known here.
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
            value = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, str):
            return value if isinstance(value, (dict, list)) else None
    return None


def _object(pairs: list[tuple[str, Json]]) -> Any:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    objects: list[dict[str, Json]] = []
    times: dict[str, int] = {}
    for key, value in pairs:
        turn = times[key] = times.get(key, -1) + 1
        if turn == len(objects):
            objects.append({})
        objects[turn][key] = value
    return objects


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _NUMBER else digits


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, strict=False)
