"""Approvals: list, read, wait for, approve, reject."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

from msgspec import Meta

from api.agent_message import approved_message, refused_message, resolved_reason
from api.audit import stored_decision
from api.caller import Caller
from api.context import Context
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.http.exchange import Reply, Values, decode_cursor, encode_cursor, page
from api.http.problems import ApiError, not_found
from api.http.route import AGENT, PAGE_HEADERS, REVIEWER, WAIT, Query, Route, page_query
from api.ingestion.decide import halted
from api.store import approvals, halts
from api.store.notifications import notices

_Cursor = tuple[
    Annotated[str, Meta(pattern=r"^[0-9][0-9TZ:.-]{9,39}\Z")],
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,100}\Z")],
]

WAIT_CHECK = 30.0
"""Seconds between looks at the database while waiting, should a wake-up by another process be lost."""


async def list_approvals(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/approvals"""
    after = decode_cursor(values.query.get("cursor"), _Cursor)  # type: ignore[arg-type]
    items, total, position = await context.store.read(
        approvals.list_approvals,
        caller.organisation_id,
        values.query.get("status"),
        values.query["limit"],
        after,
        values.query["order"] == "asc",
    )
    told = await context.store.read(
        notices.notified, context.store, [approval["approvalId"] for approval in items]
    )
    items = [approval | {"notified": told.get(approval["approvalId"], [])} for approval in items]
    return page(items, total, encode_cursor(position) if position else None, values)


async def get_approval(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/approvals/:id; with `wait`, answers when it is no longer pending, or after the wait."""
    approval_id = values.path["id"]
    deadline = asyncio.get_running_loop().time() + values.query["wait"]
    read = context.reads.read
    with context.waits.place(caller, values.query["wait"]) as ended:
        while True:
            # INVARIANT: listening begins before reading, so that no change falls between the two.
            with context.hub.listening(caller.organisation_id, "approval", approval_id) as changed:
                name = ("approval", approval_id)
                approval = await read(caller, approvals.find_approval, caller, approval_id, name=name)
                if approval is None:
                    raise not_found("approval", approval_id)
                left = deadline - asyncio.get_running_loop().time()
                if approval["status"] != "pending" or left <= 0 or context.hub.closed or ended.done():
                    break
                await asyncio.wait(
                    [changed, ended],
                    timeout=min(left, WAIT_CHECK),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            await context.credentials.recheck(caller)
    if caller.kind == "key" and approval["status"] != "pending":
        why = await read(caller, stored_decision.doubt_of, caller.organisation_id, approval_id)
        if why is not None:
            raise ApiError(
                "conflict", f"{why}; do not act on it: an admin must run `governance audit verify`"
            )
    unseen = approval["status"] == "pending" and approval["seenAt"] is None
    if caller.kind == "user" and unseen and values.query["seen"]:
        await _see(caller, approval_id, context)
    name = ("described", approval_id)
    return Reply(await read(caller, _described, caller, approval_id, context.store, name=name))


async def _see(caller: Caller, approval_id: str, context: Context) -> None:
    """Note who opened it first. A database that takes nothing now must not keep it from being read."""
    with contextlib.suppress(DatabaseUnavailable):
        await context.writer.write(
            lambda transaction: approvals.see(transaction, caller.organisation_id, approval_id, caller.actor)
        )


def _described(caller: Caller, approval_id: str, store: Database) -> dict[str, Any] | None:
    """The approval; for people with who was told of it; for an agent, which acts on it, with the status that
    fits what its call would be answered now. INVARIANT: no API key reads `approved` while a halt covers the
    call."""
    described = approvals.describe_approval(caller, approval_id)
    if described is not None and caller.kind == "user":
        described["notified"] = notices.notified(store, [approval_id]).get(approval_id, [])
    if described is not None and described["status"] == "approved":
        halt = halts.in_force(caller.organisation_id, described["agentId"], described["runId"])
        if halt is not None:
            described["halted"] = halted(halt)
            if caller.kind == "key":
                by = halt["createdBy"]
                described |= {"status": "rejected", "resolvedAt": halt["createdAt"], "resolvedBy": by}
                described |= {"actor": by, "decisionReason": halted(halt)}
    if described is not None and caller.kind == "key":
        described["agentMessage"] = _message(described)
    return described


def _message(approval: dict[str, Any]) -> str:
    """What the model is told that waits for it."""
    tool, reason = approval["toolName"], approval["decisionReason"]
    match approval["status"]:
        case "approved":
            return approved_message(tool)
        case "pending":
            asked = approval["reason"]
            return refused_message(tool, "awaiting_approval", asked, approval_id=approval["approvalId"])
        case "rejected" if "halted" not in approval:
            who = approvals.named(approval["actor"], approval["resolvedBy"])
            reason = resolved_reason("rejected", who, reason)
    return refused_message(tool, "blocked", reason)


async def approve(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/approvals/:id/approve"""
    return await _resolve(caller, values, context, "approved")


async def reject(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/approvals/:id/reject"""
    return await _resolve(caller, values, context, "rejected")


async def _resolve(caller: Caller, values: Values, context: Context, status: str) -> Reply:
    approval_id = values.path["id"]
    body: dict[str, Any] = values.body or {}
    resolution = await context.writer.write(
        lambda transaction: approvals.resolve(
            transaction, caller, approval_id, status, body.get("resolvedBy"), body.get("reason")
        )
    )
    if resolution is None:
        raise not_found("approval", approval_id)
    approval = resolution.approval
    if resolution.outcome == "not_pending":
        who = approvals.named(approval["actor"], approval["resolvedBy"])
        how = {
            "approved": f"approved by {who}",
            "rejected": f"rejected by {who}",
            "expired": f"expired at {approval['expiresAt']}",
            "cancelled": "cancelled",
        }[approval["status"]]
        raise ApiError(
            "approval_not_pending",
            f"the approval `{approval_id}` was already {how}; nothing was changed",
            extra={"approval": approval},
        )
    if resolution.halt is not None:
        halt = resolution.halt
        raise ApiError(
            "conflict",
            f"the call is halted by {halt['createdBy']} ({halt['reason']}), so it cannot be approved;"
            " reject it, or resume first",
            extra={"approval": approval, "halt": halt},
        )
    return Reply(approval)


ROUTES = (
    Route(
        "GET",
        "/v1/approvals",
        REVIEWER,
        list_approvals,
        "List approvals",
        "approvals",
        reply="approval",
        reply_is_array=True,
        query=(
            Query("status", {"type": "string", "enum": list(approvals.STATUSES)}, "Only those."),
            *page_query(100, 1_000),
            Query(
                "order",
                {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
                "Newest first, or oldest first with `asc`.",
            ),
        ),
        headers=PAGE_HEADERS,
        description="`notified` says by which channels people were told of each.",
    ),
    Route(
        "GET",
        "/v1/approvals/:id",
        REVIEWER | AGENT,
        get_approval,
        "Read an approval with its call, or wait for its resolution",
        "approvals",
        reply="approval-detail",
        errors=("conflict",),
        query=(
            WAIT,
            Query(
                "seen",
                {"type": "boolean", "default": True},
                "`false`: a program reads it, and nobody looks.",
            ),
        ),
        description="A reviewer who reads a pending one has seen it (`seenAt`). With `wait`, answers as soon "
        "as it is not pending any more. An API key sees the approvals of its own runs and of the agent that "
        "it is bound to; an approved one reads `rejected`, with the halt as `decisionReason`, while a halt "
        "covers its call.",
    ),
    Route(
        "POST",
        "/v1/approvals/:id/approve",
        REVIEWER,
        approve,
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
        reject,
        "Reject: the call becomes `blocked`",
        "approvals",
        body="resolution",
        body_optional=True,
        reply="approval",
        errors=("approval_not_pending",),
        description="`reason` becomes the call's `blockedReason`. A 409 carries the current state as "
        "`approval`.",
    ),
)
