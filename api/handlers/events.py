"""Events from agents: checked, handed to the writer, answered when committed."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import perf_counter
from typing import Any, Final

import msgspec

from api import metrics
from api.caller import Caller
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error
from api.http.route import AGENT, Route
from api.ingestion.event import Answer, Incoming, Line
from api.ingestion.quotas import OverQuota
from api.ingestion.validation import split_batch
from api.telemetry import tracing

log = logging.getLogger("governance")

BATCH = "POST /v1/events/batch"
MOST_WORDED: Final = 20
"""Events of a batch that are told all that is wrong with them; the others are told to come again."""


async def create_event(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/events, unless the fast path has answered it: decided and durable on return."""
    begun = perf_counter()
    event = await context.intake.event(caller, values.body)
    if tracing.is_on():
        answer = await _traced(event, context)
    else:
        answer = await context.intake.answer(event)
    metrics.answered(perf_counter() - begun)
    return Reply(answer.content, headers={"Idempotent-Replay": "true"} if answer.replayed else {})


async def _traced(event: Incoming, context: Context) -> Answer:
    """The same with spans: the policies are asked here and not with others', the commit is that of all."""
    about = {"organisation_id": event.caller.organisation_id, "run_id": event.body.runId}
    if event.call is not None:
        with tracing.step("decide", **about, tool_name=event.metadata["toolName"]):
            context.intake.evaluate(event)
    with tracing.step("commit", **about):
        return await context.intake.answer(event)


async def create_events(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/events/batch: answers in order, each with its own result; one bad event spoils no other."""
    intake, raw = context.intake, values.body
    events = await intake.done(caller.key_id, len(raw), partial(split_batch, raw))
    results: list[dict[str, Any]] = []
    for entry in await _handed_over(caller, events, context):
        try:
            if isinstance(entry, Exception):
                raise entry
            answer = await intake.answer_of(entry)
            result: dict[str, Any] = {"status": 200, "answer": msgspec.Raw(answer.content)}
            if answer.replayed:
                result["replayed"] = True
        except Exception as error:
            known = as_api_error(error)
            if known is None:
                log.error("fault in an event of a batch", exc_info=error)
                known = ApiError("internal_error", "the service failed on this event")
            await context.refusals.note(caller, known, BATCH)
            result = {"status": known.status, "error": known.body(values.request_id)}
            error.__traceback__ = None  # which knows this frame, as that knows it; see `ingestion/turns.py`
        results.append(result)
    return Reply({"results": results})


async def _handed_over(
    caller: Caller, events: list[bytes], context: Context
) -> list[asyncio.Future[Answer] | Exception]:
    """The answers of a batch to come, and what was refused. Its calls are evaluated here and not with others,
    the loop going on with others after each slice of all batches."""
    intake = context.intake
    found: list[asyncio.Future[Answer] | Exception] = []
    under_way: list[asyncio.Future[Answer]] = []
    """Those of them that nobody has waited for."""
    refused = 0
    told: set[str] = set()
    """Runs of which the batch says anything: what they have come to is recorded before they start others."""
    changed: set[str] = set()
    """Runs of which the batch says something that policies look at: it is recorded before their calls are
    evaluated."""
    line = Line()
    slices = intake.slices(caller.key_id)
    try:
        for place, raw in enumerate(events):
            try:
                await slices.go_on()
                event = await intake.event(caller, raw, worded=refused < MOST_WORDED)
                event.line, event.place = line, place
                is_looked_at = event.body.runId in changed and event.call is not None
                if is_looked_at or not told.isdisjoint(event.named_runs):
                    slices.rest()
                    await asyncio.wait(under_way)
                    await slices.go_on()
                    for past in (under_way, changed, told):
                        past.clear()
                await intake.make_room(caller.key_id)
                intake.evaluate(event)
                under_way.append(intake.handed_over(event))
                found.append(under_way[-1])
                told.add(event.body.runId)
                if event.body.eventType == "run.started":
                    changed.add(event.body.runId)
            except (ApiError, DatabaseUnavailable, OverQuota) as error:
                refused += 1
                # Its frames lead to `found`, and all of that would wait for the collector.
                error.__context__ = None
                found.append(error.with_traceback(None))
            slices.let_others()
    finally:
        slices.rest()
    return found


ROUTES = (
    Route(
        "POST",
        "/v1/events",
        AGENT,
        create_event,
        "Report an event; a tool call is decided",
        "events",
        body="event",
        counts=True,
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
        counts=True,
        body_as_sent=True,
        reply="event-batch-answer",
        description="Answers in order; one bad event spoils no other. Beyond the first 20 that are refused, "
        "the problems of an event are not told singly.",
    ),
)
