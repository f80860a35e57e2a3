"""What a server says of its tools, and whether it is what was admitted.

A tool's definition is all that stands in `tools/list` of it, but for `_meta` and `icons`, which no model
reads. A model is led by what it reads there, so a definition that changed after it was admitted is held: its
calls are refused, and the list goes on showing the definition that was admitted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

Definition = dict[str, Any]
_NOT_READ: Final = frozenset({"_meta", "icons"})

Standing = Literal["admitted", "changed", "new"]


def read_by_models(definition: Mapping[str, Any]) -> Definition:
    return {key: value for key, value in definition.items() if key not in _NOT_READ}


def digest(definition: Mapping[str, Any]) -> str:
    """Of one definition, whatever the order of its keys."""
    text = json.dumps(read_by_models(definition), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Pins(Protocol):
    """The definitions of one server that were admitted, wherever they are kept."""

    def look(self, definitions: Sequence[Definition], said: Mapping[str, Standing]) -> None:
        """Takes what the server says now, and what the service says of it by digest, whose word counts: what
        it admitted is admitted, what it knows otherwise is held. Of the rest, what may be admitted at first
        sight is, and what changed is noted."""

    def standing(self, definition: Definition) -> Standing: ...

    def admitted(self, name: str) -> Definition | None:
        """The definition that was admitted, None where there is none."""


@dataclass(slots=True)
class Catalogue:
    """The tools of the server as it last told of them."""

    pins: Pins
    changes: int = 0
    """How often the server said that its list changed."""
    _learned: int = -1
    """How often it had said so when the whole list was last asked for."""
    _tools: dict[str, list[Definition]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every tool was seen since the server last said that the list changed."""
        return self._learned == self.changes

    def learn(self, definitions: Sequence[Definition], said: Mapping[str, Standing], whole_at: int) -> None:
        """The whole list as it was after so many changes. A name may stand twice: each of them must hold.
        INVARIANT: what could not be pinned is not known, and so no call is decided by it."""
        self.pins.look(definitions, said)
        self._tools = {}
        self._learned = whole_at
        for each in definitions:
            self._tools.setdefault(str(each.get("name")), []).append(each)

    def all(self) -> list[Definition]:
        return [each for found in self._tools.values() for each in found]

    def almost(self, name: str) -> str | None:
        """The listed tool for which some servers would take a name that is not listed."""
        if name in self._tools:
            return None
        return next((each for each in self._tools if _folded(each) == _folded(name)), None)

    def get(self, name: str) -> Definition:
        """What is said of a tool; nothing of one that the server does not list."""
        return next(iter(self._tools.get(name, ())), {})

    def standing(self, name: str) -> Standing:
        """Of a tool that is called; one that the server does not list is new."""
        found = {self.pins.standing(each) for each in self._tools.get(name, ())}
        if "changed" in found:
            return "changed"
        return "admitted" if found == {"admitted"} else "new"

    def shown(self, definitions: Sequence[Definition]) -> list[Definition]:
        """The list for the client: as admitted where that changed, without what was never admitted."""
        found: list[Definition] = []
        for each in definitions:
            if self.pins.standing(each) == "admitted":
                found.append(each)
            elif (before := self.pins.admitted(str(each.get("name")))) is not None and before not in found:
                found.append(before)
        return found


def _folded(name: str) -> str:
    return name.strip().casefold()


def declared_arguments(definition: Mapping[str, Any]) -> frozenset[str]:
    """The names of the arguments that a tool says it takes."""
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def header_parameters(definition: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """The arguments that a tool wants mirrored in `Mcp-Param-*` headers: their path, and the header's name.

    By `x-mcp-header` in its `inputSchema`, reached through `properties` alone (2026-07-28, transports).
    """
    found: dict[tuple[str, ...], str] = {}
    todo: list[tuple[tuple[str, ...], Any]] = [((), definition.get("inputSchema"))]
    while todo:
        path, schema = todo.pop()
        if not isinstance(schema, dict):
            continue
        if path and isinstance(header := schema.get("x-mcp-header"), str):
            found[path] = header
        properties = schema.get("properties")
        if isinstance(properties, dict):
            todo += [((*path, name), each) for name, each in properties.items()]
    return found
