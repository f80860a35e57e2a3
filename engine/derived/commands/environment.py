"""The variables that a call gives beside a command, as `env: {X: 1}`, `["X=1"]` or `[{"name": "X", ...}]`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from engine.fields.json_text import opened
from engine.fields.scalars import text_of
from engine.model import Json

ENVIRONMENTS: Final = frozenset(
    f"{first}{between}{last}".rstrip("_")
    for first in ("env", "environment")
    for between in ("", "_")
    for last in ("", "s", "vars", "variables")
)
"""Keys of the variables that a command finds."""
_REFERENCE: Final = re.compile(r"\$[{!#]{0,3}([A-Za-z_][A-Za-z0-9_]{0,255})")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


class Environment:
    """The variables among the members of an object, whose names are in lower case."""

    def __init__(self, members: Sequence[tuple[str, Json]]) -> None:
        self._values = {
            name: text_of(value)
            for key, member in members
            if key in ENVIRONMENTS
            for name, value in _variables(opened(member) if isinstance(member, str) else member)
        }
        self._within = self._named_in(*self._values.values())

    def __bool__(self) -> bool:
        return bool(self._values)

    def set_for(self, text: str) -> str:
        """Lines that set what a command names, and what those variables do; "" where it names none."""
        asked = self._within | self._named_in(text) if "$" in text else ()
        return "".join(f"export {name}={shlex.quote(self._values[name])}\n" for name in sorted(asked))

    def _named_in(self, *texts: str) -> set[str]:
        return {name for text in texts for name in _REFERENCE.findall(text)} & self._values.keys()


def refers(payload: Json) -> bool:
    """Whether a variable may be named anywhere, also in what is JSON in a text."""
    stack = [payload]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            if "$" in each or "\\u" in each:
                return True
        elif isinstance(each, (dict, list)):
            stack.extend(each.values() if isinstance(each, dict) else each)
    return False


def _variables(environment: Json) -> Iterator[tuple[str, Json]]:
    found: list[tuple[Json, Json]] = []
    if isinstance(environment, dict):
        found += environment.items()
    for each in environment if isinstance(environment, list) else ():
        if isinstance(each, str):
            name, _, text = each.partition("=")
            found.append((name, text))
        elif isinstance(each, dict):
            found.append((each.get("name", each.get("key")), each.get("value")))
    for name, value in found:
        if (
            isinstance(name, str)
            and _NAME.fullmatch(name)
            and not isinstance(value, (dict, list, type(None)))
        ):
            yield name, value
