"""What the decision on a tool call leaves behind: its row, audit record, approval and webhook events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from api.caller import Caller
from api.clock import iso
from api.database.audit_chain import Record
from api.database.transaction import Transaction
from api.ingestion.batch import Batch
from api.ingestion.decide import DecidedCall, count
from api.ingestion.event import Evaluated, Incoming
from api.ingestion.flow import first_read, follow
from api.ingestion.grants.book import GrantBook
from api.ingestion.grants.cover import told, use
from api.ingestion.known.runs import KnownRun
from api.ingestion.rows import ApprovalRow, CallRow
from api.store.call_facts import DIGEST, FLOW, LABELS, NO_LABELS, OF_THE_RUN
from api.store.review.terms import digest_of_shown, kept_terms
from api.store.runs import COVERED, GAP
from engine.documents.approval_terms import strictest
from engine.matching.rate_limit import bucket
from engine.model import BEFORE, ApprovalTerms, Match, Policy

_encode = msgspec.json.encode
_decode = msgspec.json.decode

IN_THE_EVENT = frozenset({"toolName", "inputPayload", "agentId", "runId", "toolCallId"})
"""Roots of a call that the stored event holds; the others are kept with the decision."""
OFFLINE = "decided_offline"
"""The flag of a call that was made before anybody decided it, as its agent says."""
REPEATED = "repeated_after_completion"
"""The flag of a call that was reported again once its outcome was known."""
_PLAIN = len(IN_THE_EVENT) + 1
"""Roots of a call of which only those and the key are known: most calls."""


def record_call(
    batch: Batch, event: Incoming, run: KnownRun, event_no: int, outcome: DecidedCall, book: GrantBook
) -> CallRow:
    """A call that was decided for the first time."""
    labels = run.labels
    added = follow(batch, run, outcome)
    transaction, metadata = batch.transaction, event.metadata
    ruleset, decision = outcome.evaluated.ruleset, outcome.decision
    status, reason = outcome.status, outcome.reason
    matched: list[dict[str, Any]] = []
    if decision.matched:
        matched = _matches_json(decision.matched)
        if status != "allowed":
            reason += first_read(batch, outcome)
            _tell_when_free(batch, outcome, matched)
    shadow = _matches_json(decision.shadow) if decision.shadow else []
    flags = ["after_run_ended"] if run.status != "running" else []
    gap = _made_offline(event, status, flags) if outcome.offline else None
    if outcome.cover is not None:
        flags.append(COVERED)
        use(batch, book, event, outcome.cover, event_no)
    request = _request(transaction, outcome) if status == "awaiting_approval" else None
    details = _details(event, outcome, matched, request, flags)
    if labels != NO_LABELS:
        details["labels"] = _decode(labels)
    if added:
        details["labelsAdded"] = added
    audit_id = _audit(
        transaction, "decision", event, status, ruleset.revision, details, reason=reason[:2_000]
    )
    call = CallRow(
        event_no,
        run.organisation_id,
        run.run_no,
        metadata["toolCallId"],
        event.call_hash,
        event_no,
        metadata["toolName"],
        event.digest,
        status,
        outcome.action,
        reason,
        _list(matched),
        _list(shadow),
        ruleset.revision,
        ruleset.digest,
        transaction.at,
        audit_id,
        None if request is None else request.approval_id,
        reason if status == "blocked" else None,
        _recorded_facts(event.caller, outcome.evaluated),
        _list(flags),
    )
    batch.add_call(event, call)
    if decision.counted:
        count(batch, outcome)
    if request is not None:
        _ask(batch, run, call, request)
    if matched:
        batch.decided.append((run.organisation_id, matched[0]["policyId"], status))
    if (matched or outcome.halt is not None) and transaction.listens(run.organisation_id):
        _notify(transaction, run, call, outcome)
    if gap is not None:
        record_gap(transaction, event, gap)
    return call


def _details(
    event: Incoming,
    outcome: DecidedCall,
    matched: Sequence[Mapping[str, Any]],
    request: _Request | None,
    flags: Sequence[str],
) -> dict[str, Any]:
    """What the audit record of a decision says beside the call."""
    details: dict[str, Any] = {
        "action": outcome.action,
        "policyIds": [match["policyId"] for match in matched[:50]],
        "policyDigest": outcome.evaluated.ruleset.digest,
        "payloadDigest": event.digest[:DIGEST],
        **event.origin(),
    }
    if request is not None:
        details["approvalId"] = request.approval_id
        if (kept := kept_terms(request.terms)) is not None:
            details["approvalTerms"] = kept
        details["shown"] = digest_of_shown(
            request.policy_id, request.policy_name, request.about, request.asked_by
        )
    if outcome.halt is not None:
        details["haltId"] = outcome.halt["haltId"]
    if flags:
        details["flags"] = flags
    if outcome.cover is not None:
        details |= told(outcome.cover)
    if outcome.offline:
        details["occurredAt"] = event.body.timestamp
    return details


def record_repeat(
    batch: Batch, event: Incoming, call: CallRow, status: str, halt: Mapping[str, Any] | None
) -> str:
    """A call that was reported again; `halt` blocks it now. Returns the `auditId`.

    One that is done is not done again: an allowance given out for a second time is flagged.
    """
    transaction = batch.transaction
    details: dict[str, Any] = {"decisionAuditId": call.audit_id, **event.origin()}
    if halt is not None:
        details["haltId"] = halt["haltId"]
    flags = [REPEATED] if status == "allowed" and call.completed_at is not None else []
    gap = _made_offline(event, status, flags)
    if flags:
        details["flags"] = flags
        for flag in flags:
            call.add_flag(flag)
        batch.write_flags(call)
        transaction.publish(call.organisation_id, "run", event.body.runId)
    if gap is not None:
        record_gap(transaction, event, gap)
    return _audit(transaction, "decision.repeated", event, status, call.policy_revision, details)


def _made_offline(event: Incoming, status: str, flags: list[str]) -> str | None:
    """Flag a call that its agent made while nobody could decide it; returns the enforcement gap, if that was
    not allowed."""
    if not event.decided_offline:
        return None
    flags.append(OFFLINE)
    if status == "allowed":
        return None
    flags.append(GAP)
    return "the tool call was made while the service was away, and is not allowed"


def record_gap(transaction: Transaction, event: Incoming, gap: str) -> None:
    """An agent did what it was not allowed."""
    organisation_id, body, tool_call_id = (
        event.caller.organisation_id,
        event.body,
        event.metadata["toolCallId"],
    )
    transaction.audit(
        organisation_id,
        "enforcement.gap",
        agentId=body.agentId,
        runId=body.runId,
        toolCallId=tool_call_id,
        actor=event.caller.actor,
        reason=gap,
    )
    transaction.notify(
        organisation_id,
        "enforcement.gap",
        {"runId": body.runId, "toolCallId": tool_call_id, "agentId": body.agentId, "reason": gap},
        event.caller.key_id,
    )


def record_doubt(transaction: Transaction, event: Incoming, call: CallRow, reason: str) -> str:
    """A stored decision that is not the one on record was asked for. Returns the `auditId`."""
    details = {"decisionAuditId": call.audit_id, "storedStatus": call.status, **event.origin()}
    revision = call.policy_revision
    return _audit(transaction, "decision.doubtful", event, "blocked", revision, details, reason)


class _Request(NamedTuple):
    """An approval that is asked for, and what a reviewer is told of it beside the call."""

    approval_id: str
    terms: ApprovalTerms
    policy_id: str
    policy_name: str
    """Of the first policy that asks for it."""
    about: str
    """What the call is about (JSON)."""
    asked_by: str
    """All policies that ask (JSON)."""


def _request(transaction: Transaction, outcome: DecidedCall) -> _Request:
    asking = [match.policy for match in outcome.decision.matched if match.policy.action == "require_approval"]
    about = outcome.evaluated.about
    assert about is not None
    return _Request(
        transaction.ids("apr"),
        strictest(policy.approval for policy in asking),
        asking[0].policy_id,
        asking[0].name,
        _encode(about).decode(),
        _encode([_named(policy) for policy in asking]).decode(),
    )


def _ask(batch: Batch, run: KnownRun, call: CallRow, request: _Request) -> None:
    """One approval for the call, on behalf of all policies that ask for one."""
    transaction, terms = batch.transaction, request.terms
    wait, digest = terms.expires_after_seconds, call.payload_digest[:DIGEST]
    expires_at = None if wait is None else iso(transaction.now + wait)
    batch.approval_rows.append(
        ApprovalRow(
            request.approval_id,
            run.organisation_id,
            run.run_no,
            run.run_id,
            run.agent_id,
            call.call_no,
            call.tool_call_id,
            call.tool_name,
            request.policy_id,
            request.policy_name,
            "pending",
            call.reason,
            transaction.at,
            expires_at,
            request.about,
            request.asked_by,
            run.key_id,
            kept_terms(terms),
            digest,
        )
    )
    if transaction.listens(run.organisation_id):
        data = {
            "approvalId": request.approval_id,
            "runId": run.run_id,
            "toolCallId": call.tool_call_id,
            "toolName": call.tool_name,
            "policyName": request.policy_name,
            "agentId": run.agent_id,
            "summary": _decode(request.about)["sentence"],
            "payloadDigest": digest,
        }
        if terms.approvers != 1:
            data["approvers"] = terms.approvers
        if expires_at is not None:
            data["expiresAt"] = expires_at
        transaction.notify(run.organisation_id, "approval.requested", data, run.key_id)
    transaction.publish(
        run.organisation_id, "approval", request.approval_id, status="pending", runId=run.run_id
    )


def _named(policy: Policy) -> dict[str, Any]:
    """A policy that asks, in the version that does."""
    return {"policyId": policy.policy_id, "policyName": policy.name, "version": policy.version}


def _notify(transaction: Transaction, run: KnownRun, call: CallRow, outcome: DecidedCall) -> None:
    """The webhook event of a call that was blocked or allowed with a warning."""
    decision = outcome.decision
    warned = call.status == "allowed" and decision.action == "warn"
    if call.status != "blocked" and not warned:
        return
    names = [match.policy.name for match in decision.matched if match.policy.action == decision.action]
    transaction.notify(
        run.organisation_id,
        "tool.warned" if warned else "tool.blocked",
        {
            "runId": run.run_id,
            "toolCallId": call.tool_call_id,
            "toolName": call.tool_name,
            "agentId": run.agent_id,
            "policyName": names[0] if names else "",
            "reason": call.reason,
        },
        run.key_id,
    )


def _matches_json(matches: Sequence[Match]) -> list[dict[str, Any]]:
    return [
        {
            "policyId": match.policy.policy_id,
            "policyName": match.policy.name,
            "action": match.policy.action,
            "reason": match.reason,
            **({"unevaluated": True} if match.faults else {}),
        }
        for match in matches
    ]


def _tell_when_free(batch: Batch, outcome: DecidedCall, matched: list[dict[str, Any]]) -> None:
    """Add `freeAt` to each rate limit that matched: when the same call will be within the limit again."""
    for match, shown in zip(outcome.decision.matched, matched, strict=True):
        limit = match.policy.rate_limit
        if limit is not None:
            free = batch.counts.free_at(bucket(match.policy, outcome.evaluated.call), limit)
            shown["freeAt"] = iso(free)


def _recorded_facts(caller: Caller, evaluated: Evaluated) -> str:
    """What the decision saw, as the column `facts` of the call has it: without the payload, which the stored
    event has, and with `OF_THE_RUN` for the facts of the run, which its row has. Those of a run that has told
    nothing of itself yet, and may later, are its labels alone."""
    document = evaluated.call.document
    if len(document) == _PLAIN:
        return _key_alone(caller.key_id, caller.scopes)
    facts = {root: value for root, value in document.items() if root not in IN_THE_EVENT}
    if run := facts.get("run"):
        if run.keys() != {LABELS}:
            facts["run"] = OF_THE_RUN
        if LABELS in run:
            facts[LABELS] = run[LABELS]
    if (memory := facts.pop(BEFORE, None)) is not None:
        facts[FLOW] = {"version": memory.version, "steps": memory.steps}
    return _encode(facts).decode()


@lru_cache(maxsize=1_000)
def _key_alone(key_id: str, scopes: tuple[str, ...]) -> str:
    return _encode({"key": {"id": key_id, "scopes": scopes}}).decode()


def _audit(
    transaction: Transaction,
    type: str,
    event: Incoming,
    status: str,
    policy_revision: int,
    details: dict[str, Any],
    reason: str | None = None,
) -> str:
    caller, body, metadata, user, delegation = event.caller, event.body, event.metadata, None, None
    if event.facts:
        user, delegation = event.facts.get("user"), event.facts.get("delegation")
    return transaction.append(
        Record(
            type=type,
            organisationId=caller.organisation_id,
            actor=caller.actor,
            agentId=body.agentId,
            runId=body.runId,
            toolCallId=metadata["toolCallId"],
            toolName=metadata["toolName"],
            userId=user["id"] if user else caller.user_id,
            userEmail=user.get("email") if user else None,
            keyScopes=caller.scopes or None,
            delegationChain=delegation["chain"] if delegation else None,
            asserted=event.asserted(),
            decision=status,
            reason=reason,
            policyRevision=policy_revision,
            details=details,
        )
    )


def _list(values: list[Any]) -> str:
    return _encode(values).decode() if values else "[]"
