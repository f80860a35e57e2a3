"""Changes that wait for a second admin: what was asked, by whom, and what came of it.

Status: `pending`; then `rejected`, `expired`, or `approved` while it is being applied, which ends as
`applied`, `stale` (what it was made for is not as it was) or `failed`. One that was left while it was applied
is taken up again, rejected, or expires.

INVARIANT: only a pending change is approved, by another person than the one who asked. The request itself is
sealed, since it may hold a password, and is gone once the change has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.caller import Caller
from api.clock import iso, seconds
from api.database.models import HeldChange
from api.database.secrets_at_rest import VAULT
from api.database.table import page_of
from api.database.transaction import Transaction

STATUSES: Final = ("pending", "approved", "applied", "rejected", "expired", "stale", "failed")
MOST_PENDING: Final = 500
RETRY_AFTER: Final = timedelta(minutes=1).total_seconds()
"""A change that is being applied for so long was left by a process that died."""
_LIGHT: Final = tuple(
    field for field in HeldChange._meta.sorted_fields if field.name not in ("request", "shown")
)
"""All but what may be megabytes long: many are read at once."""
_encode = msgspec.json.encode
_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class NewChange:
    """A request that was checked and would do something. `shown` is for people, `state` what it was made
    for."""

    operation: str
    subject: str
    request: dict[str, Any]
    shown: dict[str, Any]
    state: str
    expire_hours: int


def shape(row: HeldChange, *, whole: bool = False) -> dict[str, Any]:
    found = {
        "changeId": row.change_id,
        "status": row.status,
        "operation": row.operation,
        "subject": row.subject,
        "requestedAt": row.requested_at,
        "requestedBy": row.requested_by,
        "expiresAt": row.expires_at,
        "resolvedAt": row.resolved_at,
        "resolvedBy": row.resolved_by,
        "reason": row.reason,
        "problem": row.problem,
    }
    return found | _decode(row.shown) if whole else found


def add(transaction: Transaction, caller: Caller, change: NewChange) -> dict[str, Any] | None:
    """Keep a request for somebody else to agree to; None: too many wait already."""
    mine = HeldChange.organisation_id == caller.organisation_id
    if HeldChange.select().where(mine & (HeldChange.status == "pending")).count() >= MOST_PENDING:
        return None
    row = HeldChange.create(
        change_id=transaction.ids("chg"),
        organisation_id=caller.organisation_id,
        operation=change.operation,
        subject=change.subject,
        status="pending",
        request=VAULT.seal(_encode(change.request).decode()),
        shown=_encode(change.shown).decode(),
        state=change.state,
        requested_at=transaction.at,
        requested_by=caller.actor,
        requested_by_id=caller.user_id,
        expires_at=iso(transaction.now + 3_600 * change.expire_hours),
    )
    _tell(transaction, row, "change.requested", caller.actor)
    return shape(row, whole=True)


def digests_of(row: HeldChange) -> dict[str, str]:
    """Of what is kept of a change, so that nobody can exchange what the other admin sees, what is applied, or
    who has asked for it."""
    kept = {"shown": row.shown, "request": row.request, "requestedById": row.requested_by_id}
    return {name: sha256(text.encode()).hexdigest() for name, text in kept.items()}


def find(organisation_id: str, change_id: str) -> HeldChange | None:
    found: HeldChange | None = HeldChange.get_or_none(
        (HeldChange.change_id == change_id) & (HeldChange.organisation_id == organisation_id)
    )
    return found


def listed(
    organisation_id: str, status: str | None, limit: int, after: tuple[str, str] | None
) -> tuple[list[dict[str, Any]], int, tuple[str, str] | None]:
    """A page, newest first; how many in all; where the next one begins."""
    mine = HeldChange.organisation_id == organisation_id
    if status is not None:
        mine &= HeldChange.status == status
    keys = (HeldChange.requested_at, HeldChange.change_id)
    rows, total, position = page_of(HeldChange.select(*_LIGHT).where(mine), keys, limit, after)
    return [shape(row) for row in rows], total, position


def request_of(row: HeldChange) -> dict[str, Any]:
    """What was asked. Raises SecretsLocked."""
    request: dict[str, Any] = _decode(VAULT.open(row.request))
    return request


def decide(
    transaction: Transaction, caller: Caller, row: HeldChange, decision: str, reason: str | None
) -> bool:
    """Approve or reject; whether this decided it. One that a process left while it applied it may be taken up
    again, or rejected, as long as it has not expired. `row` is as it is now."""
    row.__data__.update(HeldChange.get_by_id(row.change_id).__data__)
    is_open = row.status == "pending" or _is_left(row, transaction.now)
    if is_open and row.expires_at <= transaction.at:
        _expire(transaction, row)
        return False
    if not is_open:
        return False
    was = row.status
    if was == decision:
        return True
    won = _move(row, was, status=decision, resolved_by=caller.actor, reason=reason, at=transaction.at)
    if won:
        if decision == "rejected":
            _forget(row)
        _tell(transaction, row, "change.resolved", caller.actor)
    return won


def finish(transaction: Transaction, row: HeldChange, status: str, problem: str | None) -> HeldChange:
    """What came of applying it: `applied`, `stale` or `failed`. What was applied counts, also where it took
    so long that somebody took it for left."""
    before = ("approved", "rejected", "expired") if status == "applied" else ("approved",)
    changed = HeldChange.update(status=status, problem=problem).where(
        (HeldChange.change_id == row.change_id) & HeldChange.status.in_(before)
    )
    if changed.execute():
        row.status, row.problem = status, problem
        _forget(row)
        _tell(
            transaction,
            row,
            "change.applied" if status == "applied" else "change.failed",
            str(row.resolved_by),
        )
    return row


def anything_due(at: str) -> bool:
    return bool(HeldChange.select(HeldChange.change_id).where(_is_due(at)).limit(1).exists())


def expire_due(transaction: Transaction) -> None:
    due = _is_due(transaction.at)
    for row in list(HeldChange.select(*_LIGHT).where(due).order_by(HeldChange.change_id)):
        _expire(transaction, row)


def _is_due(at: str) -> Any:
    left = (HeldChange.status == "approved") & (HeldChange.resolved_at <= iso(seconds(at) - RETRY_AFTER))
    return ((HeldChange.status == "pending") | left) & (HeldChange.expires_at <= at)


def _expire(transaction: Transaction, row: HeldChange) -> None:
    why = "nobody agreed to it in time" if row.status == "pending" else "it was left while it was applied"
    _end(transaction, row, row.status, "expired", "service", why)


def _is_left(row: HeldChange, now: float) -> bool:
    return row.status == "approved" and seconds(str(row.resolved_at)) + RETRY_AFTER <= now


def _end(transaction: Transaction, row: HeldChange, was: str, status: str, actor: str, reason: str) -> None:
    if _move(row, was, status=status, resolved_by=actor, reason=reason, at=transaction.at):
        _forget(row)
        _tell(transaction, row, "change.resolved", actor)


def _move(row: HeldChange, was: str, *, status: str, resolved_by: str, reason: str | None, at: str) -> bool:
    """Out of one status into another, unless somebody was quicker; `row` is as it is now."""
    values = {"status": status, "resolved_by": resolved_by, "reason": reason, "resolved_at": at}
    same = (HeldChange.change_id == row.change_id) & (HeldChange.status == was)
    won = bool(HeldChange.update(**values).where(same).execute())
    row.__data__.update(values if won else HeldChange.get_by_id(row.change_id).__data__)
    return won


def _forget(row: HeldChange) -> None:
    HeldChange.update(request="").where(HeldChange.change_id == row.change_id).execute()


def _tell(transaction: Transaction, row: HeldChange, type: str, actor: str) -> None:
    details: dict[str, Any] = {"changeId": row.change_id, "operation": row.operation, "subject": row.subject}
    details |= {"status": row.status, "requestedBy": row.requested_by, "state": row.state}
    if type == "change.requested":
        details["digests"] = digests_of(row)
    transaction.audit(
        row.organisation_id,
        type,
        actor=actor,
        decision=row.status if type == "change.resolved" else None,
        reason=row.problem or row.reason,
        details=details,
    )
    if type in ("change.requested", "change.resolved"):
        told = {name: details[name] for name in ("changeId", "operation", "subject", "status", "requestedBy")}
        told |= {"actor": actor} | ({} if row.reason is None else {"reason": row.reason})
        transaction.notify(row.organisation_id, type, told)
    transaction.publish(row.organisation_id, "change", row.change_id, status=row.status)
