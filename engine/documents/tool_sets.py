"""Sets of tools as people write them: strict YAML -> `ToolSet`, and back to the shape of the contract.

Decides whether a document is a set of tools: its shape by `schemas/`, its name patterns, and its examples,
which must hold by this set alone. It must not know where files live, nor which of two sets counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from engine.derived.tools import Tools, check_name, of_tool
from engine.documents.document import Defect, read_shaped
from engine.fields.words import WORD
from engine.model import Json, ToolDeclaration, ToolSet

OTHERS: Final = "*"
"""In `output`: all keys that are not named."""


def load_tool_set(source: bytes, file: str = "", *, organisation_id: str = "default") -> ToolSet:
    """The tool set of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    return load_versioned(source, file, organisation_id)[0]


def load_versioned(source: bytes, file: str, organisation_id: str) -> tuple[ToolSet, int | None]:
    """The same, and the version that the file declares."""
    document, findings = read_shaped(source, file, "documents/tool_set", "toolSetId")
    value = document.value
    findings += _names(value["tools"])
    tool_set = ToolSet(
        tool_set_id=value["toolSetId"],
        name=value["name"],
        tools=tuple(map(_declaration, value["tools"])),
        description=value.get("description"),
        organisation_id=organisation_id,
    )
    if not findings:
        findings += _examples(tool_set, value.get("examples", ()))
    document.refuse(findings)
    return tool_set, document.version


def tool_set_as_json(tool_set: ToolSet) -> dict[str, Json]:
    """The shape of the contract; optional members without a value are absent."""
    shape = {
        "toolSetId": tool_set.tool_set_id,
        "version": tool_set.version or None,
        "name": tool_set.name,
        "description": tool_set.description,
        "tools": [tool_as_json(tool) for tool in tool_set.tools],
    }
    return {key: value for key, value in shape.items() if value is not None}


def tool_as_json(tool: ToolDeclaration) -> dict[str, Json]:
    targets = {"where": list(tool.where), "which": list(tool.which)}
    named = {key: value for key, value in targets.items() if value}
    output = {OTHERS: tool.output, **tool.output_fields} if tool.output_fields else tool.output
    shape = {
        "names": list(tool.names),
        "kind": tool.kind,
        "effect": tool.effect,
        "output": output,
        "targets": named or None,
        "sensitive": list(tool.sensitive) or None,
    }
    return {key: value for key, value in shape.items() if value is not None}


def _declaration(entry: Mapping[str, Json]) -> ToolDeclaration:
    output, targets = entry.get("output", "untrusted"), entry.get("targets", {})
    fields = dict(output) if isinstance(output, dict) else {OTHERS: output}
    return ToolDeclaration(
        names=tuple(entry["names"]),
        kind=entry["kind"],
        effect=entry["effect"],
        output=fields.pop(OTHERS, "untrusted"),
        output_fields=fields,
        where=tuple(targets.get("where", ())),
        which=tuple(targets.get("which", ())),
        sensitive=tuple(entry.get("sensitive", ())),
    )


def _names(tools: Sequence[Mapping[str, Json]]) -> Iterator[Defect]:
    """What is wrong with the patterns of one set."""
    seen: dict[str, str] = {}
    for number, tool in enumerate(tools):
        for index, name in enumerate(tool["names"]):
            pointer = f"/tools/{number}/names/{index}"
            if message := check_name(name):
                yield Defect(pointer, f"`{name}` names no tool: {message}", "wrong_form")
            same = ("=" if name.startswith("=") else "") + " ".join(WORD.findall(name)).lower()
            if same in seen:
                yield Defect(pointer, f"`{name}` stands here already, as `{seen[same]}`", "duplicate")
            seen.setdefault(same, name)


def _examples(tool_set: ToolSet, examples: Sequence[Mapping[str, Json]]) -> Iterator[Defect]:
    tools = Tools([tool_set])
    for index, example in enumerate(examples):
        for key in ("kind", "effect"):
            said = of_tool(tools, example, key)
            if key in example and example[key] != said:
                message = f"this example must be `{example[key]}`, but the set says `{said}`"
                yield Defect(f"/examples/{index}/{key}", message, "example_fails")
