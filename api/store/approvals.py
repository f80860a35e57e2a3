"""Approvals: what waits for a reviewer, and the one way out of waiting.

An approval is resolved (`approved`, `rejected`) by a person, or ends by itself: `expired` when its policy set
a time, `cancelled` when its run ended. Whatever ends it, the approval, its tool call, the audit record, the
webhook rows and the wake-up go together in one transaction.

INVARIANT: only a pending approval changes, and only once; the update itself asks for `pending`, so of two
reviewers exactly one wins. One whose time is over is never approved, also before the sweeper has come by.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from peewee import JOIN, SQL

from api import metrics
from api.agent_message import resolved_reason
from api.caller import Caller
from api.database.id_index import IdIndex
from api.database.models import Approval, CallTable, Event, Organisation, Run
from api.database.transaction import Transaction
from api.store import halts, run_values
from api.store.call_facts import asserted, facts_of_run, input_payload, whole

log = logging.getLogger("governance")

STATUSES = ("pending", "approved", "rejected", "expired", "cancelled")
SERVICE = "service"
"""The actor of what no person did."""
MOST_AT_ONCE = 500
IS_PENDING = Approval.status == SQL("'pending'")
"""Written as a literal, which lets the small index of those that expire serve it."""

Position = tuple[str, str]
"""Where a page ends: `requestedAt` and `approvalId` of its last approval."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """How an attempt to resolve ended: `resolved`, `not_pending` or `halted`, and the approval as it is now.

    It is returned, not raised, because an attempt that comes too late still records the expiry.
    """

    outcome: str
    approval: dict[str, Any]
    halt: dict[str, Any] | None = None


def _approval(row: Approval) -> dict[str, Any]:
    """The contract's fields, then ours."""
    return {
        "approvalId": row.approval_id,
        "runId": row.run_id,
        "toolCallId": row.tool_call_id,
        "policyId": row.policy_id,
        "status": row.status,
        "reason": row.reason,
        "requestedAt": row.requested_at,
        "resolvedAt": row.resolved_at,
        "resolvedBy": row.resolved_by,
        "decisionReason": row.decision_reason,
        "agentId": row.agent_id,
        "toolName": row.tool_name,
        "policyName": row.policy_name,
        "actor": row.actor,
        "expiresAt": row.expires_at,
        "about": None if row.about is None else msgspec.json.decode(row.about),
        "seenAt": row.seen_at,
        "seenBy": row.seen_by,
    }


# Reading ------------------------------------------------------------------------------------------


def list_approvals(
    organisation_id: str, status: str | None, limit: int, after: Position | None, ascending: bool
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page by time of request, how many there are in all, and where the next page begins, if any."""
    statuses = STATUSES if status is None else (status,)
    chosen = (Approval.organisation_id == organisation_id) & Approval.status.in_(statuses)
    total = Approval.select().where(chosen).count()
    # Each status has its own order in the index; a page of all of them is put together from theirs.
    # INVARIANT: `pending`, which is all that changes, is read first. So nothing is left out, and what was
    # resolved meanwhile, and is read twice, is told as it is now.
    pages = [_page(organisation_id, each, limit + 1, after, ascending) for each in statuses]
    rows = list({row.approval_id: row for row in chain.from_iterable(pages)}.values())
    rows.sort(key=lambda row: (row.requested_at, row.approval_id), reverse=not ascending)
    rows, more = rows[:limit], len(rows) > limit
    position = (rows[-1].requested_at, rows[-1].approval_id) if more else None
    return [_approval(row) for row in rows], int(total), position


def _page(
    organisation_id: str, status: str, limit: int, after: Position | None, ascending: bool
) -> list[Approval]:
    chosen = (Approval.organisation_id == organisation_id) & (Approval.status == status)
    if after is not None:
        at, approval_id = after
        if ascending:
            further = (Approval.requested_at > at) | (
                (Approval.requested_at == at) & (Approval.approval_id > approval_id)
            )
        else:
            further = (Approval.requested_at < at) | (
                (Approval.requested_at == at) & (Approval.approval_id < approval_id)
            )
        chosen &= further
    keys = (Approval.requested_at, Approval.approval_id)
    order = keys if ascending else tuple(key.desc() for key in keys)
    return list(Approval.select().where(chosen).order_by(*order).limit(limit))


def is_own(caller: Caller, key_id: str | None, agent_id: str) -> bool:
    """People see what their role lets them see; an API key sees its own runs and those of its agent."""
    return caller.kind != "key" or key_id == caller.key_id or caller.agent_id == agent_id


def find_approval(caller: Caller, approval_id: str) -> dict[str, Any] | None:
    """The approval without its call; None when the caller may not know of it."""
    row = (
        Approval.select(Approval, Run.key_id.alias("run_key_id"))
        .join(Run, JOIN.LEFT_OUTER, on=(Run.run_no == Approval.run_no))
        .where((Approval.approval_id == approval_id) & (Approval.organisation_id == caller.organisation_id))
        .objects()
        .first()
    )
    if row is None or not is_own(caller, row.run_key_id, row.agent_id):
        return None
    return _approval(row)


def describe_approval(caller: Caller, approval_id: str) -> dict[str, Any] | None:
    """The approval with everything a reviewer needs to judge the call; None as in `find_approval`.

    `asserted` is what the agent says of the call, its context else that of its run, and the run's task.
    `user` is who the service itself verified, and absent when nobody was.
    """
    approval = find_approval(caller, approval_id)
    if approval is None:
        return None
    found = (
        CallTable.select(
            *(CallTable.matched, CallTable.facts, CallTable.policy_revision, Event.body),
            *(Run.task, Run.model, Run.agent_context),
        )
        .join(Event, JOIN.LEFT_OUTER, on=(Event.event_no == CallTable.event_no))
        .join(Approval, on=(Approval.call_no == CallTable.call_no))
        .join(Run, JOIN.LEFT_OUTER, on=(Run.run_no == CallTable.run_no))
        .where(Approval.approval_id == approval_id)
        .tuples()
        .first()
    )
    if found is None:
        return approval
    matched, facts_text, revision, body, *of_run = found
    facts = whole(msgspec.json.decode(facts_text), facts_of_run(*of_run))
    run, said = facts.get("run") or {}, asserted(facts)
    approval |= {
        "inputPayload": input_payload(body),
        "asserted": said
        | {name: run[name] for name in ("task", "agentContext") if name in run and name not in said},
        "matchedPolicies": msgspec.json.decode(matched),
        "policyRevision": revision,
    }
    if user := facts.get("user"):
        approval["user"] = {name: user[name] for name in ("id", "email") if name in user}
    if delegation := facts.get("delegation"):
        approval["delegationChain"] = delegation["chain"]
    return approval


def count_pending() -> int:
    """Over all organisations, for the metrics."""
    # By organisation, since the index begins with it.
    organisations = Organisation.select(Organisation.organisation_id)
    return int(Approval.select().where(Approval.organisation_id.in_(organisations) & IS_PENDING).count())


def anything_due(at: str) -> bool:
    """True when `expire_due` has work: a cheap read for the sweeper."""
    return bool(
        Approval.select(Approval.approval_id)
        .where(IS_PENDING & (Approval.expires_at <= at))
        .limit(1)
        .exists()
    )


# Changing -----------------------------------------------------------------------------------------


def see(transaction: Transaction, organisation_id: str, approval_id: str, reviewer: str) -> None:
    """A reviewer has opened it; the first one counts."""
    Approval.update(seen_at=transaction.at, seen_by=reviewer).where(
        (Approval.approval_id == approval_id)
        & (Approval.organisation_id == organisation_id)
        & IS_PENDING
        & Approval.seen_at.is_null()
    ).execute()


def resolve(
    transaction: Transaction,
    caller: Caller,
    approval_id: str,
    status: str,
    resolved_by: str | None,
    reason: str | None,
) -> Resolution | None:
    """Approve or reject (`status`) on behalf of a person; None when there is no such approval for them.

    While a kill switch covers the call it cannot be approved, only rejected.
    """
    row = Approval.get_or_none(
        (Approval.approval_id == approval_id) & (Approval.organisation_id == caller.organisation_id)
    )
    if row is None:
        return None
    if row.status == "pending" and row.expires_at is not None and row.expires_at <= transaction.at:
        _expire(transaction, row)
    if row.status != "pending":
        return Resolution("not_pending", _approval(row))
    if status == "approved":
        halt = halts.in_force(row.organisation_id, row.agent_id, row.run_id)
        if halt is not None:
            return Resolution("halted", _approval(row), halt)
    who = resolved_by or caller.actor
    text = resolved_reason(status, named(caller.actor, who), reason)
    won = _finish(
        transaction,
        row,
        status,
        resolved_by=who,
        actor=caller.actor,
        decision_reason=reason,
        call_reason=text,
        blocked_reason=(reason or text) if status == "rejected" else None,
    )
    return Resolution("resolved" if won else "not_pending", _approval(row))


def named(actor: str, resolved_by: str | None) -> str:
    """Who resolved an approval, in a sentence: nobody speaks in another's name alone."""
    return actor if resolved_by in (None, actor) else f"{actor} as `{resolved_by}`"


def expire_due(transaction: Transaction) -> int:
    """End pending approvals whose time is over, oldest first; returns how many (at most `MOST_AT_ONCE`)."""
    due = list(
        Approval.select()
        .where(IS_PENDING & (Approval.expires_at <= transaction.at))
        .order_by(Approval.expires_at, Approval.approval_id)
        .limit(MOST_AT_ONCE)
    )
    return sum(_expire(transaction, row) for row in due)


def cancel_run(transaction: Transaction, id_index: IdIndex, run_no: int, reason: str) -> int:
    """End the pending approvals of a run that is over; returns how many."""
    held = CallTable.select(CallTable.approval_id).where(
        id_index.calls_of([run_no]) & (CallTable.status == "awaiting_approval")
    )
    waiting = list(
        Approval.select()
        .where(Approval.approval_id.in_(held) & (Approval.status == "pending"))
        .order_by(Approval.approval_id)
    )
    return sum(
        _end_unresolved(transaction, row, "cancelled", f"the approval was cancelled: {reason}")
        for row in waiting
    )


def _expire(transaction: Transaction, row: Approval) -> bool:
    return _end_unresolved(
        transaction, row, "expired", f"the approval expired at {row.expires_at}; nobody had resolved it"
    )


def _end_unresolved(transaction: Transaction, row: Approval, status: str, text: str) -> bool:
    return _finish(
        transaction,
        row,
        status,
        resolved_by=None,
        actor=SERVICE,
        decision_reason=text,
        call_reason=text,
        blocked_reason=text,
    )


def _finish(
    transaction: Transaction,
    row: Approval,
    status: str,
    *,
    resolved_by: str | None,
    actor: str,
    decision_reason: str | None,
    call_reason: str,
    blocked_reason: str | None,
) -> bool:
    """Move one approval out of `pending`, with all that goes with it; False when somebody else already had.

    `blocked_reason` None means that the call is allowed. `row` holds the new state afterwards.
    """
    if status == "approved":
        run_values.vouch(transaction, row.run_no, row.call_no)
    changed = (
        Approval.update(
            status=status,
            resolved_at=transaction.at,
            resolved_by=resolved_by,
            actor=actor,
            decision_reason=decision_reason,
        )
        .where((Approval.approval_id == row.approval_id) & (Approval.status == "pending"))
        .execute()
    )
    if not changed:
        fresh = Approval.get_by_id(row.approval_id)
        row.__data__.update(fresh.__data__)
        return False
    row.status, row.resolved_at, row.resolved_by = status, transaction.at, resolved_by
    row.actor, row.decision_reason = actor, decision_reason
    call_status = "allowed" if blocked_reason is None else "blocked"
    CallTable.update(status=call_status, reason=call_reason, blocked_reason=blocked_reason).where(
        CallTable.call_no == row.call_no
    ).execute()
    organisation_id = row.organisation_id
    transaction.audit(
        organisation_id,
        "approval.resolved",
        actor=actor,
        agentId=row.agent_id,
        runId=row.run_id,
        toolCallId=row.tool_call_id,
        toolName=row.tool_name,
        decision=status,
        reason=decision_reason,
        details={
            "approvalId": row.approval_id,
            "policyId": row.policy_id,
            "resolvedBy": resolved_by,
            "toolCallStatus": call_status,
        },
    )
    data = {
        "approvalId": row.approval_id,
        "runId": row.run_id,
        "toolCallId": row.tool_call_id,
        "toolName": row.tool_name,
        "policyName": row.policy_name,
        "agentId": row.agent_id,
        "status": status,
        "resolvedAt": transaction.at,
        "resolvedBy": resolved_by,
        "actor": actor,
        "decisionReason": decision_reason,
    }
    transaction.notify(
        organisation_id,
        "approval.resolved",
        {name: value for name, value in data.items() if value is not None},
    )
    transaction.publish(organisation_id, "approval", row.approval_id, status=status, runId=row.run_id)
    transaction.publish(organisation_id, "run", row.run_id)
    transaction.after_commit(lambda: metrics.resolved(status))
    transaction.after_commit(partial(log.info, "%s: approval %s is %s", actor, row.approval_id, status))
    return True
