"""Grants are made and revoked: what a person allows beyond one call, bounded, and ending by itself.

A grant of `calls` is made together with an approval: the same tool with the same arguments, in this run or by
this agent, at most so many times and so long. A grant of `labels` exempts one run from labels for some time.
What a grant covers is decided in `api/ingestion/grants`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from api.caller import Caller
from api.clock import iso
from api.database.models import ApiKey, Approval, CallTable, Grant, Run
from api.database.transaction import Transaction
from api.store.call_facts import asserted, granted_digest, said_of_evaluation
from api.store.emails import same_names
from api.store.grants.reading import CALLS, LABELS, find_grant
from api.store.review.progress import SERVICE
from api.store.runs import run_named

log = logging.getLogger("governance")

COUNTER: Final = "grants"
"""Moves with every grant that is made or revoked; whoever decides compares with it."""
MOST_ACTIVE: Final = 1_000
"""Grants of one organisation that have neither expired nor been revoked."""

_decode, _encode = msgspec.json.decode, msgspec.json.encode


class GrantRefused(Exception):
    """No grant can be made as things are; nothing was changed."""

    code = "conflict"


class OwnRun(GrantRefused):
    """Nobody reviews what is done on their own behalf."""

    code = "forbidden"


@dataclass(frozen=True, slots=True)
class Terms:
    """How far a grant of calls goes."""

    scope: str
    calls: int
    minutes: int
    read: frozenset[str] = frozenset()
    """Roots of a call that policies look at, which are the same in each evaluation of AuthZEN."""


def grant_calls(
    transaction: Transaction, caller: Caller, approval_id: str, terms: Terms, reason: str | None
) -> dict[str, Any]:
    """The same call again, together with the approval that this transaction gives. Raises GrantRefused."""
    approval = Approval.get_by_id(approval_id)
    run, call = Run.get_by_id(approval.run_no), CallTable.get_by_id(approval.call_no)
    if terms.scope == "run" and run.ended_at is not None:
        raise GrantRefused(
            f"the run `{run.run_id}` has ended, so a grant of scope `run` would cover nothing; approve"
            " without a grant, or grant it to the agent"
        )
    row = Grant(
        kind=CALLS,
        scope=terms.scope,
        tool_name=call.tool_name,
        payload_digest=granted_digest(
            call.payload_digest, said_of_evaluation(asserted(_decode(call.facts)), terms.read)
        ),
        policies=approval.asked_by,
        calls=terms.calls,
        reason=reason,
        approval_id=approval.approval_id,
        tool_call_id=call.tool_call_id,
    )
    return _make(transaction, caller, run, row, terms.minutes)


def exempt(
    transaction: Transaction, caller: Caller, run_id: str, labels: list[str], minutes: int, reason: str
) -> dict[str, Any] | None:
    """Labels of a run do not count for some time; None: there is no such run. Raises GrantRefused."""
    run = run_named(caller.organisation_id, run_id)
    if run is None:
        return None
    if run.ended_at is not None:
        raise GrantRefused(f"the run `{run_id}` has ended, so there is nothing to exempt it from")
    key = ApiKey.get_or_none(ApiKey.key_id == run.key_id)
    if key is not None and same_names(key.user_id) & same_names(caller.user_id, caller.email):
        raise OwnRun("the run is made by your API key; somebody else must exempt it")
    known = _decode(run.labels)
    if unknown := [label for label in labels if label not in known]:
        has = ", ".join(f"`{label}`" for label in known) or "none"
        raise GrantRefused(f"the run `{run_id}` has no label `{unknown[0]}`; its labels: {has}")
    row = Grant(kind=LABELS, scope="run", labels=_encode(sorted(labels)).decode(), reason=reason)
    return _make(transaction, caller, run, row, minutes)


def _make(transaction: Transaction, caller: Caller, run: Run, row: Grant, minutes: int) -> dict[str, Any]:
    active = Grant.select().where(_lasting(transaction, caller.organisation_id)).count()
    if active >= MOST_ACTIVE:
        raise GrantRefused(
            f"the organisation has {active:,} grants that have not ended, and may have no more; revoke some"
        )
    row.grant_id = transaction.ids("grt")
    row.organisation_id, row.created_by = caller.organisation_id, caller.actor
    row.creator_id = caller.user_id or ""
    row.run_no, row.run_id, row.agent_id, row.key_id = run.run_no, run.run_id, run.agent_id, run.key_id
    row.created_at, row.expires_at = transaction.at, iso(transaction.now + 60 * minutes)
    row.save(force_insert=True)
    return _changed(transaction, row, "grant.created", caller.actor, row.reason)


def revoke(
    transaction: Transaction, caller: Caller, grant_id: str, reason: str | None
) -> dict[str, Any] | None:
    """End a grant before its time; one that has ended stays as it is. None: there is no such grant."""
    row = Grant.get_or_none((Grant.organisation_id == caller.organisation_id) & (Grant.grant_id == grant_id))
    if row is None:
        return None
    shape = find_grant(caller.organisation_id, grant_id, transaction.at)
    if shape is None or shape["status"] != "active":
        return shape
    return _end(transaction, row, caller.actor, reason)


def made_ahead(after: float) -> list[str]:
    """Grants that have not ended and were made after a time, which is still to come."""
    ahead = Grant.revoked_at.is_null() & (Grant.created_at > iso(after))
    return [row.grant_id for row in Grant.select(Grant.grant_id).where(ahead).limit(MOST_ACTIVE)]


def end_ahead(transaction: Transaction, after: float) -> None:
    """End them: nobody has allowed anything for a time that begins later."""
    for row in Grant.select().where(Grant.grant_id.in_(made_ahead(after))):
        _end(transaction, row, SERVICE, "it was made while the clock was ahead")


def end_of_maker(
    transaction: Transaction, organisation_id: str, user_id: str, email: str, actor: str
) -> None:
    """End what somebody has granted who may do less from now on."""
    made = (Grant.creator_id == user_id) | ((Grant.creator_id == "") & (Grant.created_by == email))
    for row in Grant.select().where(_lasting(transaction, organisation_id) & made):
        _end(transaction, row, actor, f"the rights of `{email}`, who made it, were reduced")


def _lasting(transaction: Transaction, organisation_id: str) -> Any:
    of_it = Grant.organisation_id == organisation_id
    return of_it & Grant.revoked_at.is_null() & (Grant.expires_at > transaction.at)


def _end(transaction: Transaction, row: Grant, actor: str, reason: str | None) -> dict[str, Any]:
    row.revoked_at, row.revoked_by = transaction.at, actor
    row.save()
    return _changed(transaction, row, "grant.revoked", actor, reason)


def _changed(
    transaction: Transaction, row: Grant, type: str, actor: str, reason: str | None
) -> dict[str, Any]:
    """What goes with every change: counter, record, webhook event and news."""
    transaction.bump(COUNTER)
    details = terms_of(row)
    transaction.audit(
        row.organisation_id,
        type,
        actor=actor,
        reason=reason,
        agentId=row.agent_id,
        runId=row.run_id,
        toolCallId=row.tool_call_id,
        toolName=row.tool_name,
        details=details,
    )
    shape = find_grant(row.organisation_id, row.grant_id, transaction.at)
    assert shape is not None
    left_out = ("about", "status", "used")
    data = {name: value for name, value in shape.items() if value is not None and name not in left_out}
    transaction.notify(row.organisation_id, type, data)
    transaction.publish(row.organisation_id, "grant", row.grant_id, status=shape["status"], runId=row.run_id)
    done = "made" if type == "grant.created" else "revoked"
    transaction.after_commit(partial(log.info, "%s %s grant %s", actor, done, row.grant_id))
    return shape


def terms_of(row: Grant) -> dict[str, Any]:
    """All that a grant is, as its record holds it and `audit verify` compares it."""
    said = {
        "grantId": row.grant_id,
        "kind": row.kind,
        "scope": row.scope,
        "keyId": row.key_id,
        "payloadDigest": row.payload_digest,
        "policies": _decode(row.policies),
        "labels": _decode(row.labels),
        "calls": row.calls,
        "approvalId": row.approval_id,
        "createdAt": row.created_at,
        "createdBy": row.created_by,
        "creatorId": row.creator_id,
        "expiresAt": row.expires_at,
    }
    return {name: value for name, value in said.items() if value not in (None, [])}
