"""The contract as data: every name in it exists in code, in the API document, in a test and in the guide.

The lists below are written out, not imported, so that code which loses a name fails here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import schemas
from api import settings
from api.http.problems import CODES
from api.ingestion.validation import EVENT_TYPES
from api.server import openapi
from api.server.routes import ROUTES
from api.store.webhooks.webhooks import EVENTS as WEBHOOK_EVENTS
from engine import model
from engine.conditions.operators import OPERATORS
from schemas.validation import violations
from tests.harness.hostile import SAMPLES
from tests.harness.places import ROOT

GUIDE = ROOT / "api" / "guide"

CONTRACT = [
    ("GET", "/v1/policies"),
    ("GET", "/v1/policies/:id"),
    ("GET", "/v1/policies/:id/versions"),
    ("POST", "/v1/policies"),
    ("PATCH", "/v1/policies/:id"),
    ("DELETE", "/v1/policies/:id"),
    ("POST", "/v1/policies/simulate"),
    ("GET", "/v1/policy-presets"),
    ("GET", "/v1/policy-presets/packs"),
    ("POST", "/v1/policy-presets/packs/:packId/activate"),
    ("GET", "/v1/approvals"),
    ("POST", "/v1/approvals/:id/approve"),
    ("POST", "/v1/approvals/:id/reject"),
    ("POST", "/v1/events"),
    ("POST", "/v1/webhooks"),
    ("GET", "/v1/webhooks"),
    ("DELETE", "/v1/webhooks/:id"),
    ("GET", "/v1/webhooks/:id/deliveries"),
    ("GET", "/health"),
    ("POST", "/auth/login"),
    ("GET", "/api/docs"),
]
OPERATOR_NAMES = [
    "equals",
    "not_equals",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "starts_with",
    "ends_with",
    "matches",
    "not_matches",
    "greater_than",
    "greater_than_or_equal",
    "less_than",
    "less_than_or_equal",
    "exists",
    "not_exists",
]
ACTIONS = ["allow", "warn", "block", "require_approval"]
INGESTED = ["run.started", "run.completed", "run.failed", "tool.called", "tool.completed", "tool.failed"]
SENT = [
    "approval.requested",
    "approval.progressed",
    "approval.escalated",
    "approval.resolved",
    "tool.blocked",
    "tool.warned",
    "run.completed",
    "run.failed",
    "policy.changed",
    "policy.reload_failed",
    "enforcement.gap",
    "agent.halted",
    "grant.created",
    "grant.revoked",
    "alert.raised",
    "change.requested",
    "change.resolved",
    "webhook.test",
]
SETTINGS = [
    "HOST",
    "PORT",
    "WORKERS",
    "LANES",
    "ENV",
    "DATA_DIR",
    "POLICIES_DIR",
    "DATABASE_URL",
    "FRONTEND_URL",
    "PUBLIC_URL",
    "TRUSTED_PROXIES",
    "JWT_SECRET",
    "JWT_SECRET_BEFORE",
    "TOKEN_SECONDS",
    "ADMIN_EMAIL",
    "ADMIN_PASSWORD",
    "API_KEY",
    "REQUIRE_BOUND_KEYS",
    "WEBHOOK_ALLOW",
    "WEBHOOK_RETRY",
    "MAX_BODY_BYTES",
    "REQUEST_SECONDS",
    "CONNECTIONS",
    "KEY_EVENTS_PER_MINUTE",
    "KEY_BYTES_PER_DAY",
    "KEY_PENDING_APPROVALS",
    "EVENT_DAYS",
    "DELIVERY_DAYS",
    "ALERT_DAYS",
    "AUDIT_DAYS",
    "AUDIT_KEY_FILE",
    "LOG_FORMAT",
    "ACCESS_LOG",
    "METRICS_TOKEN",
    "GIT",
]


@cache
def table(page: str) -> dict[str, str]:
    """The tables of a page of the guide: first column (without backticks) -> the whole line."""
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    return {line.split(" | ")[0].strip("| `"): line for line in text.splitlines() if line.startswith("|")}


@cache
def test_texts() -> str:
    """Everything that tests say: code and case files."""
    files = [
        path
        for path in (ROOT / "tests").rglob("*")
        if path.suffix in {".py", ".yaml", ".js"} and path.name != "test_interface.py"
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


test_texts.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "path"), CONTRACT)
def test_every_endpoint_of_the_contract_is_served(method: str, path: str) -> None:
    assert (method, path) in {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_documented_and_tested(route: Any) -> None:
    document = openapi.document(ROUTES)
    path = re.sub(r":([A-Za-z]+)", r"{\1}", route.path)
    operation = document["paths"][path][route.method.lower()]
    assert str(route.status) in operation["responses"]
    assert f"{route.method} {route.path}" in table("reference/endpoints")
    literal = re.escape(route.path)
    pattern = re.sub(r":[A-Za-z]+", r"[^/\\s\"'`]+", literal)
    assert re.search(pattern, test_texts()), "no test or case names this path"


def test_every_body_that_is_taken_is_mistreated() -> None:
    """A new body needs a sample, from which the hostile tests follow."""
    assert {route.body for route in ROUTES if route.body} == SAMPLES.keys()
    for name, sample in SAMPLES.items():
        assert violations(f"bodies/{name}", sample) == []


def test_operation_ids_are_unique() -> None:
    names = [route.operation_id for route in ROUTES]
    assert len(names) == len(set(names))


def test_every_body_schema_is_used_and_documented() -> None:
    components = openapi.document(ROUTES)["components"]["schemas"]
    bodies = {name for name in schemas.names() if name.startswith("bodies/")}
    assert {openapi.component(name) for name in bodies} <= components.keys()


def test_operators() -> None:
    assert list(OPERATORS) == OPERATOR_NAMES
    documented = schemas.load("documents/policy")["$defs"]["operator"]["enum"]
    assert sorted(documented) == sorted(OPERATOR_NAMES)
    served = openapi.document(ROUTES)["components"]["schemas"]["PolicyDocument"]["$defs"]["operator"]["enum"]
    assert sorted(served) == sorted(OPERATOR_NAMES)
    for name in OPERATOR_NAMES:
        assert name in table("reference/policies")
        assert re.search(rf"operator: {name}\b", test_texts()), f"no case uses `{name}`"


def test_actions() -> None:
    assert sorted(model.ACTIONS) == sorted(ACTIONS)
    served = openapi.document(ROUTES)["components"]["schemas"]["PolicyDocument"]["$defs"]["action"]["enum"]
    assert sorted(served) == sorted(ACTIONS)
    for action in ACTIONS:
        assert action in table("explanation/decision")
        assert re.search(rf"action: {action}\b", test_texts()), f"no case has the action `{action}`"


def test_settings() -> None:
    names = [f"GOVERNANCE_{name}" for name in SETTINGS]
    assert [setting.name for setting in settings.TABLE] == names
    for setting in settings.TABLE:
        line = table("reference/settings")[setting.name]
        assert setting.help in line, f"the guide says something else of {setting.name}"
        assert f"`{setting.default}`" in line or not setting.default
        assert setting.name in test_texts(), f"no test sets {setting.name}"


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_documented_and_tested(code: str) -> None:
    line = table("reference/errors")[code]
    assert f"| {CODES[code][0]} |" in line
    assert re.search(rf"\b{code}\b", test_texts()), f"no test or case expects `{code}`"
    if code not in {"internal_error"}:
        text = str(openapi.document(ROUTES)["paths"])
        assert f"`{code}`" in text or code in {"invalid_request", "method_not_allowed"}


def test_ingested_events() -> None:
    assert sorted(EVENT_TYPES) == sorted(INGESTED)
    served = openapi.document(ROUTES)["components"]["schemas"]["Event"]["properties"]["eventType"]
    for name in [*INGESTED, "custom.x"]:
        assert re.search(served["pattern"], name)
    for name in [*INGESTED, "custom.*"]:
        assert name in table("reference/events")
        assert name.removesuffix("*") in test_texts()


def test_sent_events() -> None:
    assert sorted(WEBHOOK_EVENTS) == sorted(SENT)
    assert list(openapi.document(ROUTES)["webhooks"]) == list(WEBHOOK_EVENTS)
    for name in SENT:
        assert name in table("reference/events")
        assert schemas.load(f"events/{name}")["type"] == "object"
        assert f"{name}" in test_texts()


def test_field_roots() -> None:
    for root in model.ROOTS:
        assert re.search(
            rf"`{root}[`.]", (GUIDE / "explanation" / "conditions.md").read_text(encoding="utf-8")
        ), f"the guide does not tell of the field `{root}`"
