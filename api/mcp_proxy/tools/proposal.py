"""The tools of a server as the service is told of them, and what it answers of their definitions.

Only what an admin needs to judge a tool is told: its name as calls have it, its words, its hints, and the
digest of all that stands in its definition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from api.mcp_proxy.tools.definitions import Definition, Standing, digest

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
MOST_TOOLS: Final = 500
_MOST: Final = {"name": 200, "title": 200, "description": 10_000}
_STANDINGS: Final[Mapping[str, Standing]] = {"admitted": "admitted", "changed": "changed", "new": "new"}


def proposal(server: str, definitions: Sequence[Definition], tool_name: Callable[[str], str]) -> bytes:
    """The body of `POST /v1/tool-proposals`. What it has no room for stays untold, and so unknown to the
    service."""
    told: dict[str, dict[str, Any]] = {}
    for each in definitions:
        name = tool_name(each["name"])
        if len(name) <= _MOST["name"] and name not in told and len(told) < MOST_TOOLS:
            told[name] = {"name": name, "definition": digest(each), **_words(each), **_hints(each)}
    return json.dumps({"server": server, "tools": list(told.values())}).encode()


def _words(definition: Definition) -> dict[str, Any]:
    found = {key: definition.get(key) for key in ("title", "description")}
    return {key: text[: _MOST[key]] for key, text in found.items() if isinstance(text, str)}


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
