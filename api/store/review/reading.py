"""Approvals as they are read: the contract's shape of one, alone or with its call, and pages of many."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import msgspec
from peewee import JOIN, SQL

from api.caller import Caller
from api.database.models import Approval, CallTable, Event, Organisation, Run
from api.database.table import behind
from api.store.call_facts import (
    asserted,
    facts_of_run,
    input_payload,
    is_event_of_call,
    payload_digest,
    whole,
)
from api.store.review.terms import held_call, steps_that_count, terms_shape, why_not

STATUSES: Final = ("pending", "approved", "rejected", "expired", "cancelled")

IS_PENDING = Approval.status == SQL("'pending'")
"""Written as a literal, which lets the small index of those that expire serve it."""

_EXACT: Final[Mapping[str, Any]] = {
    "agentId": Approval.agent_id,
    "toolName": Approval.tool_name,
    "policyId": Approval.policy_id,
}
_SEARCHED: Final[tuple[Any, ...]] = (
    *(Approval.agent_id, Approval.tool_name, Approval.policy_id, Approval.policy_name),
    *(Approval.run_id, Approval.approval_id, Approval.reason),
)
"""Beside what the call is about."""

Position = tuple[str, str]
"""Where a page ends: `requestedAt` and `approvalId` of its last approval."""


def approval_shape(row: Approval) -> dict[str, Any]:
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
    } | terms_shape(row)


def list_approvals(
    organisation_id: str,
    status: str | None,
    limit: int,
    after: Position | None,
    ascending: bool,
    sought: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page by time of request, how many there are in all, and where the next page begins, if any.

    `sought`: `agentId`, `toolName` and `policyId` are these, and every word of `search` stands somewhere.
    """
    statuses = STATUSES if status is None else (status,)
    like = _like(sought)
    chosen = (Approval.organisation_id == organisation_id) & Approval.status.in_(statuses) & like
    total = Approval.select().where(chosen).count()
    # Each status has its own order in the index; a page of all of them is put together from theirs.
    # INVARIANT: `pending`, which is all that changes, is read first. So nothing is left out, and what was
    # resolved meanwhile, and is read twice, is told as it is now.
    pages = [_page(organisation_id, each, limit + 1, after, ascending, like) for each in statuses]
    rows = list({row.approval_id: row for row in chain.from_iterable(pages)}.values())
    rows.sort(key=lambda row: (row.requested_at, row.approval_id), reverse=not ascending)
    rows, more = rows[:limit], len(rows) > limit
    position = (rows[-1].requested_at, rows[-1].approval_id) if more else None
    return [approval_shape(row) for row in rows], int(total), position


def _like(sought: Mapping[str, str]) -> Any:
    """The condition that rows are what is sought. Case counts only beyond ASCII, on SQLite."""
    found: Any = SQL("1 = 1")
    for name, column in _EXACT.items():
        if name in sought:
            found &= column == sought[name]
    for word in sought.get("search", "").split():
        as_json = msgspec.json.encode(word).decode()[1:-1]
        anywhere: Any = Approval.about.contains(as_json)
        for column in _SEARCHED:
            anywhere |= column.contains(word)
        found &= anywhere
    return found


def _page(
    organisation_id: str, status: str, limit: int, after: Position | None, ascending: bool, like: Any
) -> list[Approval]:
    chosen = (Approval.organisation_id == organisation_id) & (Approval.status == status) & like
    keys = (Approval.requested_at, Approval.approval_id)
    return list(behind(Approval.select().where(chosen), keys, after, ascending=ascending).limit(limit))


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
    return approval_shape(row)


def describe_approval(caller: Caller, approval_id: str) -> dict[str, Any] | None:
    """The approval with everything a reviewer needs to judge the call; None as in `find_approval`.

    `asserted` is what the agent says of the call, its context else that of its run, and the run's task.
    `user` is who the service itself verified, and absent when nobody was.
    """
    approval = find_approval(caller, approval_id)
    if approval is None:
        return None
    if approval["status"] == "pending" and caller.kind == "user":
        row = Approval.get_by_id(approval_id)
        why = why_not(caller, row, held_call(row))
        if any(step["userId"] == caller.user_id for step in steps_that_count(row)):
            why = "you have approved it already; somebody else must, too"
        if why is not None:
            approval["mayNotApprove"] = why
    found = (
        CallTable.select(
            *(CallTable.matched, CallTable.facts, CallTable.policy_revision, Event.body),
            *(Run.task, Run.model, Run.agent_context),
        )
        .join(Event, JOIN.LEFT_OUTER, on=is_event_of_call())
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
    payload = input_payload(body)
    if payload is not None:
        # Of what is shown here, whatever was recorded: nobody approves what they have not seen.
        shown = payload_digest(approval["toolName"], msgspec.json.decode(payload))
        approval["payloadDigest"] = shown
    approval |= {
        "inputPayload": payload,
        "asserted": said
        | {name: run[name] for name in ("task", "agentContext") if name in run and name not in said},
        "matchedPolicies": msgspec.json.decode(matched),
        "policyRevision": revision,
    }
    if labels := run.get("labels"):
        approval["labels"] = labels
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
