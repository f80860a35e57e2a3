"""The targets of a call, and where their values were seen first.

Targets are the arguments that the tool's declaration names: where to, which, and those that are neither but
matter. Decides which arguments those are, and of a list or `Name <address>` in one text which values it has;
what a run has seen is asked of `flow.memory`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.fields.json_text import opened
from engine.fields.scalars import text_of
from engine.fields.words import LONGEST_NAME, words_of
from engine.flow.memory import TASK, TRUSTED, UNSEEN, WORST, Values
from engine.model import Json, ToolDeclaration

MOST_TARGETS: Final = 200
"""Of one call; what comes beyond is unseen."""
DEEPEST: Final = 16
"""Keys of a path; what lies deeper stands under the last one."""

_LIST: Final = re.compile(r"[,;\n]")
_NAMED: Final = re.compile(r"[^<>]{0,200}<([^<>@\s]{1,64}@[^<>@\s]{1,253})>")


class Target(NamedTuple):
    """An argument that matters: the keys it stands under, its value, and where that was first seen."""

    path: tuple[str, ...]
    value: Json
    source: str

    @property
    def text(self) -> str:
        return text_of(self.value)


def targets_of(
    document: Mapping[str, Json], tool: ToolDeclaration, values: Values
) -> tuple[list[Target], bool]:
    """The targets of a call, and whether they are all."""
    named = {words_of(name) for name in (*tool.where, *tool.which, *tool.sensitive)}
    found: list[Target] = []
    if not named:
        return found, True
    for path, value in _arguments(document.get("inputPayload"), named):
        if len(found) == MOST_TARGETS:
            return found, False
        found.append(Target(path, value, source_of(value, values)))
    return found, True


def source_of(value: Json, values: Values) -> str:
    """Where an argument was first seen: as a whole, else the worst of what it lists."""
    found = values.source(value)
    if found is not UNSEEN or not isinstance(value, str):
        return found
    pieces = _pieces(value)
    return max((values.source(each) for each in pieces), key=WORST.__getitem__) if pieces else found


def origin_of(value: Json, values: Values) -> tuple[Json, str] | None:
    """The value, or a piece of it, that was read in an output, and the call of that output."""
    for each in (value, *(_pieces(value) if isinstance(value, str) else ())):
        if (call := values.origin(each)) is not None:
            return each, call
    return None


def shown(targets: list[Target]) -> dict[str, Json]:
    """The sources in the shape of the payload, lists left out: of several values the worst."""
    root: dict[str, Json] = {}
    for target in targets:
        place = root
        for key in target.path[:-1]:
            inner = place.get(key)
            if not isinstance(inner, dict):
                inner = place[key] = {}
            place = inner
        key = target.path[-1]
        known = place.get(key)
        if not isinstance(known, dict) and (known is None or WORST[target.source] > WORST[known]):
            place[key] = target.source
    return root


def untrusted(targets: list[Target]) -> list[str]:
    """The values that neither the task nor a trusted output named."""
    return list(dict.fromkeys(each.text for each in targets if each.source not in (TASK, TRUSTED)))


def unasked(targets: list[Target]) -> list[str]:
    """The values that the task did not name."""
    return list(dict.fromkeys(each.text for each in targets if each.source != TASK))


def _pieces(text: str) -> list[str]:
    """What a text lists: several values, or the address of somebody who is named."""
    pieces = [piece.strip() for piece in _LIST.split(text) if piece.strip()]
    pieces = [found[1] if (found := _NAMED.fullmatch(piece)) else piece for piece in pieces]
    return [] if pieces == [text] else pieces


def _arguments(payload: Json, named: set[str]) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every scalar below one of the named keys that is not null."""
    stack: list[tuple[tuple[str, ...], bool, Json]] = [((), False, payload)]
    while stack:
        path, counts, value = stack.pop()
        if isinstance(value, str) and (inside := opened(value)) is not None:
            value = inside
        if isinstance(value, dict):
            for name, member in reversed(value.items()):
                below = (*path, name) if len(path) < DEEPEST else path
                key = words_of(name[:LONGEST_NAME])
                above = words_of(path[-1][:LONGEST_NAME]) if path else ""
                counted = counts or key in named or f"{above} {key}" in named
                stack.append((below, counted, member))
                if counts and "@" in name:
                    stack.append((below, True, name))
        elif isinstance(value, list):
            stack.extend((path, counts, member) for member in reversed(value))
        elif counts and value is not None and value != "" and path:
            yield path, value
