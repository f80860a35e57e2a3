"""The API document: OpenAPI 3.1 from the route table and `schemas/`; nothing is written twice.

A body schema `approval-list` becomes the component `ApprovalList`; references between schema files become
references between components.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import schemas
from api.http.problems import CODES
from api.http.route import Route
from api.metrics import EVENTS_PATH
from api.server.endpoint import KEY_HEADER, PROBLEM
from api.store.webhooks.webhooks import EVENTS
from api.version import VERSION

Json = Any

SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token from POST /auth/login.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "An agent's API key, from POST /v1/api-keys.",
    },
}

TAGS = {
    "events": "What agents report, and the decisions they get.",
    "policies": "The rules, their versions, and what they would do.",
    "presets": "Ready-made policies and packs of them.",
    "tools": "What the service knows of tools.",
    "approvals": "Calls that wait for a person.",
    "changes": "What an admin asked for and another one must agree to.",
    "authzen": "The OpenID Authorization API 1.0, over the same decisions.",
    "runs": "What agents did.",
    "agents": "Who acts.",
    "alerts": "What is unusual, and what is watched for.",
    "webhooks": "Telling other systems.",
    "notifications": "Telling people.",
    "accounts": "People and API keys.",
    "audit": "The record.",
    "grants": "What a person has allowed beyond one call, bounded and revocable.",
    "halts": "The kill switch.",
    "service": "How the service is.",
}

HEADERS: Mapping[str, Mapping[str, Any]] = {
    "Idempotent-Replay": {
        "description": "`true` when the event was known and this is its recorded answer.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "ETag": {"description": "The version, for `If-Match`.", "schema": {"type": "string"}},
    "Link": {"description": 'The next page, `rel="next"` (RFC 8288).', "schema": {"type": "string"}},
    "X-Total-Count": {"description": "How many there are in all.", "schema": {"type": "integer"}},
    "X-Request-Id": {
        "description": "The caller's own id of the request, or a new one.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Governance-Outcome": {
        "description": "What was decided, whatever the host makes of it.",
        "schema": {"enum": ["allowed", "blocked", "waiting", "undecided", "recorded"]},
    },
    KEY_HEADER: {
        "description": "Organisation and id of the API key that asks, which a rotation leaves as they are.",
        "schema": {"type": "string"},
    },
    "Governance-Agent": {
        "description": "To a probe: the agent that the API key is bound to, or nothing.",
        "schema": {"type": "string"},
    },
    "WWW-Authenticate": {"description": "What credential to send.", "schema": {"type": "string"}},
    "Location": {"description": "Where the new resource is.", "schema": {"type": "string"}},
}


DELIVERY_HEADERS: Mapping[str, str] = {
    "webhook-id": "The delivery; the same at every attempt.",
    "webhook-timestamp": "Seconds since 1970 of the attempt.",
    "webhook-signature": "Standard Webhooks: `v1,<base64 of HMAC-SHA256>`, several with spaces between.",
}


def component(name: str) -> str:
    """`bodies/event-answer` -> `EventAnswer`, `documents/policy` -> `PolicyDocument`."""
    folder, _, stem = name.partition("/")
    words = "".join(word.capitalize() for word in re.split(r"[-_.]", stem))
    return words if folder == "bodies" else words + folder.removesuffix("s").capitalize()


def path(route: Route) -> str:
    """The address of a route as the document writes it: `/v1/policies/{id}`."""
    return re.sub(r":([A-Za-z]+)", r"{\1}", route.path)


def error_codes(route: Route) -> tuple[str, ...]:
    """Every error code a route may answer with: those of its shape and those it names itself."""
    codes = ["internal_error", "unavailable", *route.errors]
    if "anyone" not in route.who:
        codes.append("unauthenticated")
        if route.who != {"viewer", "reviewer", "admin"}:
            codes.append("forbidden")
    if "agent" in route.who or route.second_admin:  # policies and people are changed in turns
        codes.append("rate_limited")
    if ":" in route.path:
        codes.append("not_found")
    codes.append("validation_failed")
    if route.body is not None:
        codes += ["invalid_json", "unsupported_media_type"]
    if route.method != "GET":
        codes.append("payload_too_large")
        codes.append("request_timeout")
        codes.append("storage_full")
    return tuple(code for code in CODES if code in codes)


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document for a route table."""
    builder = _Components()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, builder)
        if links := _links(route, routes):
            operation["responses"][str(route.status)]["links"] = links
        paths.setdefault(path(route), {})[route.method.lower()] = operation
    used = {route.tag for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agent Governance Service",
            "version": VERSION,
            "description": "Decides, records and explains every tool call of software agents. Errors are "
            "RFC 9457 problem documents with a stable `code`.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items() if name in used],
        "paths": paths,
        "webhooks": {event: {"post": _sent(event, builder)} for event in EVENTS},
        "components": {
            "schemas": builder.collected(),
            "securitySchemes": SECURITY,
            "headers": {name: dict(header) for name, header in HEADERS.items()},
        },
    }


def _operation(route: Route, builder: _Components) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [route.tag],
        "description": _description(route),
        "responses": _responses(route, builder),
    }
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 300},
        }
        for name in re.findall(r":([A-Za-z]+)", route.path)
    ]
    parameters += [
        {
            "name": query.name,
            "in": "query",
            "required": False,
            "schema": dict(query.schema),
            **({"description": query.description} if query.description else {}),
        }
        for query in route.query
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": builder.reference(f"bodies/{route.body}")}},
        }
    security: list[dict[str, list[str]]] = []
    if route.who & {"viewer", "reviewer", "admin"}:
        security.append({"bearer": []})
    if "agent" in route.who:
        security.append({"apiKey": []})
    operation["security"] = security
    return operation


def _sent(event: str, builder: _Components) -> dict[str, Any]:
    """What a receiver gets of an event."""
    body = {
        "type": "object",
        "required": ["event", "timestamp", "data"],
        "properties": {
            "event": {"const": event},
            "timestamp": {"type": "string", "format": "date-time"},
            "data": builder.reference(f"events/{event}"),
        },
    }
    return {
        "summary": str(schemas.load(f"events/{event}")["description"]),
        "tags": ["webhooks"],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": text,
                "schema": {"type": "string"},
            }
            for name, text in DELIVERY_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "2XX": {"description": "Received. Anything else is tried again."},
            "410": {"description": "Never again: the webhook is disabled."},
        },
        "security": [],
    }


def _description(route: Route) -> str:
    if "anyone" in route.who:
        who = "No credential."
    else:
        roles = [role for role in ("viewer", "reviewer", "admin") if role in route.who]
        parts = ["roles " + ", ".join(roles)] if len(roles) > 1 else [f"role {role}" for role in roles]
        who = "Who: " + " or ".join([*parts, *(["an API key"] if "agent" in route.who else [])]) + "."
    return f"{route.description}\n\n{who}".strip()


def _responses(route: Route, builder: _Components) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done." if route.status == 204 else route.summary}
    says_key = "agent" in route.who and route.path != EVENTS_PATH
    names = ["X-Request-Id", *([KEY_HEADER] if says_key else []), *route.headers]
    success["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if route.reply is not None:
        schema: dict[str, Any] = builder.reference(f"bodies/{route.reply}")
        if route.reply_is_array:
            schema = {"type": "array", "items": schema}
        success["content"] = {route.media_type: {"schema": schema}}
    elif route.status != 204:
        success["content"] = {route.media_type: {"schema": {"type": "string"}}}
    for media_type in route.also_media_types:
        success.setdefault("content", {})[media_type] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {str(status): success for status in (route.status, *route.also_statuses)}
    if route.second_admin:
        responses["202"] = {
            "description": "It waits for another admin, where the organisation asks for two.",
            "headers": {
                name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", "Location")
            },
            "content": {"application/json": {"schema": builder.reference("bodies/change")}},
        }
    by_status: dict[int, list[str]] = {}
    for code in error_codes(route):
        by_status.setdefault(CODES[code][0], []).append(code)
    for status, codes in sorted(by_status.items()):
        text = "; ".join(f"`{code}`: {CODES[code][2]}" for code in codes)
        if str(status) in responses:  # /health answers 503 with its own body
            continue
        headers = ["X-Request-Id"]
        headers += ["WWW-Authenticate"] if status == 401 else []
        headers += ["Retry-After"] if status in (429, 503, 507) else []
        responses[str(status)] = {
            "description": text,
            "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
            "content": {PROBLEM: {"schema": builder.reference("bodies/problem")}},
        }
    return responses


def _links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """From what a route creates to all that can be done with it."""
    if route.status != 201 or route.reply is None or ":" in route.path:
        return {}
    required = schemas.load(f"bodies/{route.reply}")["required"]
    created = next(name for name in required if name.endswith("Id"))
    links: dict[str, Any] = {}
    for other in routes:
        parameters = re.findall(r":([A-Za-z]+)", other.path)
        if other.path.startswith(f"{route.path}/:") and len(parameters) == 1:
            value = f"$response.body#/{created}"
            links[other.operation_id] = {
                "operationId": other.operation_id,
                "parameters": {parameters[0]: value},
            }
    return links


class _Components:
    """Collects the schemas that are referred to, and theirs in turn."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, Any]] = {}

    def reference(self, name: str, fragment: str = "") -> dict[str, Any]:
        if name not in self._wanted:
            schema = schemas.load(name)
            self._wanted[name] = {}
            self._wanted[name] = self._rewritten(schema, name)
        return {"$ref": f"#/components/schemas/{component(name)}{fragment}"}

    def collected(self) -> dict[str, Any]:
        return {component(name): schema for name, schema in sorted(self._wanted.items())}

    def _rewritten(self, value: Json, name: str) -> Any:
        if isinstance(value, list):
            return [self._rewritten(item, name) for item in value]
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        for key, item in value.items():
            if key in ("$schema", "$id", "x-must"):
                continue
            if key == "$ref" and isinstance(item, str):
                file, _, fragment = item.partition("#")
                target = _resolve(name, file) if file else name
                result.update(self.reference(target, fragment))
            else:
                result[key] = self._rewritten(item, name)
        return result


def _resolve(name: str, file: str) -> str:
    parts = name.split("/")[:-1]
    for part in file.removesuffix(".json").split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
