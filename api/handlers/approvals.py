"""Approvals: list, read, wait for, approve, reject."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from api.agent_message import approved_message, refused_message, resolved_reason
from api.audit import stored_decision
from api.caller import Caller
from api.context import Context
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.transaction import Transaction
from api.handlers import grants
from api.http.exchange import Reply, TimeAndId, Values, decode_cursor, page
from api.http.problems import ApiError, need
from api.http.route import AGENT, ORDER, REVIEWER, WAIT, Query, Route, page_query
from api.ingestion.decide import halted
from api.store import approvals, halts
from api.store.approvals import Resolution
from api.store.grants.granting import grant_calls
from api.store.notifications import notices
from api.store.review import reading

WAIT_CHECK = 30.0
"""Seconds between looks at the database while waiting, should a wake-up by another process be lost."""


async def list_approvals(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/approvals"""
    after = decode_cursor(values, TimeAndId)
    sought = {name: values.query[name] for name in (*_EXACTLY, "search") if name in values.query}
    items, total, position = await context.reads.read(
        caller,
        reading.list_approvals,
        caller.organisation_id,
        values.query.get("status"),
        values.query["limit"],
        after,
        values.query["order"] == "asc",
        sought,
    )
    ids = [approval["approvalId"] for approval in items]
    told = await context.reads.read(caller, notices.notified, context.store, ids)
    items = [approval | {"notified": told.get(approval["approvalId"], [])} for approval in items]
    return page(items, total, position, values)


async def get_approval(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/approvals/:id; with `wait`, answers when it is no longer pending, or after the wait."""
    approval_id = values.path["id"]
    deadline = asyncio.get_running_loop().time() + values.query["wait"]
    read = context.reads.read
    with context.waits.place(caller, values.query["wait"]) as ended:
        while True:
            # INVARIANT: listening begins before reading, so that no change falls between the two.
            name = ("approval", approval_id)
            with context.hub.listening(caller.organisation_id, *name, caller.holder) as changed:
                found = await read(caller, reading.find_approval, caller, approval_id, name=name)
                approval = need(found, "approval", approval_id)
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
        await context.credentials.recheck(caller)  # which may have ended before somebody said yes
        why = await read(caller, stored_decision.doubt_of, caller.organisation_id, approval_id)
        if why is not None:
            raise ApiError("conflict", f"{why}; do not act on it")
    unseen = approval["status"] == "pending" and approval["seenAt"] is None
    if caller.kind == "user" and unseen and values.query["seen"]:
        await _see(caller, approval_id, context)
    name = ("described", approval_id)
    return Reply(await read(caller, _described, caller, approval_id, context.store, name=name))


async def _see(caller: Caller, approval_id: str, context: Context) -> None:
    """Note who opened it first. A database that takes nothing now must not keep it from being read."""
    with contextlib.suppress(DatabaseUnavailable):
        await context.write(
            lambda transaction: approvals.see(transaction, caller.organisation_id, approval_id, caller.actor)
        )


def _described(caller: Caller, approval_id: str, store: Database) -> dict[str, Any] | None:
    """The approval; for people with who was told of it; for an agent, which acts on it, with the status that
    fits what its call would be answered now. INVARIANT: no API key reads `approved` while a halt covers the
    call."""
    described = reading.describe_approval(caller, approval_id)
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
    terms = await grants.terms_of(caller, approval_id, body, context)

    def job(transaction: Transaction) -> Resolution | None:
        found = approvals.resolve(
            *(transaction, caller, approval_id, status),
            *(body.get(name) for name in ("resolvedBy", "reason", "payloadDigest")),
        )
        if terms is not None and found is not None and found.outcome == "resolved":
            made = grant_calls(transaction, caller, approval_id, terms, body.get("reason"))
            found.approval["grant"] = made
        return found

    resolution = need(await context.write(job), "approval", approval_id)
    if (refusal := _refusal(resolution)) is not None:
        raise refusal
    return Reply(resolution.approval)


def _refusal(resolution: Resolution) -> ApiError | None:
    """The error of a resolution that changed nothing."""
    approval = resolution.approval
    approval_id, extra = approval["approvalId"], {"approval": approval}
    match resolution.outcome:
        case "not_pending":
            detail = (
                f"the approval `{approval_id}` was already {_how_it_ended(approval)}; nothing was changed"
            )
            return ApiError("approval_not_pending", detail, extra=extra)
        case "halted":
            halt = resolution.halt or {}
            detail = (
                f"the call is halted by {halt['createdBy']} ({halt['reason']}), so it cannot be approved;"
                " reject it, or resume first"
            )
            return ApiError("conflict", detail, extra=extra | {"halt": halt})
        case "refused":
            return ApiError("forbidden", resolution.why, extra=extra, kind="approver")
        case "repeated":
            detail = f"you have approved it already; {approval['approvers']} different people must"
            return ApiError("conflict", detail, extra=extra)
        case "other_payload":
            detail = (
                f"the call has the payload digest `{resolution.why}`, not the one that was shown; nothing was"
                " changed, read the approval again"
            )
            return ApiError("conflict", detail, extra=extra)
    return None


def _how_it_ended(approval: dict[str, Any]) -> str:
    who = approvals.named(approval["actor"], approval["resolvedBy"])
    return {
        "approved": f"approved by {who}",
        "rejected": f"rejected by {who}",
        "expired": f"expired at {approval['expiresAt']}",
        "cancelled": "cancelled",
    }[approval["status"]]


_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}
_EXACTLY = {"agentId": "agent", "toolName": "tool", "policyId": "policy"}

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
            Query("status", {"type": "string", "enum": list(reading.STATUSES)}, "Only those."),
            *(Query(name, _TEXT, f"Only those of this {what}.") for name, what in _EXACTLY.items()),
            Query("search", _TEXT, "Words that stand in what it is about, in names, ids or the reason."),
            *page_query(100, 1_000),
            ORDER,
        ),
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
        description="A 403 or 409 carries the current state as `approval`. While a halt covers the call, "
        "approving is a 409 `conflict`, and so is a `payloadDigest` that is not the call's. Where several "
        "must approve (`approvers`), the approval stays `pending` until the last of them has. Whoever asked "
        "for the call - the user whom its API key is bound to, or whose token it carried - cannot approve it "
        "unless its policy says `allowSelf` (403). With `grant` the same call may be made again without "
        "asking, unless several must approve: see `/v1/grants`.",
    ),
    Route(
        "POST",
        "/v1/approvals/:id/reject",
        REVIEWER,
        reject,
        "Reject: the call becomes `blocked`",
        "approvals",
        body="rejection",
        body_optional=True,
        reply="approval",
        errors=("approval_not_pending", "conflict"),
        description="One who rejects is enough. `reason` becomes the call's `blockedReason`. A 409 carries "
        "the current state as `approval`.",
    ),
)
