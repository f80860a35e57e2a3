"""Grants: list, read, exempt a run from labels, revoke; and the terms of one that comes with an approval."""

from __future__ import annotations

from typing import Any

from api.caller import Caller
from api.clock import iso
from api.context import Context
from api.http.exchange import Reply, TimeAndId, Values, decode_cursor, page
from api.http.problems import ApiError, invalid, need
from api.http.route import REVIEWER, VIEWER, Query, Route, page_query
from api.store.grants import granting, reading
from api.store.grants.granting import Terms

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}


async def list_grants(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/grants"""
    names = ("active", "runId", "agentId", "approvalId", "toolName")
    items, total, position = await context.reads.read(
        caller,
        reading.list_grants,
        caller.organisation_id,
        {name: values.query[name] for name in names if name in values.query},
        iso(context.clock()),
        values.query["limit"],
        decode_cursor(values, TimeAndId),
    )
    return page(items, total, position, values)


async def get_grant(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/grants/:id"""
    grant_id = values.path["id"]
    now = iso(context.clock())
    found = await context.reads.read(caller, reading.find_grant, caller.organisation_id, grant_id, now)
    return Reply(need(found, "grant", grant_id))


async def exempt_run(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/grants"""
    body = values.body
    run_id, labels, minutes, reason = (body[name] for name in ("runId", "labels", "minutes", "reason"))
    made = await context.write(
        lambda transaction: granting.exempt(transaction, caller, run_id, labels, minutes, reason)
    )
    if made is None:
        raise invalid("/runId", f"there is no run `{run_id}`; name one that an agent has begun")
    return Reply(made, 201)


async def revoke_grant(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/grants/:id/revoke; one that has ended stays as it is."""
    grant_id, reason = values.path["id"], (values.body or {}).get("reason")
    found = await context.write(lambda transaction: granting.revoke(transaction, caller, grant_id, reason))
    return Reply(need(found, "grant", grant_id))


async def terms_of(caller: Caller, approval_id: str, body: dict[str, Any], context: Context) -> Terms | None:
    """The terms of the grant that an approval is to come with, if any; raises 422 and 409 where
    there can be none."""
    asked = body.get("grant")
    if asked is None:
        return None
    found = await context.reads.read(caller, reading.asked_by, caller.organisation_id, approval_id)
    if found is None:
        raise ApiError(
            "conflict", "it is not on record which policies asked for this approval; approve without `grant`"
        )
    if found.approvers > 1:
        raise invalid(
            "/grant",
            f"{found.approvers} people must approve this call each time, so nobody can grant it; leave"
            " `grant` out",
        )
    await context.newest()
    current = context.live.ruleset(caller.organisation_id).policies
    for policy in found.policies:
        now = current.get(policy["policyId"])
        if now is None or now.version != policy["version"] or now.action != "require_approval":
            raise ApiError(
                "conflict",
                f"the policy `{policy['policyName']}` has changed since it asked, and a grant covers only the"
                " version that asked; approve without `grant`",
            )
    read = context.live.ruleset(caller.organisation_id).roots
    return Terms(asked["scope"], asked["calls"], asked["minutes"], read)


ROUTES = (
    Route(
        "GET",
        "/v1/grants",
        VIEWER,
        list_grants,
        "List grants, newest first",
        "grants",
        reply="grant",
        reply_is_array=True,
        query=(
            Query("active", {"type": "boolean"}, "`true`: only those that may cover a call now."),
            Query("runId", _NAME, "Only those made in this run."),
            Query("agentId", _NAME, "Only those for this agent."),
            Query("approvalId", _NAME, "Only the one made with this approval."),
            Query("toolName", _NAME, "Only those for calls of this tool."),
            *page_query(100, 1_000),
        ),
        description="A grant of `calls` is made with an approval (`POST /v1/approvals/:id/approve` with "
        "`grant`); one of `labels` by `POST /v1/grants`. Simulations and backtests are made without grants.",
    ),
    Route("GET", "/v1/grants/:id", VIEWER, get_grant, "Read a grant", "grants", reply="grant"),
    Route(
        "POST",
        "/v1/grants",
        REVIEWER,
        exempt_run,
        "Exempt a run from labels for some time",
        "grants",
        body="exemption",
        reply="grant",
        status=201,
        errors=("conflict",),
        description="While it lasts, conditions on `run.labels` and `after: {label}` of this run do not see "
        "these labels, except those of policies that block. The run keeps the labels, and runs that it "
        "starts are not exempted.",
    ),
    Route(
        "POST",
        "/v1/grants/:id/revoke",
        REVIEWER,
        revoke_grant,
        "End a grant before its time",
        "grants",
        body="grant-revocation",
        body_optional=True,
        reply="grant",
        description="No later call is covered by it. A grant that has ended stays as it is.",
    ),
)
