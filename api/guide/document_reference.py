"""The pages of the reference about what people write into the policies folder, made from the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import schemas
from api.guide.markdown import code, page, table
from engine.conditions import operands
from engine.conditions.operators import OPERATORS
from engine.conditions.settings import SETTINGS, SHIPPED
from engine.fields import computed
from engine.model import TOOL_KINDS, UNKNOWN_KIND

VALUES: Final[Mapping[operands.Check, str]] = {
    operands.check_any: "any JSON value",
    operands.check_list: "a list",
    operands.check_text: "a text",
    operands.check_pattern: "a pattern",
    operands.check_number: "a number",
    operands.check_nothing: "none",
}


def kind_of(shape: Mapping[str, Any]) -> str:
    """What a JSON Schema admits, in a few words."""
    if "const" in shape:
        return code(str(shape["const"]))
    if "enum" in shape:
        return ", ".join(code(str(value)) for value in shape["enum"])
    kinds = shape.get("type", "any value")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _policy_rows(shape: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    required = shape.get("required", ())
    for key, entry in shape["properties"].items():
        inner = names[entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry
        default = inner.get("default")
        there = (
            "required" if key in required else code("" if default is None else json.dumps(default).strip('"'))
        )
        yield code(key), kind_of(inner), there, entry.get("description") or inner["description"]


def policies() -> str:
    document = schemas.load("documents/policy")
    names = document["$defs"]
    operators = (
        (code(name), VALUES[operator.accepts], operator.meaning) for name, operator in OPERATORS.items()
    )
    return page(
        "Policy files",
        document["description"],
        "## Keys",
        table(HEADING, _policy_rows(document, names)),
        "## Rate limit",
        names["rateLimit"]["description"],
        table(HEADING, _policy_rows(names["rateLimit"], names)),
        "## Approval",
        names["approval"]["description"],
        table(HEADING, _policy_rows(names["approval"], names)),
        "## Operators",
        "A condition of the field form is `{field, operator, value}`. It holds when the value at the path, "
        "or any element of an array there, does what the last column says. What a path is, and what happens "
        "when it leads nowhere, is in [Conditions](../explanation/conditions.md).",
        table(("Operator", "`value`", "Holds when the value"), operators),
    )


def fields() -> str:
    """What the service works out of a call, by the table of it."""
    rows: list[tuple[str, str, str, str]] = []
    for root, members in computed.MEMBERS.items():
        for name, member in members.items():
            lacking = "may be missing: guard it with `has()`" if member.optional else "always there"
            rows.append((code(f"{root}.{name}"), KINDS[member.kind], lacking, member.meaning))
            for key, kind in member.shape.items():
                rows.append((code(f"{root}.{name}.{key}"), KINDS[kind], "of each entry", ""))
    return page(
        "Computed fields",
        "Worked out of the call by the service, only when a policy that may concern the call asks; never "
        "sent by a caller. For field conditions and for expressions. A field condition takes an empty list "
        "for missing; in an expression the list is there and empty.",
        table(("Field", "What it is", "In expressions", "What it has"), rows),
        "A call that goes beyond what can be read of it in bounded time is an ERROR for conditions on what "
        "was read only in part, unless what was read proves them. Its last entry is `unreadable`.",
        "## Tools",
        "`tool.kind` is one of " + ", ".join(map(code, (*TOOL_KINDS, UNKNOWN_KIND))) + ".",
    )


HEADING: Final = ("Key", "Value", "Default", "What it is")
KINDS: Final = {
    "text": "text",
    "number": "number",
    "boolean": "true or false",
    "list": "list of texts",
    "records": "list of objects",
    "object": "an object",
}


def tools() -> str:
    document = schemas.load("documents/tool_set")
    names = document["$defs"]
    return page(
        "Tool sets",
        document["description"],
        "## Keys",
        table(HEADING, _policy_rows(document, names | schemas.load("documents/policy")["$defs"])),
        "## A tool",
        table(HEADING, _policy_rows(names["tool"], names)),
        "## `targets`",
        table(HEADING, _policy_rows(names["targets"], names)),
        "## Which declaration counts",
        "Of several patterns that a name has, the one that says most: a whole name (`=read`) before a part, "
        "more letters before fewer. Of two equal ones that of the organisation's own set, then that of a set "
        "in `tools/`, last that of the shipped library in `tools/library/`; `GET /v1/tools` lists them in "
        "this order.",
    )


def detectors() -> str:
    document = schemas.load("documents/detector")
    names = document["$defs"]
    return page(
        "Detectors",
        document["description"],
        "## Keys",
        table(HEADING, _policy_rows(document, schemas.load("documents/policy")["$defs"] | names)),
        "## `usual`",
        names["usual"]["description"],
        table(HEADING, _policy_rows(names["usual"], names)),
        "## An example",
        names["examples"]["description"],
        table(HEADING, _policy_rows(names["happens"], names)),
        "## How it counts",
        "By the minute: a window reaches back to the beginning of the minute in which it began. With `usual` "
        "windows follow one another. When the threshold is reached an alert is raised; what follows counts "
        "up in it for as long as the threshold stays reached, and for one window after that. A changed "
        "detector goes on with what it has counted, unless it counts something else now.",
    )


def organisation_settings() -> str:
    document = schemas.load("documents/organisation_settings")
    rows = []
    for name, setting in SETTINGS.items():
        shipped = "" if name not in SHIPPED else code(json.dumps(SHIPPED[name]))
        rows.append(
            (code(name), setting.type, shipped, code(json.dumps(setting.default)), setting.description)
        )
    return page(
        "Settings of an organisation",
        document["description"],
        "Set them in the file, with `governance settings set`, or by `PUT /v1/organisation/settings`. "
        "Examples, tests and `lint` go by the samples, so that they hold whatever an organisation sets.",
        table(("Setting", "Value", "While nobody sets it", "Sample", "What it is"), rows),
        "A setting stands in a policy as `{{companyDomains}}`: alone it is the value itself (within a list "
        "its entries), in an expression a literal, in the pattern of `matches` what matches any of them "
        "literally, in a `message` its first entries. An organisation has no other's settings.",
        "## `notifications`",
        document["$defs"]["notifications"]["description"] + " The setting is a mapping of names to channels; "
        "what each sent, and whether something is wrong with it, is under `/v1/notifications/channels`.",
        table(("Key of a channel", "Value", "Default", "What it is"), _channel_keys(document["$defs"])),
    )


def _channel_keys(definitions: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, shape in definitions["channel"]["properties"].items():
        common = definitions[shape["$ref"].rpartition("/")[2]] if "$ref" in shape else {}
        whole = common | shape
        words = whole.get("enum") or whole.get("items", {}).get("enum")
        value = ", ".join(map(code, words)) if words else whole.get("type", "text")
        default = code(json.dumps(whole["default"])) if "default" in whole else ""
        rows.append((code(name), value, default, whole["description"]))
    return rows
