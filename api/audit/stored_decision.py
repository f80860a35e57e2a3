"""Whether a stored decision is the one on record, before it is given out a second time.

Whoever can change the database could turn a block into an allowance by one statement. The record of the
decision is in the hash chain, so that the change of both is found by `verify`; and a change of the decision
alone is found here, when an agent asks again. INVARIANT: what is in doubt is never allowed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import msgspec

from api.audit import records
from api.audit.retention.certificate import newest_certificate
from api.database import audit_chain
from api.database.models import Approval, CallTable


class StoredCall(Protocol):
    """What of a tool call's row is compared."""

    organisation_id: str
    tool_call_id: str
    tool_name: str
    payload_digest: str
    status: str
    decided_at: str
    audit_id: str
    approval_id: str | None


class Checked(NamedTuple):
    """`doubt` says why a decision must not be given out; None: it is the one on record, at this position of
    the chain."""

    doubt: str | None
    """In whole, with what follows from it."""
    position: audit_chain.Position = (0, audit_chain.GENESIS, audit_chain.FIRST_CHAIN)


def check(call: StoredCall, receipt: bytes = b"") -> Checked:
    """Hold the decision on a call against its record. `receipt` is the stored answer, where there is one."""
    record = _found(call.organisation_id, call.audit_id, call.decided_at)
    if record is None:
        return _without_record(call)
    status = record["decision"]
    if call.approval_id is not None and call.status != "awaiting_approval":
        status = _resolved(call.organisation_id, call.approval_id, record)
    if not _is_of(record, call) or status != call.status:
        return _doubted(f"the stored decision is not the one of its record `{call.audit_id}`")
    if receipt:
        answer = msgspec.json.decode(receipt)
        given = _found(call.organisation_id, answer["auditId"])
        if given is None:
            given = records.find_record(call.organisation_id, answer["auditId"])
            given = given if given is not None and _intact(given) else None
        if given is None or given["decision"] != answer["toolCallStatus"]:
            return _doubted(f"the stored answer is not the one of its record `{answer['auditId']}`")
    chain = record.get("chain", audit_chain.FIRST_CHAIN)
    return Checked(None, (record["sequence"], record["hash"], chain))


def _doubted(why: str) -> Checked:
    return Checked(f"{why}; the call stays blocked until an admin has run `governance audit verify`")


def _without_record(call: StoredCall) -> Checked:
    known = newest_certificate()
    if known is not None and call.decided_at <= known.written_until(call.organisation_id):
        return Checked(
            f"the record `{call.audit_id}` of this decision is not kept any more ({known.told}), so it"
            " cannot be proved; ask anew, under a new `toolCallId`"
        )
    return _doubted(
        f"the record `{call.audit_id}` of this decision is not in the audit log as it was written"
    )


def _is_of(record: dict[str, Any], call: StoredCall) -> bool:
    """Whether a record is of the decision on this call, whatever that came to."""
    details = record["details"]
    return bool(
        (record["toolCallId"], record["toolName"]) == (call.tool_call_id, call.tool_name)
        and call.payload_digest.startswith(details["payloadDigest"])
        and details.get("approvalId") == call.approval_id
    )


def doubts_of(organisation_id: str, approval_ids: Collection[str]) -> dict[str, str]:
    """`doubt_of` for many: why what became of these must not be acted on; absent those on record. All are
    looked up together, and one by one only those that are not found so."""
    if not approval_ids:
        return {}
    query: Any = (
        CallTable.select(CallTable, Approval.resolved_at)
        .join(Approval, on=(Approval.call_no == CallTable.call_no))
        .where(Approval.approval_id.in_(list(approval_ids)) & (Approval.organisation_id == organisation_id))
        .objects()
    )
    calls = {call.approval_id: call for call in query}
    moments = {at for call in calls.values() for at in (call.decided_at, call.resolved_at) if at is not None}
    decisions: dict[str, dict[str, Any]] = {}
    resolutions: dict[str, dict[str, Any]] = {}
    for record in filter(_intact, records.at_times(organisation_id, moments)):
        decisions[record["auditId"]] = record
        if record["type"] == "approval.resolved":
            resolutions[record["details"]["approvalId"]] = record
    doubts: dict[str, str] = {}
    for approval_id in approval_ids:
        call = calls.get(approval_id)
        if call is not None and _agree(call, decisions.get(call.audit_id), resolutions.get(approval_id)):
            continue
        doubt = doubt_of(organisation_id, approval_id)
        if doubt is not None:
            doubts[approval_id] = doubt
    return doubts


def _agree(call: StoredCall, decision: dict[str, Any] | None, resolution: dict[str, Any] | None) -> bool:
    """Whether a held call is as the records of its decision and of its resolution say."""
    if decision is None or resolution is None or not _is_of(decision, call):
        return False
    return _outcome(resolution, decision) == call.status


def doubt_of(organisation_id: str, approval_id: str) -> str | None:
    """Why what became of a held call must not be acted on; None: it is what is on record."""
    call = (
        CallTable.select()
        .join(Approval, on=(Approval.call_no == CallTable.call_no))
        .where((Approval.approval_id == approval_id) & (Approval.organisation_id == organisation_id))
        .first()
    )
    if call is None:
        return "the held call is not in the database any more; an admin must run `governance audit verify`"
    return check(call).doubt


def _found(organisation_id: str, audit_id: str, at: str | None = None) -> dict[str, Any] | None:
    """A record that is there, and says what its hash covers."""
    record = records.find_near(organisation_id, audit_id, at)
    return record if record is not None and _intact(record) else None


def _resolved(organisation_id: str, approval_id: str, decision: dict[str, Any]) -> str | None:
    """The status that the resolution of an approval gave its call, as the log says."""
    asked = "SELECT resolved_at FROM approvals WHERE approval_id = ? AND resolved_at IS NOT NULL"
    found = next(records.rows(asked, approval_id), None)
    if found is None:
        return None
    for record in records.at_time(organisation_id, found[0], "approval.resolved"):
        if record["details"]["approvalId"] == approval_id and _intact(record):
            return _outcome(record, decision)
    return None


def _outcome(resolution: dict[str, Any], decision: dict[str, Any]) -> str | None:
    """The status that a resolution gave its call; None: fewer people approved it than the decision asks."""
    status, terms = str(resolution["details"]["toolCallStatus"]), decision["details"].get("approvalTerms")
    if status == "allowed" and terms is not None:
        needed = msgspec.json.decode(terms).get("approvers", 1)
        if needed > 1 and len(set(resolution["details"].get("approvedBy", ()))) < needed:
            return None
    return status


def _intact(record: dict[str, Any]) -> bool:
    said = dict(record)
    digest = said.pop("hash")
    return bool(audit_chain.link(said) == digest)
