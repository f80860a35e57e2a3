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
from typing import Any

from api import metrics
from api.agent_message import resolved_reason
from api.caller import Caller
from api.clock import seconds
from api.database.models import Approval
from api.database.transaction import Transaction
from api.store import halts, run_values
from api.store.review import terms as review
from api.store.review.progress import SERVICE, UNCHANGED, approve_once, escalate, kept_steps
from api.store.review.reading import IS_PENDING, approval_shape

log = logging.getLogger("governance")

MOST_AT_ONCE = 50
"""That end by themselves in one transaction: each is written, recorded, and told to every webhook."""
_ANY_OF_RUN = "SELECT 1 FROM approvals WHERE key_id = ? AND status = 'pending' AND run_no = ? LIMIT 1"
_END = (
    "UPDATE approvals SET status = ?, resolved_at = ?, resolved_by = ?, actor = ?, decision_reason = ?,"
    f" given = ? WHERE {UNCHANGED}"
)
_DECIDE = "UPDATE tool_calls SET status = ?, reason = ?, blocked_reason = ? WHERE call_no = ?"


@dataclass(frozen=True, slots=True)
class Resolution:
    """How an attempt to resolve ended, and the approval as it is now: `resolved`, `progressed` (one of
    several that must approve has), `not_pending`, `halted`, `refused` (this person may not approve: `why`),
    `repeated` (they have already) or `other_payload` (`why` is the digest of the call).

    It is returned, not raised, because an attempt that comes too late still records the expiry.
    """

    outcome: str
    approval: dict[str, Any]
    halt: dict[str, Any] | None = None
    why: str = ""


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
    shown: str | None = None,
) -> Resolution | None:
    """Approve or reject (`status`) on behalf of a person; None when there is no such approval for them.

    While a kill switch covers the call it cannot be approved, only rejected. `shown`: the digest of the
    payload that they saw. Where several must approve, the last of them resolves it.
    """
    answer = _Answer(caller, status, resolved_by or caller.actor, reason, shown)
    while True:
        row = Approval.get_or_none(
            (Approval.approval_id == approval_id) & (Approval.organisation_id == caller.organisation_id)
        )
        if row is None:
            return None
        resolution = _attempt(transaction, row, answer)
        if resolution is not None:
            return resolution
        # Another one of several approved meanwhile, on another node: that counts first.


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a person says to an approval."""

    caller: Caller
    status: str
    resolved_by: str
    reason: str | None
    shown: str | None

    @property
    def name(self) -> str:
        return named(self.caller.actor, self.resolved_by)

    def step(self, at: str) -> dict[str, Any]:
        return {
            "userId": self.caller.user_id,
            "actor": self.caller.actor,
            "resolvedBy": self.resolved_by,
            "approvedAt": at,
            "reason": self.reason,
        }


def _attempt(transaction: Transaction, row: Approval, answer: _Answer) -> Resolution | None:
    """None: others were quicker, and it is still pending."""
    if row.status == "pending" and row.expires_at is not None and row.expires_at <= transaction.at:
        _overdue(transaction, row)
    if row.status != "pending":
        return Resolution("not_pending", approval_shape(row))
    if (refused := _refused(row, answer)) is not None:
        return refused
    approvers = review.terms_of(row).approvers
    if answer.status != "approved" or approvers == 1:
        return _end(transaction, row, answer, answer.name)
    steps, counting = review.steps_of(row), review.steps_that_count(row)
    if not _has_approved(answer.caller, counting):
        step = answer.step(transaction.at)
        steps, counting = [*steps, step], [*counting, step]
    if len(counting) < approvers:
        done = approve_once(transaction, row, steps)
        return Resolution("progressed", approval_shape(row)) if done else None
    names = " and ".join(named(step["actor"], step["resolvedBy"]) for step in counting)
    return _end(transaction, row, answer, names, steps)


def _refused(row: Approval, answer: _Answer) -> Resolution | None:
    """Why a pending approval does not take this answer."""
    call = review.held_call(row)
    digest = None if call is None else call.digest
    if answer.shown not in (None, digest):
        return Resolution("other_payload", approval_shape(row), why=digest or "")
    if answer.status != "approved":
        return None
    halt = halts.in_force(row.organisation_id, row.agent_id, row.run_id)
    if halt is not None:
        return Resolution("halted", approval_shape(row), halt)
    if (why := review.why_not(answer.caller, row, call, answer.resolved_by)) is not None:
        return Resolution("refused", approval_shape(row), why=why)
    counting = review.steps_that_count(row)
    if _has_approved(answer.caller, counting) and len(counting) < review.terms_of(row).approvers:
        return Resolution("repeated", approval_shape(row))
    # Of people who were disabled and may log in again, enough may have approved: any of them then ends it.
    return None


def _has_approved(caller: Caller, steps: list[dict[str, Any]]) -> bool:
    return any(step["userId"] == caller.user_id for step in steps)


def _end(
    transaction: Transaction,
    row: Approval,
    answer: _Answer,
    who: str,
    steps: list[dict[str, Any]] | None = None,
) -> Resolution | None:
    text = resolved_reason(answer.status, who, answer.reason)
    won = _finish(
        transaction,
        row,
        answer.status,
        resolved_by=answer.resolved_by,
        actor=answer.caller.actor,
        decision_reason=answer.reason,
        call_reason=text,
        blocked_reason=(answer.reason or text) if answer.status == "rejected" else None,
        steps=steps,
    )
    if not won and row.status == "pending":
        return None
    return Resolution("resolved" if won else "not_pending", approval_shape(row))


def named(actor: str, resolved_by: str | None) -> str:
    """Who resolved an approval, in a sentence: nobody speaks in another's name alone."""
    return actor if resolved_by in (None, actor) else f"{actor} as `{resolved_by}`"


def expire_due(transaction: Transaction) -> int:
    """End or escalate pending approvals whose time is over, oldest first; returns how many (at most
    `MOST_AT_ONCE`)."""
    due = list(
        Approval.select()
        .where(IS_PENDING & (Approval.expires_at <= transaction.at))
        .order_by(Approval.expires_at, Approval.approval_id)
        .limit(MOST_AT_ONCE)
    )
    return sum(_overdue(transaction, row) for row in due)


def cancel_run(
    transaction: Transaction, run_no: int, key_id: str, reason: str, most: int = MOST_AT_ONCE
) -> int:
    """End pending approvals of a run of this key that is over, so many at most; returns how many were
    pending, also those that somebody else has resolved meanwhile. They are found among those of the key,
    which are bounded, and not by the calls of the run, however many it has."""
    if not transaction.store.rows(_ANY_OF_RUN, (key_id, run_no)):
        return 0  # as a rule, and for less than it takes to build the other query
    waiting = list(
        Approval.select()
        .where(IS_PENDING & (Approval.key_id == key_id) & (Approval.run_no == run_no))
        .order_by(Approval.approval_id)
        .limit(most)
    )
    for row in waiting:
        _end_unresolved(transaction, row, "cancelled", f"the approval was cancelled: {reason}")
    return len(waiting)


def _overdue(transaction: Transaction, row: Approval) -> bool:
    """Its time is over: it goes to the admins, if its policies ask for that and it has not yet, or ends."""
    return escalate(transaction, row) or _end_unresolved(
        transaction, row, "expired", f"the approval expired at {row.expires_at}; nobody had resolved it"
    )


def _end_unresolved(transaction: Transaction, row: Approval, status: str, text: str) -> bool:
    """However many have approved it meanwhile."""
    while row.status == "pending":
        if _finish(
            transaction,
            row,
            status,
            resolved_by=None,
            actor=SERVICE,
            decision_reason=text,
            call_reason=text,
            blocked_reason=text,
        ):
            return True
    return False


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
    steps: list[dict[str, Any]] | None = None,
) -> bool:
    """Move one approval out of `pending`, with all that goes with it; False when somebody else already had.

    `blocked_reason` None means that the call is allowed. `row` holds the new state afterwards.
    """
    approves = status == "approved"
    values = run_values.named_by_approving(transaction, row.run_no, row.call_no) if approves else None
    given = kept_steps(steps) or row.given
    ended = status, transaction.at, resolved_by, actor, decision_reason, given
    if not transaction.store.rows(_END, (*ended, row.approval_id, row.given or "")):
        fresh = Approval.get_by_id(row.approval_id)
        row.__data__.update(fresh.__data__)
        return False
    row.status, row.resolved_at, row.resolved_by, row.actor, row.decision_reason, row.given = ended
    if values is not None:
        run_values.vouch(transaction, row.run_no, values)
    call_status = "allowed" if blocked_reason is None else "blocked"
    transaction.store.change(_DECIDE, (call_status, call_reason, blocked_reason, row.call_no))
    _tell_end(transaction, row, call_status, [step["actor"] for step in steps or ()])
    waited = max(0.0, transaction.now - seconds(row.requested_at))
    transaction.after_commit(lambda: metrics.resolved(status, waited))
    transaction.after_commit(partial(log.info, "%s: approval %s is %s", actor, row.approval_id, status))
    return True


def _tell_end(transaction: Transaction, row: Approval, call_status: str, approvers: list[str]) -> None:
    """For the record, for receivers of webhooks, and for whoever waits."""
    approved_by = {"approvedBy": approvers} if approvers else {}
    transaction.audit(
        row.organisation_id,
        "approval.resolved",
        actor=row.actor,
        agentId=row.agent_id,
        runId=row.run_id,
        toolCallId=row.tool_call_id,
        toolName=row.tool_name,
        decision=row.status,
        reason=row.decision_reason,
        details={
            "approvalId": row.approval_id,
            "policyId": row.policy_id,
            "resolvedBy": row.resolved_by,
            "toolCallStatus": call_status,
            **approved_by,
        },
    )
    data = {
        "approvalId": row.approval_id,
        "runId": row.run_id,
        "toolCallId": row.tool_call_id,
        "toolName": row.tool_name,
        "policyName": row.policy_name,
        "agentId": row.agent_id,
        "status": row.status,
        "resolvedAt": row.resolved_at,
        "resolvedBy": row.resolved_by,
        "actor": row.actor,
        "decisionReason": row.decision_reason,
        **approved_by,
    }
    transaction.notify(
        row.organisation_id,
        "approval.resolved",
        {name: value for name, value in data.items() if value is not None},
        row.key_id,
    )
    transaction.publish(row.organisation_id, "approval", row.approval_id, status=row.status, runId=row.run_id)
    transaction.publish(row.organisation_id, "run", row.run_id)
