"""What happens to an approval while it stays pending: one of several people approves, or it escalates.

INVARIANT: a step is written only on top of the steps that it was made for, so over all nodes none is lost and
nobody counts twice; it commits with its audit record, its webhook rows and its wake-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.clock import iso
from api.database.models import Approval
from api.database.transaction import Transaction
from api.store.review.terms import terms_of

SERVICE = "service"
"""The actor of what no person did."""


def kept_steps(steps: Sequence[dict[str, Any]] | None) -> str | None:
    """As the row keeps them."""
    return None if not steps else msgspec.json.encode(steps).decode()


UNCHANGED = "approval_id = ? AND status = 'pending' AND COALESCE(given, '') = ? RETURNING 1"
"""The condition of every write, and its answer: still pending, and with the steps that were read."""
_APPROVE = f"UPDATE approvals SET given = ? WHERE {UNCHANGED}"


def approve_once(transaction: Transaction, row: Approval, steps: Sequence[dict[str, Any]]) -> bool:
    """Write that the last of these has approved, and others still must; False: others were quicker."""
    kept = kept_steps(steps)
    if not transaction.store.rows(_APPROVE, (kept, row.approval_id, row.given or "")):
        return False
    row.given = kept
    last, terms = steps[-1], terms_of(row)
    actors = [step["actor"] for step in steps]
    transaction.audit(
        row.organisation_id,
        "approval.progressed",
        **_call(row),
        actor=last["actor"],
        reason=last["reason"],
        details={
            "approvalId": row.approval_id,
            "policyId": row.policy_id,
            "resolvedBy": last["resolvedBy"],
            "approvedBy": actors,
            "approvers": terms.approvers,
        },
    )
    told = {"approvedBy": actors, "approvers": terms.approvers, "actor": last["actor"]}
    transaction.notify(row.organisation_id, "approval.progressed", _told(row) | told, row.key_id)
    _publish(transaction, row)
    return True


def escalate(transaction: Transaction, row: Approval) -> bool:
    """Its time is over, and admins get theirs; False when it has escalated before, or its policies do not ask
    for that."""
    terms = terms_of(row)
    if terms.on_expiry != "escalate" or terms.escalate_seconds is None or row.escalated_at is not None:
        return False
    before, expires_at = row.expires_at, iso(transaction.now + terms.escalate_seconds)
    free = (Approval.status == "pending") & Approval.escalated_at.is_null()
    changed = (
        Approval.update(escalated_at=transaction.at, expires_at=expires_at)
        .where((Approval.approval_id == row.approval_id) & free)
        .execute()
    )
    if not changed:
        row.__data__.update(Approval.get_by_id(row.approval_id).__data__)
        return True
    row.escalated_at, row.expires_at = transaction.at, expires_at
    reason = f"nobody had resolved it at {before}; it waits for an admin until {expires_at}"
    transaction.audit(
        row.organisation_id,
        "approval.escalated",
        **_call(row),
        actor=SERVICE,
        reason=reason,
        details={"approvalId": row.approval_id, "policyId": row.policy_id, "expiresAt": expires_at},
    )
    told = {"escalatedAt": transaction.at, "expiresAt": expires_at}
    transaction.notify(row.organisation_id, "approval.escalated", _told(row) | told, row.key_id)
    _publish(transaction, row)
    return True


def _call(row: Approval) -> dict[str, Any]:
    """Which call a record is about."""
    return {
        "agentId": row.agent_id,
        "runId": row.run_id,
        "toolCallId": row.tool_call_id,
        "toolName": row.tool_name,
    }


def _told(row: Approval) -> dict[str, Any]:
    about = {} if row.about is None else {"summary": msgspec.json.decode(row.about)["sentence"]}
    return {"approvalId": row.approval_id, **_call(row), "policyName": row.policy_name, **about}


def _publish(transaction: Transaction, row: Approval) -> None:
    transaction.publish(row.organisation_id, "approval", row.approval_id, status="pending", runId=row.run_id)
