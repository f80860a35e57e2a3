"""From the tools that a server has to what a tool set would declare of them, once an admin admits them.

A server's own word only fills in what nobody has declared, and only to what is stricter: a tool that says of
itself that it destroys deletes, any other one writes. What is declared already stays, unless the admin says
otherwise. It must not know who proposes, nor where sets live.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from engine.canonical_json import canonical_json
from engine.derived.tools import UNDECLARED, Tools, check_name
from engine.documents.tool_sets import tool_as_json
from engine.fields.words import WORD
from engine.model import Json

LONGEST_SLUG: Final = 80
_NOT_IN_IDS: Final = re.compile(r"[^a-z0-9]+")

Declared = dict[str, Json]
"""An entry of a tool set, as its document has it."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool as its server tells of it, as far as that is believed."""

    name: str
    destructive: bool = False


def tool_set_id_of(server: str) -> str:
    """The set that declares the tools of a server; another one for every other name."""
    slug = _NOT_IN_IDS.sub("-", server.lower()).strip("-")[:LONGEST_SLUG].strip("-")
    return "-".join(filter(None, ("server", slug, sha256(server.encode()).hexdigest()[:8])))


def pattern_of(tool_name: str) -> str | None:
    """The pattern that names just this tool; None where there is none: it has no word, or reads as more."""
    if "*" in tool_name or tool_name.startswith("="):
        return None
    pattern = f"={tool_name}"
    return None if check_name(pattern) else pattern


def declarations(
    tools: Tools, proposed: Iterable[ServerTool], chosen: Mapping[str, Mapping[str, Json]]
) -> list[Declared]:
    """What has to be declared beside what is declared; `chosen` is what an admin says of a tool by its name
    (`kind`, `effect`), which is all that changes of one that is declared."""
    groups: dict[bytes, tuple[Declared, dict[str, str]]] = {}
    for tool in proposed:
        known, pattern = tools.declared(tool.name), pattern_of(tool.name)
        if pattern is None or (known is not UNDECLARED and tool.name not in chosen):
            continue
        shape: Declared = {"kind": "other", "effect": "delete" if tool.destructive else "write"}
        if known is not UNDECLARED:
            shape |= {name: value for name, value in tool_as_json(known).items() if name != "names"}
        shape |= chosen.get(tool.name, {})
        _, names = groups.setdefault(canonical_json(shape), (shape, {}))
        names.setdefault(_read(pattern), pattern)
    return [{"names": sorted(names.values()), **shape} for shape, names in groups.values()]


def merged(declared: Iterable[Declared], added: Iterable[Declared]) -> list[Declared]:
    """The entries of a set with these; a name that stands in both is declared by the added entry alone."""
    added = list(added)
    taken = {_read(name) for entry in added for name in entry["names"]}
    kept = []
    for entry in declared:
        names = [name for name in entry["names"] if _read(name) not in taken]
        if names:
            kept.append({**entry, "names": names})
    return kept + added


def _read(pattern: str) -> str:
    """What a pattern is compared by."""
    return ("=" if pattern.startswith("=") else "") + " ".join(WORD.findall(pattern)).lower()
