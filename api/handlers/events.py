"""Events from agents: checked, handed to the writer, answered when committed."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Any

import msgspec

from api import metrics
from api.caller import Caller
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error
from api.http.route import AGENT, Route
from api.ingestion.event import Answer
from api.ingestion.pipeline import validate
from api.ingestion.quotas import OverQuota
from api.ingestion.validation import split_batch

log = logging.getLogger("governance")

BATCH = "POST /v1/events/batch"


async def create_event(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/events, unless `server/event_fast_path.py` has answered it: decided and durable on return."""
    begun = perf_counter()
    answer: Answer = await (await _handed_over(caller, values.body, context))
    metrics.answered(perf_counter() - begun)
    return Reply(answer.content, headers={"Idempotent-Replay": "true"} if answer.replayed else {})


async def create_events(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/events/batch: answers in order, each with its own result; one bad event spoils no other."""
    waiting: list[asyncio.Future[Any] | Exception] = []
    for raw in split_batch(values.body):
        try:
            waiting.append(await _handed_over(caller, raw, context))
        except (ApiError, DatabaseUnavailable, OverQuota) as error:
            waiting.append(error)
    results: list[dict[str, Any]] = []
    for entry in waiting:
        try:
            if isinstance(entry, Exception):
                raise entry
            answer: Answer = await entry
            result: dict[str, Any] = {"status": 200, "answer": msgspec.json.decode(answer.content)}
            if answer.replayed:
                result["replayed"] = True
        except Exception as error:
            known = as_api_error(error)
            if known is None:
                log.error("fault in an event of a batch (request %s)", values.request_id, exc_info=error)
                known = ApiError("internal_error", "the service failed on this event")
            await context.refusals.note(caller, known, BATCH)
            result = {"status": known.status, "error": known.body(values.request_id)}
        results.append(result)
    return Reply({"results": results})


async def _handed_over(caller: Caller, raw: bytes, context: Context) -> asyncio.Future[Any]:
    """One event, checked and evaluated where that is dear: its answer to come."""
    context.quotas.take(caller.key_id, len(raw))
    event = await validate(caller, raw, context.store, context.clock)
    if event.call is not None and context.dear_calls.is_dear(caller.key_id, len(raw)):
        await context.dear_calls.evaluated(event)
    return context.writer.ingested(event, asyncio.get_running_loop())


ROUTES = (
    Route(
        "POST",
        "/v1/events",
        AGENT,
        create_event,
        "Report an event; a tool call is decided",
        "events",
        body="event",
        body_as_sent=True,
        checks_key=True,
        reply="event-answer",
        errors=("event_id_conflict", "tool_call_conflict", "run_conflict", "forbidden"),
        description="`approvalId` and `approvalUrl` are there whenever the call was held for a person.",
        headers=("Idempotent-Replay",),
    ),
    Route(
        "POST",
        "/v1/events/batch",
        AGENT,
        create_events,
        "Report up to 1,000 events",
        "events",
        body="event-batch",
        body_as_sent=True,
        reply="event-batch-answer",
        description="Answers in order; one bad event spoils no other.",
    ),
)
