"""THE table: method, path, who may, schemas, handler. Routing, the API document and tests all read it.

`GET /` and the console's files are no API and live in `app.py`.
"""

from __future__ import annotations

from api.endpoint import AGENT, ANYONE, Route
from api.handlers import docs, events

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
