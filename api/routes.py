"""THE table: method, path, who may, schemas, handler. Routing, the API document and tests all read it.

`GET /` and the console's files are no API and live in `app.py`.
"""

from __future__ import annotations

from typing import Any

from api.endpoint import ADMIN, AGENT, ANYONE, REVIEWER, VIEWER, Query, Route
from api.handlers import approvals, audit, docs, events, halts, health, runs, stream
from api.metrics import MEDIA_TYPE as METRICS
from api.store.approvals import STATUSES as APPROVAL_STATUSES
from api.store.runs import STATUSES as RUN_STATUSES

PAGE_HEADERS = ("X-Total-Count", "Link")
_CURSOR = Query("cursor", {"type": "string", "maxLength": 400}, "From the `Link` header of the page before.")
_WAIT = Query(
    "wait",
    {"type": "integer", "minimum": 0, "maximum": 240, "default": 0},
    "Seconds to wait for news at most.",
)


def _page(default: int, most: int) -> tuple[Query, Query]:
    """The parameters of a list that comes in pages."""
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return Query("limit", schema, "How many at most."), _CURSOR


def _order(default: str, description: str) -> Query:
    schema: dict[str, Any] = {"type": "string", "enum": ["asc", "desc"], "default": default}
    return Query("order", schema, description)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/events",
        AGENT,
        events.create_event,
        "Report an event; a tool call is decided",
        "events",
        body="event",
        reply="event-answer",
        errors=("event_id_conflict", "tool_call_conflict", "run_conflict", "forbidden"),
        description="`approvalId` and `approvalUrl` are there whenever the call was held for a person.",
        headers=("Idempotent-Replay",),
    ),
    Route(
        "POST",
        "/v1/events/batch",
        AGENT,
        events.create_events,
        "Report up to 1,000 events",
        "events",
        body="event-batch",
        reply="event-batch-answer",
        description="Answers in order; one bad event spoils no other.",
    ),
    Route(
        "GET",
        "/v1/approvals",
        REVIEWER,
        approvals.list_approvals,
        "List approvals",
        "approvals",
        reply="approval",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": list(APPROVAL_STATUSES)}, "Only those."),
            *_page(100, 1_000),
            _order("desc", "Newest first, or oldest first with `asc`."),
        ),
        headers=PAGE_HEADERS,
    ),
    Route(
        "GET",
        "/v1/approvals/:id",
        REVIEWER | AGENT,
        approvals.get_approval,
        "Read an approval with its call, or wait for its resolution",
        "approvals",
        reply="approval-detail",
        query=(_WAIT,),
        description="With `wait`, answers as soon as it is not pending any more. An API key sees the "
        "approvals of its own runs and of the agent that it is bound to.",
    ),
    Route(
        "POST",
        "/v1/approvals/:id/approve",
        REVIEWER,
        approvals.approve,
        "Approve: the call becomes `allowed`",
        "approvals",
        body="resolution",
        body_optional=True,
        reply="approval",
        errors=("approval_not_pending", "conflict"),
        description="A 409 carries the current state as `approval`. While a halt covers the call, approving "
        "is a 409 `conflict`.",
    ),
    Route(
        "POST",
        "/v1/approvals/:id/reject",
        REVIEWER,
        approvals.reject,
        "Reject: the call becomes `blocked`",
        "approvals",
        body="resolution",
        body_optional=True,
        reply="approval",
        errors=("approval_not_pending",),
        description="`reason` becomes the call's `blockedReason`. A 409 carries the current state as "
        "`approval`.",
    ),
    Route(
        "GET",
        "/v1/runs",
        VIEWER | AGENT,
        runs.list_runs,
        "List runs, newest first",
        "runs",
        reply="run-summary",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": list(RUN_STATUSES)}, "Only those."),
            Query("agentId", {"type": "string", "minLength": 1, "maxLength": 200}, "Only of this agent."),
            *_page(100, 1_000),
        ),
        headers=PAGE_HEADERS,
        description="An API key sees its own runs and those of the agent that it is bound to.",
    ),
    Route(
        "GET",
        "/v1/runs/:id",
        VIEWER | AGENT,
        runs.get_run,
        "Read a run with its tool calls, or wait for news of it",
        "runs",
        reply="run",
        query=(_WAIT,),
        description="With `wait`, answers as soon as anything happens in the run; at once when no call of "
        "it awaits approval.",
    ),
    Route(
        "GET",
        "/v1/halts",
        ADMIN,
        halts.list_halts,
        "List the halts in force",
        "halts",
        reply="halt",
        reply_is_array=True,
    ),
    Route(
        "POST",
        "/v1/halt",
        ADMIN,
        halts.halt,
        "Halt all agents, one agent or one run",
        "halts",
        body="halt-create",
        reply="halt",
        description="Every call in scope is blocked while it lasts, and no call in scope can be approved. "
        "Halting what is halted answers with the halt in force.",
    ),
    Route(
        "POST",
        "/v1/resume",
        ADMIN,
        halts.resume,
        "End the halt of exactly this scope",
        "halts",
        body="halt-end",
        reply="halt",
        reply_is_array=True,
        errors=("not_found",),
        description="Halts of wider and narrower scopes stay.",
    ),
    Route(
        "GET",
        "/v1/audit",
        ADMIN,
        audit.list_audit,
        "Read or export the audit log",
        "audit",
        reply="audit-record",
        reply_is_array=True,
        query=(
            Query("since", {"type": "string", "maxLength": 64}, "ISO 8601; this moment or later."),
            Query("until", {"type": "string", "maxLength": 64}, "ISO 8601; before this moment."),
            Query("agentId", {"type": "string", "maxLength": 200}, "Only of this agent."),
            Query("userId", {"type": "string", "maxLength": 200}, "Only of this verified end user."),
            Query("type", {"type": "string", "maxLength": 100}, "Only of this type, such as `decision`."),
            Query("decision", {"type": "string", "maxLength": 100}, "Only with this decision."),
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 1_000_000}, "See below."),
            _CURSOR,
            Query("order", {"type": "string", "enum": ["asc", "desc"]}, "By time; see below."),
            Query("format", {"type": "string", "enum": ["json", "jsonl"], "default": "json"}, "See below."),
        ),
        headers=PAGE_HEADERS,
        also_media_types=(audit.NDJSON,),
        description="`json`: a page of at most `limit` (100, at most 1,000), newest first. `jsonl`: an "
        "export of all that match, oldest first, one record a line exactly as hashed.",
    ),
    Route(
        "GET",
        "/v1/audit/verify",
        ADMIN,
        audit.verify_audit,
        "Verify the hash chain",
        "audit",
        reply="audit-verification",
    ),
    Route(
        "GET",
        "/v1/stream",
        REVIEWER,
        stream.stream,
        "Server-sent events: approvals, decisions, policy changes, halts",
        "service",
        media_type="text/event-stream",
        description="Events `approval`, `decision`, `policy`, `halt`, each with JSON data; a comment every "
        "15 seconds. Ends when the token is not accepted any more.",
    ),
    Route(
        "GET",
        "/health",
        ANYONE,
        health.health,
        "Whether the service can decide and record",
        "service",
        reply="health",
        also_statuses=(503,),
    ),
    Route(
        "GET",
        "/health/live",
        ANYONE,
        health.live,
        "Whether the process answers",
        "service",
        reply="health-status",
    ),
    Route(
        "GET",
        "/health/ready",
        ANYONE,
        health.ready,
        "Whether requests should be sent here",
        "service",
        reply="health-status",
        also_statuses=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        ANYONE,
        health.prometheus,
        "Prometheus metrics",
        "service",
        media_type=METRICS,
    ),
    Route(
        "GET",
        "/api/openapi.json",
        ANYONE,
        docs.api_document,
        "This document",
        "service",
        description="OpenAPI 3.1, made from the route table and the schemas.",
        reply="open-api-document",
    ),
    Route(
        "GET",
        "/api/docs",
        ANYONE,
        docs.api_docs,
        "Interactive API documentation",
        "service",
        media_type="text/html",
    ),
    Route(
        "GET",
        "/api/docs/:asset",
        ANYONE,
        docs.api_docs_asset,
        "A file of the documentation page",
        "service",
        media_type="text/javascript",
    ),
)
