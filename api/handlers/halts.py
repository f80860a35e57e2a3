"""The kill switch: halt all agents, one agent or one run; resume; see what is halted."""

from __future__ import annotations

from typing import Any

from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values
from api.http.problems import ApiError
from api.http.route import ADMIN, Route
from api.store import halts


def _target(body: dict[str, Any]) -> str:
    """The agent or run that a halt is about; empty for all. The schema has checked that it is there."""
    return str(body.get(f"{body['scope']}Id", ""))


async def list_halts(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/halts: those in force, oldest first."""
    return Reply(await context.store.read(halts.list_halts, caller.organisation_id))


async def halt(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/halt: from the next decision on, every call in scope is blocked."""
    body = values.body
    return Reply(
        await context.writer.write(
            lambda transaction: halts.halt(
                transaction,
                caller.organisation_id,
                body["scope"],
                _target(body),
                body["reason"],
                caller.actor,
            )
        )
    )


async def resume(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/resume: ends the halt of exactly this scope; wider and narrower ones stay."""
    body = values.body
    ended = await context.writer.write(
        lambda transaction: halts.resume(
            transaction, caller.organisation_id, body["scope"], _target(body), caller.actor
        )
    )
    if not ended:
        what = "all agents" if body["scope"] == "all" else f"the {body['scope']} `{_target(body)}`"
        raise ApiError(
            "not_found", f"there is no halt of {what} in force; see GET /v1/halts, and name the same scope"
        )
    return Reply(ended)


ROUTES = (
    Route(
        "GET",
        "/v1/halts",
        ADMIN,
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
        "Halting what is halted answers with the halt in force.",
    ),
    Route(
        "POST",
        "/v1/resume",
        ADMIN,
        resume,
        "End the halt of exactly this scope",
        "halts",
        body="halt-end",
        reply="halt",
        reply_is_array=True,
        errors=("not_found",),
        description="Halts of wider and narrower scopes stay.",
    ),
)
