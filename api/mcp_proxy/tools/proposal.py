"""The tools of a server as the service is told of them, and what it answers of their definitions.

Only what an admin needs to judge a tool is told: its name as calls have it, its words, its hints, and the
digest of all that stands in its definition. INVARIANT: nothing that a server says keeps the service from
taking the rest: what it knows of a tool would count for nothing then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from api.mcp_proxy.tools.definitions import Definition, Standing, digest

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
MOST_TOOLS: Final = 500
LONGEST_NAME: Final = 200
LARGEST: Final = 2**20
"""Bytes of a body that the service takes."""
_WORDS: Final[Sequence[Mapping[str, int]]] = (
    {"title": 200, "description": 10_000},
    {"title": 100, "description": 500},
    {},
)
"""Of the words of a tool, and how much where that is too much in all."""
_STANDINGS: Final[Mapping[str, Standing]] = {"admitted": "admitted", "changed": "changed", "new": "new"}


def proposal(server: str, definitions: Sequence[Definition], tool_name: Callable[[str], str]) -> bytes:
    """The body of `POST /v1/tool-proposals`. What it has no room for is `left_out`; the words of tools go
    first, since what is not taken at all is held by nobody."""
    named = _named(definitions, tool_name)
    body = b""
    for longest in _WORDS:
        told = [
            {"name": name, "definition": digest(each), **_words(each, longest), **_hints(each)}
            for name, each in named.items()
        ]
        body = json.dumps({"server": server, "tools": told}, ensure_ascii=False).encode()
        if len(body) <= LARGEST:
            break
    return body


def left_out(definitions: Sequence[Definition], tool_name: Callable[[str], str]) -> list[Definition]:
    """Those of which a proposal says nothing, so that nobody knows what the service knows of them."""
    named = _named(definitions, tool_name)
    return [each for each in definitions if tool_name(each["name"]) not in named]


def _named(definitions: Sequence[Definition], tool_name: Callable[[str], str]) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for each in definitions:
        name = tool_name(each["name"])
        if len(name) <= LONGEST_NAME and name == _readable(name) and len(found) < MOST_TOOLS:
            found.setdefault(name, each)
    return found


def _readable(text: str) -> str:
    """Without what no text of the service has."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def _words(definition: Definition, longest: Mapping[str, int]) -> dict[str, Any]:
    found = {key: definition.get(key) for key in longest}
    return {key: _readable(text[: longest[key]]) for key, text in found.items() if isinstance(text, str)}


def _hints(definition: Definition) -> dict[str, Any]:
    annotations = definition.get("annotations")
    found = annotations if isinstance(annotations, dict) else {}
    hints = {key: found[key] for key in _HINTS if isinstance(found.get(key), bool)}
    return {"annotations": hints} if hints else {}


def standings(answer: Any) -> dict[str, Standing]:
    """What the service says of each definition, by its digest; nothing where it does not say it clearly."""
    tools = answer.get("tools") if isinstance(answer, dict) else None
    found: dict[str, Standing] = {}
    for each in tools if isinstance(tools, list) else ():
        if isinstance(each, dict) and isinstance(each.get("definition"), str):
            standing = _STANDINGS.get(str(each.get("state")))
            if standing is not None:
                found[each["definition"]] = standing
    return found
