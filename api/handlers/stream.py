"""Server-sent events for people: approvals, decisions, policy changes, halts and grants, as they are
committed.

A stream tells that something changed, not the whole of it: a reader that was cut off reads the lists again
and goes on. It ends when the credential that opened it would no longer be accepted, and when its connection
is wanted (`updates/waits.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.database.transaction import Change
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error, invalid
from api.http.route import VIEWER, Query, Route

KEEP_ALIVE = 4.0
"""Seconds between comments, by which a reader knows that the stream lives, and between looks at the
credential."""

TOPICS = {
    "approval": "approvalId",
    "decision": "toolCallId",
    "policy": "policyId",
    "halt": "haltId",
    "grant": "grantId",
    "alert": "alertId",
    "change": "changeId",
}
"""topic = event name -> how its data names the resource."""


HIDDEN = {"viewer": frozenset({"approval", "change"}), "reviewer": frozenset({"change"})}
"""role -> topics that are not for them."""


async def stream(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/stream, of all events or of those that `events` names."""
    seen = TOPICS.keys() - HIDDEN.get(caller.role, frozenset())
    topics = frozenset(values.query["events"].split(",")) if "events" in values.query else frozenset(seen)
    if unknown := sorted(topics - TOPICS.keys()):
        known = ", ".join(TOPICS)
        raise invalid("/events", f"there is no event `{unknown[0][:40]}`; write some of {known}, with commas")
    if not topics <= seen:
        raise ApiError(
            "forbidden",
            f"`{min(topics - seen)}` is not for the role {caller.role}; leave it out of `events`",
        )
    return Reply(
        stream=_messages(caller, topics, values.headers["authorization"], context),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
    )


async def _messages(
    caller: Caller, topics: frozenset[str], authorization: str, context: Context
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    with context.waits.stream(caller) as ended:
        async with contextlib.aclosing(context.hub.stream(caller.organisation_id, topics, message)) as news:
            coming = asyncio.ensure_future(anext(news))
            try:
                await asyncio.sleep(0)  # the hub knows us now, so nothing after the first line is missed
                yield b"retry: 2000\n: connected\n\n"
                next_look = loop.time() + KEEP_ALIVE
                while True:
                    either: list[asyncio.Future[Any]] = [coming, ended]
                    left = max(0.0, next_look - loop.time())
                    await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    if ended.done():
                        return
                    if loop.time() >= next_look:
                        if not await _still_accepted(caller, authorization, context):
                            return
                        next_look = loop.time() + KEEP_ALIVE
                        yield b": keep-alive\n\n"
                    if not coming.done():
                        continue
                    try:
                        told = coming.result()
                    except StopAsyncIteration:
                        return
                    coming = asyncio.ensure_future(anext(news))
                    yield told
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def message(change: Change) -> bytes:
    """One event of the stream."""
    data = msgspec.json.encode({TOPICS[change.topic]: change.key, **change.data})
    return b"event: " + change.topic.encode() + b"\ndata: " + data + b"\n\n"


async def _still_accepted(caller: Caller, authorization: str, context: Context) -> bool:
    try:
        now = await context.credentials.from_token(authorization.partition(" ")[2].strip())
    except (ApiError, DatabaseUnavailable) as error:
        known = as_api_error(error)
        # A database that is away says nothing about the user; the next look will.
        return known is not None and known.status == 503
    return now == caller


ROUTES = (
    Route(
        "GET",
        "/v1/stream",
        VIEWER,
        stream,
        "Server-sent events: approvals, decisions, policy changes, halts, grants, alerts",
        "service",
        media_type="text/event-stream",
        query=(
            Query(
                "events",
                {"type": "string", "minLength": 1, "maxLength": 100},
                "Only these, with commas between: `approval`, `decision`, `policy`, `halt`, `grant`,"
                " `alert`, `change`.",
            ),
        ),
        description="Events `approval` (for reviewers and admins), `decision`, `policy`, `halt`, `grant`, "
        "`alert`, `change` (for admins), each with JSON data; a comment every 4 seconds. Ends when the token "
        "is not accepted any more, or its connection is wanted; then connect again.",
    ),
)
