"""Every webhook event has a schema of its `data`, and what the service sends obeys it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

import schemas
from api.store.webhooks import webhooks

FOUR = {"runId": "r", "toolCallId": "c", "toolName": "t", "agentId": "a"}
MADE = {
    "grantId": "grt",
    "runId": "r",
    "agentId": "a",
    "keyId": "key",
    "reason": "looked at",
    "createdAt": "2026-01-31T09:30:00Z",
    "createdBy": "admin@localhost",
    "expiresAt": "2026-01-31T09:40:00Z",
}
EXEMPTION = MADE | {"kind": "labels", "scope": "run", "labels": ["secret"]}
GRANT = MADE | {
    "kind": "calls",
    "scope": "agent",
    "calls": 5,
    "toolName": "t",
    "payloadDigest": "d",
    "policies": [{"policyId": "p", "policyName": "P", "version": 1}],
    "approvalId": "apr",
    "toolCallId": "c",
}
_CHANGE = {"changeId": "c", "operation": "PATCH /x", "subject": "p", "requestedBy": "a@x", "actor": "b@x"}
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "approval.requested": [FOUR | {"approvalId": "apr", "policyName": "p"}],
    "approval.progressed": [
        FOUR | {"approvalId": "apr", "policyName": "p", "approvers": 2, "approvedBy": ["a@x"], "actor": "a@x"}
    ],
    "approval.escalated": [
        FOUR
        | {"approvalId": "apr", "policyName": "p"}
        | {"escalatedAt": "2026-01-31T09:30:00Z", "expiresAt": "2026-01-31T10:30:00Z"}
    ],
    "approval.resolved": [
        FOUR
        | {"approvalId": "apr", "policyName": "p", "status": status, "resolvedAt": "2026-01-31T09:30:00Z"}
        for status in ("approved", "rejected", "expired", "cancelled")
    ],
    "tool.blocked": [FOUR | {"policyName": "p", "reason": "because"}],
    "tool.warned": [FOUR | {"policyName": "p", "reason": "because"}],
    "run.completed": [{"runId": "r", "agentId": "a", "status": "completed"}],
    "run.failed": [{"runId": "r", "agentId": "a", "status": "failed"}],
    "policy.changed": [
        {
            "policyId": "p",
            "name": "P",
            "change": change,
            "version": 2,
            "policyRevision": 7,
            "source": "api",
            "actor": "admin@localhost",
        }
        for change in ("created", "updated", "deleted")
    ],
    "policy.reload_failed": [
        {
            "policyRevision": 7,
            "count": 1,
            "errors": [{"file": "policies/a.yaml", "line": 3, "column": 1, "message": "what is wrong"}],
        }
    ],
    "enforcement.gap": [{"runId": "r", "toolCallId": "c", "agentId": "a", "reason": "it was blocked"}],
    "agent.halted": [
        {"haltId": "h", "scope": "all", "createdAt": "2026-01-31T09:30:00Z", "createdBy": "admin@localhost"},
        {
            "haltId": "h",
            "scope": "agent",
            "agentId": "a",
            "reason": "loops",
            "createdAt": "2026-01-31T09:30:00Z",
            "createdBy": "admin@localhost",
        },
    ],
    "grant.created": [GRANT, EXEMPTION],
    "grant.revoked": [
        each | {"revokedAt": "2026-01-31T09:30:00Z", "revokedBy": "admin@localhost"}
        for each in (GRANT, EXEMPTION)
    ],
    "alert.raised": [
        {
            "alertId": "t",
            "detectorId": "d",
            "name": "D",
            "severity": "high",
            "summary": "12 different tools of the agent `a`",
            "per": "agentId",
            "subject": "a",
            "count": 12,
            "raisedAt": "2026-01-31T09:30:00Z",
        }
    ],
    "change.requested": [_CHANGE | {"status": "pending"}],
    "change.resolved": [_CHANGE | {"status": status} for status in ("approved", "rejected", "expired")],
    "webhook.test": [{"webhookId": "w", "message": "hello"}],
}


def schema_of(event: str) -> dict[str, Any]:
    return schemas.load(f"events/{event}")


def test_there_is_one_schema_per_event() -> None:
    named = [name.removeprefix("events/") for name in schemas.names() if name.startswith("events/")]
    assert sorted(webhooks.EVENTS) == named == sorted(SAMPLES)


@pytest.mark.parametrize("event", webhooks.EVENTS)
def test_schema_accepts_the_event_and_nothing_less(event: str) -> None:
    schema = schema_of(event)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for sample in SAMPLES[event]:
        validator.validate(sample)
        for key in schema["required"]:
            assert not validator.is_valid({name: value for name, value in sample.items() if name != key})
        assert not validator.is_valid(sample | {"more": 1})


@pytest.mark.parametrize("event", webhooks.EVENTS)
def test_every_member_of_an_event_says_what_it_is(event: str) -> None:
    schema = schema_of(event)
    assert schema["title"] and schema["description"]
    assert schema["$id"] == f"events/{event}.json"
    assert set(schema["required"]) <= set(schema["properties"])


def test_bodies_name_the_same_events() -> None:
    assert schemas.load("bodies/webhook")["properties"]["events"]["items"]["enum"] == list(webhooks.EVENTS)
    assert schemas.load("bodies/delivery")["properties"]["event"]["enum"] == list(webhooks.EVENTS)
    told = schemas.load("bodies/webhook-create")["properties"]["events"]["description"]
    assert all(f"`{event}`" in told for event in webhooks.EVENTS)


@pytest.mark.parametrize(
    "name", ["webhook", "webhook-create", "webhook-created", "webhook-update", "delivery"]
)
def test_schemas_of_bodies_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.load(f"bodies/{name}"))
