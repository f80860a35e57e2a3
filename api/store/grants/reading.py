"""Grants, read back: what a person has allowed beyond one call, and what has become of it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from peewee import JOIN, fn

from api.database.models import Approval, Grant, GrantUse, Run
from api.database.table import page_of
from api.store.review.terms import terms_of

CALLS: Final = "calls"
"""The same call again, at most so many times."""
LABELS: Final = "labels"
"""Labels of a run that do not count."""

Position = tuple[str, str]
"""Where a page ends: `createdAt` and `grantId` of its last grant."""

_decode = msgspec.json.decode
_USED: Final = GrantUse.select(fn.COUNT(GrantUse.call_no)).where(GrantUse.grant_id == Grant.grant_id)


def list_grants(
    organisation_id: str, filters: dict[str, Any], at: str, limit: int, before: Position | None
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page, newest first; how many there are in all; where the next page begins. `filters`: `active`,
    `runId`, `agentId`, `approvalId`, `toolName`, as far as they are asked for."""
    columns = {"runId": Grant.run_id, "agentId": Grant.agent_id, "toolName": Grant.tool_name}
    columns["approvalId"] = Grant.approval_id
    chosen = Grant.organisation_id == organisation_id
    for name, column in columns.items():
        if name in filters:
            chosen &= column == filters[name]
    if "active" in filters:
        chosen &= _is_active(at) if filters["active"] else ~_is_active(at)
    keys = (Grant.created_at, Grant.grant_id)
    rows, total, position = page_of(_all().where(chosen), keys, limit, before)
    return [_shape(row, at) for row in rows], total, position


def find_grant(organisation_id: str, grant_id: str, at: str) -> dict[str, Any] | None:
    row = _all().where((Grant.organisation_id == organisation_id) & (Grant.grant_id == grant_id)).first()
    return None if row is None else _shape(row, at)


def grants_of_calls(numbers: list[int]) -> dict[int, list[str]]:
    """Number of a call to the ids of the grants that it was decided by."""
    found: dict[int, list[str]] = {}
    rows: Any = GrantUse.select().where(GrantUse.call_no.in_(numbers)).order_by(GrantUse.grant_id)
    for use in rows:
        found.setdefault(use.call_no, []).append(use.grant_id)
    return found


class WhoAsked(NamedTuple):
    """What a grant that comes with an approval would stand on."""

    policies: list[dict[str, Any]]
    """Those that asked, each with the version that did."""
    approvers: int


def asked_by(organisation_id: str, approval_id: str) -> WhoAsked | None:
    """None when there is no such approval, or it was made by a version of the service that did not note who
    asked."""
    row = Approval.get_or_none(
        (Approval.approval_id == approval_id) & (Approval.organisation_id == organisation_id)
    )
    if row is None or row.asked_by is None:
        return None
    return WhoAsked(_decode(row.asked_by), terms_of(row).approvers)


def _is_active(at: str) -> Any:
    """By what the database holds; `_status` says the same of one grant."""
    lasting = Grant.revoked_at.is_null() & (Grant.expires_at > at)
    return (
        lasting
        & (Grant.calls.is_null() | (Grant.calls > _USED))
        & ((Grant.scope != "run") | Run.ended_at.is_null())
    )


def _all() -> Any:
    return (
        Grant.select(Grant, _USED.alias("used"), Run.ended_at.alias("ended_at"), Approval.about)
        .join(Run, JOIN.LEFT_OUTER, on=(Run.run_no == Grant.run_no))
        .join(Approval, JOIN.LEFT_OUTER, on=(Approval.approval_id == Grant.approval_id))
        .objects()
    )


def _status(row: Any, at: str) -> str:
    if row.revoked_at is not None:
        return "revoked"
    if row.calls is not None and row.used >= row.calls:
        return "used_up"
    if row.expires_at <= at:
        return "expired"
    return "run_ended" if row.scope == "run" and row.ended_at is not None else "active"


def _shape(row: Any, at: str) -> dict[str, Any]:
    shape = {
        "grantId": row.grant_id,
        "kind": row.kind,
        "status": _status(row, at),
        "scope": row.scope,
        "runId": row.run_id,
        "agentId": row.agent_id,
        "keyId": row.key_id,
        "used": int(row.used),
        "reason": row.reason,
        "createdAt": row.created_at,
        "createdBy": row.created_by,
        "expiresAt": row.expires_at,
        "revokedAt": row.revoked_at,
        "revokedBy": row.revoked_by,
    }
    if row.kind == LABELS:
        return shape | {"labels": _decode(row.labels)}
    shape |= {
        "toolName": row.tool_name,
        "payloadDigest": row.payload_digest.partition(":")[0],
        "policies": _decode(row.policies),
        "calls": row.calls,
        "approvalId": row.approval_id,
        "toolCallId": row.tool_call_id,
    }
    return shape if row.about is None else shape | {"about": _decode(row.about)}
