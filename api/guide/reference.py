"""The pages of the reference, made from the tables in the code: `make guide` writes them into `reference/`.

Each page is a function of the tables alone, and a test compares the files with what it gives. What is said of
a setting, an endpoint, a code or a command is said where the thing itself is defined; change it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

import schemas
from api.guide import document_reference as documents
from api.guide.client_reference import client
from api.guide.command_reference import commands
from api.guide.document_reference import kind_of
from api.guide.markdown import code, page, sentence, table
from api.health.exposition import NOTHING_STORED, exposition
from api.http.problems import CODES
from api.ingestion.validation import EVENT_TYPES
from api.server.openapi import TAGS
from api.server.routes import ROUTES
from api.settings import OF_CLIENTS, TABLE
from api.store.webhooks.webhooks import EVENTS

FOLDER: Final = Path(__file__).parent / "reference"

AGENT_EVENTS: Final = {
    "run.started": (
        "`task`, `model`, `reason`, `agentContext`, `parentRunId`, `continuesRunId`",
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

OPEN_LABELS: Final = frozenset({"detector", "method", "organisation", "policy", "route"})
"""Labels whose values are whatever a process has met."""
BUILD_LABELS: Final = frozenset({"python", "revision"})
"""Labels whose one value is that of the machine that makes the page."""


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
            rows.append((code(key), needed, kind_of(value), value.get("description", "")))
        parts += [f"### The data of {code(name)}", table(("Key", "There", "Value", "What it is"), rows)]
    return page("Events", *parts)


def metrics() -> str:
    rows = []
    for family in text_string_to_metric_families(exposition({}, 0, NOTHING_STORED, unindexed=0).decode()):
        if family.name.startswith("governance_"):
            labels: dict[str, list[str]] = {}
            for sample in family.samples:
                if not OPEN_LABELS.isdisjoint(sample.labels):
                    continue
                for label, value in sample.labels.items():
                    if label in BUILD_LABELS:
                        labels[label] = []
                    elif label != "le" and value not in labels.setdefault(label, []):
                        labels[label].append(value)
            shown = "; ".join(
                code(name) + (": " if values else "") + ", ".join(map(code, sorted(values)))
                for name, values in labels.items()
            )
            name = family.name + ("_total" if family.type == "counter" else "")
            rows.append((code(name), family.type, shown, family.documentation))
    return page(
        "Metrics",
        "`GET /metrics` speaks the Prometheus text format; beside these it has the usual `process_*` and "
        "`python_info`. It needs no credential but `GOVERNANCE_METRICS_TOKEN`, where it is set. With several "
        "workers set `PROMETHEUS_MULTIPROC_DIR` to a folder that is empty at start.",
        table(("Name", "Type", "Labels", "What it counts"), sorted(rows)),
    )


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "endpoints": endpoints,
    "events": events,
    "errors": errors,
    "policies": documents.policies,
    "tools": documents.tools,
    "detectors": documents.detectors,
    "organisation-settings": documents.organisation_settings,
    "fields": documents.fields,
    "settings": settings,
    "client": client,
    "commands": commands,
    "metrics": metrics,
}
"""File name in `reference/` -> what it must hold."""


def main() -> None:
    for name, made in PAGES.items():
        (FOLDER / f"{name}.md").write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
