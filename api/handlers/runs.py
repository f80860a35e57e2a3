"""Runs: what agents did, call by call; agents read their own and may wait for news."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.agent_message import refused_message
from api.audit import stored_decision
from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import need
from api.http.route import AGENT, VIEWER, WAIT, Query, Route, page_query
from api.ingestion.decide import halted
from api.store import halts, runs

_encode = msgspec.json.encode
_Cursor: Any = tuple[str, Annotated[int, Meta(ge=1, le=2**62)]]

WAIT_CHECK = 30.0
"""Seconds between looks at the database while waiting, should a wake-up by another process be lost."""


async def list_runs(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/runs"""
    before = decode_cursor(values, _Cursor)
    items, total, position = await context.reads.read(
        caller,
        _listed,
        context.id_index,
        caller,
        values.query.get("status"),
        values.query.get("agentId"),
        values.query["limit"],
        before,
    )
    return page(items, total, position, values)


async def get_run(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/runs/:id; with `wait`, answers at the run's next change: the next one from now on, or, with
    `after`, the next one behind the revision that the caller has seen."""
    run_id = values.path["id"]
    before = decode_cursor(values, _Cursor)
    # Who asks for older calls, by the link of an answer, has seen what there is to wait for.
    wait = values.query["wait"] if before is None else 0
    with context.waits.place(caller, wait) as ended:
        now = await _revision(caller, run_id, context)
        seen = values.query.get("after") or now
        if wait and now == seen:
            look = partial(_changed, caller, run_id, seen, context)
            with context.looks.together((caller, run_id, seen), look) as news:
                await asyncio.wait([news, ended], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    news.result()
            await context.credentials.recheck(caller)
    which = (values.query["limit"], before)
    read = context.reads.read
    found = await read(caller, _found, context, caller, run_id, *which, name=("run", run_id, *which))
    content, total, position = need(found, "run", run_id)
    return page(content, total, position, values)


async def _revision(caller: Caller, run_id: str, context: Context) -> str:
    name = ("revision", run_id)
    found = await context.reads.read(caller, runs.revision, context.id_index, caller, run_id, name=name)
    return need(found, "run", run_id)


async def _changed(caller: Caller, run_id: str, seen: str, context: Context) -> None:
    """Until there is more to read of the run than was seen, or nobody waits any more. Raises what ends that
    for this caller."""
    while True:
        # INVARIANT: listening begins before reading, so that no change falls between the two.
        with context.hub.listening(caller.organisation_id, "run", run_id, caller.holder) as changed:
            if await _revision(caller, run_id, context) != seen or context.hub.closed:
                return
            await asyncio.wait([changed], timeout=WAIT_CHECK)
        await context.credentials.recheck(caller)


def _listed(*arguments: Any) -> tuple[bytes, int, runs.Position | None]:
    """A page of runs as it is sent: to write it may take long, too."""
    items, total, position = runs.list_runs(*arguments)
    return _encode(items), total, position


def _found(
    context: Context, caller: Caller, run_id: str, limit: int, before: runs.Position | None
) -> tuple[bytes, int, runs.Position | None] | None:
    """The run as it is sent, how many calls it has, and where older ones end."""
    found = runs.find_run(context.id_index, caller, run_id, limit, before)
    if found is None:
        return None
    run, position = found
    halt = halts.in_force(caller.organisation_id, run["agentId"], run_id)
    if caller.kind == "key":
        _withhold_doubtful(caller.organisation_id, run["toolCalls"])
    if halt is not None:
        _withhold_halted(run["toolCalls"], halted(halt), caller.kind == "key")
    if caller.kind == "key":
        _tell_why(run["toolCalls"])
    return _encode(run), sum(run["toolCallCounts"].values()), position


def _withhold_doubtful(organisation_id: str, calls: list[dict[str, Any]]) -> None:
    """For an agent, which acts on it, every approval is held against the record."""
    approved = {
        call["approvalId"]: call for call in calls if call["status"] == "allowed" and "approvalId" in call
    }
    for approval_id, why in stored_decision.doubts_of(organisation_id, approved.keys()).items():
        _withhold(approved[approval_id], why)


def _tell_why(calls: list[dict[str, Any]]) -> None:
    """What the model is told of the calls that it may not make."""
    for call in calls:
        status = call["status"]
        if status != "allowed" and "agentMessage" not in call:
            matched, approval_id = _encode(call["matchedPolicies"]).decode(), call.get("approvalId")
            call["agentMessage"] = refused_message(
                call["toolName"], status, call["reason"], matched, approval_id
            )


def _withhold(call: dict[str, Any], why: str) -> None:
    call["status"], call["blockedReason"] = "blocked", why
    call["agentMessage"] = refused_message(call["toolName"], "blocked", why)


def _withhold_halted(calls: list[dict[str, Any]], why: str, blocked: bool) -> None:
    """What an agent was allowed and has not done; it reads what the call would be answered now."""
    for call in calls:
        if call["status"] == "allowed" and call["completedAt"] is None:
            call["halted"] = why
            if blocked:
                _withhold(call, why)


ROUTES = (
    Route(
        "GET",
        "/v1/runs",
        VIEWER | AGENT,
        list_runs,
        "List runs, newest first",
        "runs",
        reply="run-summary",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": list(runs.STATUSES)}, "Only those."),
            Query("agentId", {"type": "string", "minLength": 1, "maxLength": 200}, "Only of this agent."),
            *page_query(100, 1_000),
        ),
        description="An API key sees its own runs and those of the agent that it is bound to.",
    ),
    Route(
        "GET",
        "/v1/runs/:id",
        VIEWER | AGENT,
        get_run,
        "Read a run with its tool calls, or wait for news of it",
        "runs",
        reply="run",
        query=(
            WAIT,
            Query(
                "after",
                {"type": "string", "minLength": 1, "maxLength": 64},
                "The `revision` that was read last: a change since then is answered at once.",
            ),
            *page_query(runs.USUAL_CALLS, runs.MOST_CALLS),
        ),
        description="Holds the newest `limit` of its calls, in the order reported, and `toolCallCounts` of "
        "all; `Link` leads to older ones. With `wait`, answers at the run's next change. Give the `revision` "
        "of the last answer as `after`, so that nothing falls between two waits. While a halt lasts, an API "
        "key reads the calls that it covers as `blocked`.",
    ),
)
