"""The kill switch: halt all agents, one agent or one run; resume; see what is halted."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from api.caller import Caller
from api.context import Context
from api.database.errors import DatabaseUnavailable
from api.http.exchange import Reply, Values
from api.http.problems import need
from api.http.route import ADMIN, VIEWER, Route
from api.store import halts

NO_REASON = "no reason was given"
COUNTING: Final = 3.0
"""Seconds that whoever halts waits for how many agents it concerns, which takes longer the more runs there
are."""


def _scope(body: dict[str, Any]) -> tuple[str, str]:
    """What a halt is about, and which agent or run (empty for all); it follows from what is named."""
    for kind in ("agent", "run"):
        if f"{kind}Id" in body:
            return kind, body[f"{kind}Id"]
    return "all", ""


async def _counted(
    context: Context, organisation_id: str, found: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Halts of one scope with `affectedAgents`, counted after the commit, which must not wait for it. Null:
    they could not be counted in time."""
    count = None
    with contextlib.suppress(DatabaseUnavailable, TimeoutError):
        async with asyncio.timeout(COUNTING):
            if found:
                count = await context.store.read(halts.affected_agents, organisation_id, *_scope(found[0]))
    return [each | {"affectedAgents": count} for each in found]


async def list_halts(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/halts: those in force, oldest first."""
    return Reply(await context.store.read(halts.list_halts, caller.organisation_id))


async def halt(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/halt: from the next decision on, every call in scope is blocked."""
    kind, target = _scope(values.body)
    reason = values.body.get("reason", NO_REASON)
    made = await context.write(
        lambda transaction: halts.halt(
            transaction, caller.organisation_id, kind, target, reason, caller.actor
        )
    )
    (counted,) = await _counted(context, caller.organisation_id, [made])
    return Reply(counted)


async def resume(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/resume: ends one halt, or those of exactly one scope; what is not in force stays ended."""
    organisation_id, body = caller.organisation_id, values.body
    halt_id, reason = body.get("haltId"), body.get("reason")
    if halt_id is None:
        kind, target = _scope(body)
        ended = await context.write(
            lambda transaction: halts.resume(transaction, organisation_id, kind, target, caller.actor, reason)
        )
    else:
        need(await context.store.read(halts.find, organisation_id, halt_id), "halt", halt_id)
        ended = await context.write(
            lambda transaction: halts.resume_one(transaction, organisation_id, halt_id, caller.actor, reason)
        )
    return Reply(await _counted(context, organisation_id, ended))


def _state(caller: Caller, values: Values) -> list[dict[str, Any]]:
    """The halts in force that a request to resume is about."""
    body, found = values.body, halts.list_halts(caller.organisation_id)
    if "haltId" in body:
        return [each for each in found if each["haltId"] == body["haltId"]]
    return [each for each in found if _scope(each) == _scope(body)]


ROUTES = (
    Route(
        "GET",
        "/v1/halts",
        VIEWER,
        list_halts,
        "List the halts in force",
        "halts",
        reply="halt",
        reply_is_array=True,
    ),
    Route(
        "POST",
        "/v1/halt",
        ADMIN,
        halt,
        "Halt all agents, one agent or one run",
        "halts",
        body="halt-create",
        reply="halt",
        description="Every call in scope is blocked while it lasts, and no call in scope can be approved. "
        "`{}` halts all agents. Each halt is a record of its own: a call is free when none covers it.",
    ),
    Route(
        "POST",
        "/v1/resume",
        ADMIN,
        resume,
        "End a halt, or all halts of exactly one scope",
        "halts",
        body="halt-end",
        reply="halt",
        reply_is_array=True,
        errors=("not_found",),
        description="Answers what ended, which may be nothing. Halts of wider and narrower scopes stay.",
        second_admin=True,
        state=_state,
    ),
)
