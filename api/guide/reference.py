"""The pages of the reference, made from the tables in the code: `make guide` writes them into `reference/`.

Each page is a function of the tables alone, and a test compares the files with what it gives. What is said of
a setting, an endpoint, a code or a command is said where the thing itself is defined; change it there.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

import schemas
from api.cli.command_line import parser as command_line
from api.guide.markdown import code, page, sentence, table
from api.http.problems import CODES
from api.ingestion.validation import EVENT_TYPES
from api.metrics import exposition
from api.server.openapi import TAGS
from api.server.routes import ROUTES
from api.settings import OF_CLIENTS, TABLE
from api.store.webhooks import EVENTS
from engine.conditions import operands
from engine.conditions.operators import OPERATORS
from engine.conditions.settings import SETTINGS, SHIPPED
from engine.fields import computed
from engine.model import TOOL_KINDS, UNKNOWN_KIND

FOLDER: Final = Path(__file__).parent / "reference"

AGENT_EVENTS: Final = {
    "run.started": (
        "`task`, `model`, `reason`, `agentContext`, `parentRunId`",
        "the run's facts, for conditions on `run.*`; the first one counts",
    ),
    "run.completed": (
        "`cancelApprovals`",
        "the run ends; pending approvals stay, unless `cancelApprovals: true`",
    ),
    "run.failed": ("`cancelApprovals`", "the same"),
    "tool.called": (
        "`toolCallId`, `toolName`, `inputPayload`, `actionHint`, `toolAnnotations`, `reason`, "
        "`agentContext`, `userToken`",
        "**decided**",
    ),
    "tool.completed": (
        "`toolCallId`, `outputPayload`, `inputPayload`",
        "recorded; an enforcement gap when the call was not allowed or ran with another payload",
    ),
    "tool.failed": ("as `tool.completed`", "the same"),
}
"""What an agent may send with each type, which the schema of `metadata` cannot say, and what follows."""

VALUES: Final[Mapping[operands.Check, str]] = {
    operands.check_any: "any JSON value",
    operands.check_list: "a list",
    operands.check_text: "a text",
    operands.check_pattern: "a pattern",
    operands.check_number: "a number",
    operands.check_nothing: "none",
}


def settings() -> str:
    rows = ((code(row.name), code(row.default), row.help) for row in TABLE)
    return page(
        "Settings",
        "Environment variables. `governance serve --help` lists the flags for the common ones; a flag goes "
        "before its variable. A value that does not parse, or a misspelt name, is a refusal to start.",
        table(("Name", "Default", "What it is"), rows),
        "## Of clients",
        "The Python client, the hooks of agent hosts and `governance mcp-proxy` read these beside "
        "`GOVERNANCE_API_KEY`; the service lets them stand.",
        table(("Variable", "What it is"), ((code(name), text) for name, text in OF_CLIENTS.items())),
    )


def _who(who: frozenset[str]) -> str:
    if "anyone" in who:
        return "anyone"
    agents = ["API key"] if "agent" in who else []
    people = sorted(who - {"agent"})
    if len(people) == 3:
        people = ["any role"]
    return ", ".join(sorted(people, reverse=True) + agents)


def endpoints() -> str:
    parts = [
        "Bodies are JSON in camelCase. `GET /api/openapi.json` has every shape, and the page `/api/docs` of "
        "the service shows them interactively. Lists take `limit` and `cursor`; the next page is in `Link` "
        "(RFC 8288), the total in `X-Total-Count`.",
        "Roles: `admin` may all, `reviewer` reads, simulates and resolves approvals, `viewer` reads "
        "policies, presets and runs. Agents use an API key in `X-API-Key`, people a bearer token from "
        "`POST /auth/login`.",
    ]
    for tag, about in TAGS.items():
        rows = []
        for route in ROUTES:
            if route.tag == tag:
                what = sentence(
                    f"{route.summary}. {route.description}" if route.description else route.summary
                )
                if route.query:
                    what += f" Takes {', '.join(code(query.name) for query in route.query)}."
                rows.append((code(f"{route.method} {route.path}"), _who(route.who), what))
        if rows:
            parts += [f"## {tag.capitalize()}", about, table(("Endpoint", "Who", "What"), rows)]
    return page("Endpoints", *parts)


def errors() -> str:
    rows = ((code(name), str(status), meaning) for name, (status, _, meaning) in CODES.items())
    return page(
        "Error codes",
        "Errors are RFC 9457 problem documents: `{type, title, status, detail, code, errors[], requestId}`. "
        "`code` is stable; each of `errors` has the JSON `pointer` of the wrong value and what to do.",
        table(("Code", "Status", "Meaning"), rows),
    )


def _kind(shape: Mapping[str, Any]) -> str:
    """What a JSON Schema admits, in a few words."""
    if "const" in shape:
        return code(str(shape["const"]))
    if "enum" in shape:
        return ", ".join(code(str(value)) for value in shape["enum"])
    kinds = shape.get("type", "any value")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def events() -> str:
    agents = [(code(name), *AGENT_EVENTS[name]) for name in EVENT_TYPES]
    parts = [
        "## Events from agents",
        "`POST /v1/events` takes them. Any other type is refused with 422: a typo must not go ungoverned.",
        table(
            ("Type", "Metadata", "What happens"),
            [
                *agents,
                (
                    "`custom.*`",
                    "anything",
                    "recorded; `custom.user_message` with `message`: what a person wrote to the run",
                ),
            ],
        ),
        "## Webhook events",
        "The body is `{event, timestamp, data}`. Deliveries are signed as "
        "[Standard Webhooks](https://www.standardwebhooks.com) say.",
        table(
            ("Event", "When"),
            ((code(name), schemas.load(f"events/{name}")["description"]) for name in EVENTS),
        ),
    ]
    for name in EVENTS:
        shape = schemas.load(f"events/{name}")
        rows = []
        for key, value in shape["properties"].items():
            needed = "always" if key in shape["required"] else "sometimes"
            rows.append((code(key), needed, _kind(value), value.get("description", "")))
        parts += [f"### The data of {code(name)}", table(("Key", "There", "Value", "What it is"), rows)]
    return page("Events", *parts)


def metrics() -> str:
    rows = []
    for family in text_string_to_metric_families(
        exposition({}, 0, pending=0, unreached=0, unindexed=0).decode()
    ):
        if family.name.startswith("governance_"):
            labels: dict[str, list[str]] = {}
            for sample in family.samples:
                for label, value in sample.labels.items():
                    if label != "le" and value not in labels.setdefault(label, []):
                        labels[label].append(value)
            shown = "; ".join(
                f"`{name}`: {', '.join(map(code, sorted(values)))}" for name, values in labels.items()
            )
            name = family.name + ("_total" if family.type == "counter" else "")
            rows.append((code(name), family.type, shown, family.documentation))
    return page(
        "Metrics",
        "`GET /metrics` speaks the Prometheus text format; beside these it has the usual `process_*` and "
        "`python_info`. It needs no credential, so keep it inside your network. With several workers set "
        "`PROMETHEUS_MULTIPROC_DIR` to a folder that is empty at start.",
        table(("Name", "Type", "Labels", "What it counts"), sorted(rows)),
    )


def _policy_rows(shape: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    required = shape.get("required", ())
    for key, entry in shape["properties"].items():
        inner = names[entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry
        default = inner.get("default")
        there = (
            "required" if key in required else code("" if default is None else json.dumps(default).strip('"'))
        )
        yield code(key), _kind(inner), there, entry.get("description") or inner["description"]


def policies() -> str:
    document = schemas.load("documents/policy")
    names = document["$defs"]
    heading = ("Key", "Value", "Default", "What it is")
    operators = (
        (code(name), VALUES[operator.accepts], operator.meaning) for name, operator in OPERATORS.items()
    )
    return page(
        "Policy files",
        document["description"],
        "## Keys",
        table(heading, _policy_rows(document, names)),
        "## Rate limit",
        names["rateLimit"]["description"],
        table(heading, _policy_rows(names["rateLimit"], names)),
        "## Approval",
        names["approval"]["description"],
        table(heading, _policy_rows(names["approval"], names)),
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
    heading = ("Key", "Value", "Default", "What it is")
    return page(
        "Tool sets",
        document["description"],
        "## Keys",
        table(heading, _policy_rows(document, names | schemas.load("documents/policy")["$defs"])),
        "## A tool",
        table(heading, _policy_rows(names["tool"], names)),
        "## `targets`",
        table(heading, _policy_rows(names["targets"], names)),
        "## Which declaration counts",
        "Of several patterns that a name has, the one that says most: a whole name (`=read`) before a part, "
        "more letters before fewer. Of two equal ones that of the organisation's own set, then that of a set "
        "in `tools/`, last that of the shipped library in `tools/library/`; `GET /v1/tools` lists them in "
        "this order.",
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


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Name of a subcommand -> the line that lists it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {str(each.dest): str(each.help or "") for each in action._choices_actions}
    return {}


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            continue
        value = action.metavar or (
            "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
        )
        shown = value if isinstance(value, str) else " ".join(value)
        flags = ", ".join(action.option_strings)
        name = f"{flags} {shown}" if flags and action.nargs != 0 else flags or shown
        yield code(name), (action.help or "") % {**vars(action), "prog": parser.prog}


def _command(name: str, about: str, parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}"
    yield sentence(parser.description or about)
    if rows := list(_arguments(parser)):
        yield table(("Argument", "What it is"), rows)
    if parser.epilog:
        yield "```text\n" + re.sub(r"\n{3,}", "\n\n", parser.epilog.strip("\n")) + "\n```"
    helps = _helps(parser)
    for below, inner in _subcommands(parser).items():
        yield from _command(f"{name} {below}", helps.get(below, ""), inner, depth + 1)


def commands() -> str:
    whole = command_line()
    helps = _helps(whole)
    rows = [(code(f"governance {name}"), sentence(helps[name])) for name in helps]
    parts = [
        "`governance COMMAND`; each has `--help`. It lies in `.venv/bin`. `DIR` is a folder, `policies.d` "
        "unless said otherwise, or a state in git such as `HEAD~1:policies.d`.",
        table(("Command", "What it does"), rows),
        "```text\n" + (whole.epilog or "").strip() + "\n```",
    ]
    for name, parser in _subcommands(whole).items():
        parts += _command(name, helps.get(name, ""), parser, 2)
    return page("Commands", *parts)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "endpoints": endpoints,
    "events": events,
    "errors": errors,
    "policies": policies,
    "tools": tools,
    "organisation-settings": organisation_settings,
    "fields": fields,
    "settings": settings,
    "commands": commands,
    "metrics": metrics,
}
"""File name in `reference/` -> what it must hold."""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, made in PAGES.items():
        (FOLDER / f"{name}.md").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
