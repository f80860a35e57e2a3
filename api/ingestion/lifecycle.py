"""Every event but `tool.called`: recorded with its effect on the run or the call; never a decision.

What a completion reveals - a call that ran though it must not, or other than decided - is an enforcement gap:
a flag on the call, an audit record and a webhook event. One that comes while a halt lasts is flagged as well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from api.clock import DAY, iso
from api.ingestion import flow
from api.ingestion.batch import Batch
from api.ingestion.event import Incoming, Receipt
from api.ingestion.known.runs import KnownRun
from api.ingestion.record import OFFLINE, record_gap
from api.ingestion.rows import CallRow
from api.store import approvals
from api.store.call_facts import payload_digest
from api.store.halts import HaltBook
from api.store.runs import GAP
from engine.matching.ruleset import Ruleset

_encode = msgspec.json.encode
HALTED = "completed_during_halt"
"""The flag of a call whose outcome came while a halt covered it; it may have begun before."""


def report(
    batch: Batch,
    event: Incoming,
    run: KnownRun,
    ruleset: Ruleset,
    policy_revision: int,
    halts: HaltBook,
) -> Receipt:
    """Record the event's effect."""
    transaction, body, metadata = batch.transaction, event.body, event.metadata
    details: dict[str, Any] = {"eventType": body.eventType, **event.origin()}
    match body.eventType:
        case "run.started":
            if _start(batch, run, event) and event.is_of_sub_run:
                batch.value_rows += flow.inherit(batch, run, event, ruleset)
        case flow.SAID:
            flow.said(batch, run, event, ruleset)
        case "run.completed" | "run.failed":
            if _end(batch, event, run):
                details["cancelApprovals"] = True
        case "tool.completed" | "tool.failed":
            details["toolCallId"] = metadata["toolCallId"]
            halt = halts.covering(run.organisation_id, run.agent_id, run.run_id)
            if halt is not None:
                details["haltId"] = halt["haltId"]
            gap, told = _completed(batch, event, run, ruleset, halt is not None)
            if gap is not None:
                details["enforcementGap"] = gap
            details |= told
    if event.decided_offline:
        details |= {"flags": [OFFLINE], "occurredAt": body.timestamp}
    audit_id = transaction.audit(
        run.organisation_id,
        "event",
        agentId=body.agentId,
        runId=body.runId,
        toolCallId=metadata.get("toolCallId"),
        actor=event.caller.actor,
        asserted=event.asserted(),
        details=details,
    )
    position = batch.transaction.positions[audit_id]
    transaction.publish(run.organisation_id, "run", body.runId)
    return Receipt(
        eventId=body.eventId,
        runId=body.runId,
        processed=True,
        decidedAt=transaction.at,
        policyRevision=policy_revision,
        auditId=audit_id,
        auditSequence=position[0],
        auditHash=position[1],
        auditChain=position[2],
    )


def _start(batch: Batch, run: KnownRun, event: Incoming) -> bool:
    """The first `run.started` gives the run's facts; a later one cannot change what policies saw. Returns
    whether it is the first."""
    if any(value is not None for value in (run.task, run.model, run.reason, run.agent_context)):
        return False
    if not run.new:
        batch.need_answer()  # INVARIANT: a run that is remembered changes by its end alone
    metadata = event.metadata
    context = metadata.get("agentContext")
    run.task, run.model = metadata.get("task"), metadata.get("model")
    run.reason = metadata.get("reason")
    run.agent_context = _encode(context).decode() if context is not None else None
    run.dirty = True
    if run.values is not None and run.parent_run_id is None and not event.is_of_sub_run:
        run.values = run.values.with_task(run.task)
    return True


def may_end(batch: Batch, event: Incoming, run: KnownRun) -> bool:
    """Cancel what goes with the end of a run, as far as this commit has room for it, whosever approvals they
    are. False: there may be more, so that the event has to come again before it is recorded."""
    event_type = event.body.eventType
    if not event.ends_run or event.metadata.get("cancelApprovals") is not True:
        return True
    batch.need_answer()
    batch.flush_calls()
    status = event_type.removeprefix("run.") if run.status == "running" else run.status
    room = approvals.MOST_AT_ONCE - batch.ended
    ended = approvals.cancel_run(batch.transaction, run.run_no, run.key_id, f"run {status}", room)
    if ended:
        batch.ended += ended
        batch.refresh_calls(run)
    return ended < room


def _end(batch: Batch, event: Incoming, run: KnownRun) -> bool:
    """The first end of a run counts; returns whether the approvals that were pending went with it."""
    transaction, event_type = batch.transaction, event.body.eventType
    if run.status == "running":
        run.status = event_type.removeprefix("run.")
        run.ended_at, run.dirty = transaction.at, True
        data = {"runId": run.run_id, "agentId": run.agent_id, "status": run.status}
        transaction.notify(run.organisation_id, event_type, data, run.key_id)
    return event.metadata.get("cancelApprovals") is True


def _completed(
    batch: Batch, event: Incoming, run: KnownRun, ruleset: Ruleset, is_halted: bool
) -> tuple[str | None, dict[str, Any]]:
    """Record the outcome; returns the enforcement gap it reveals, and what it changes of its run."""
    metadata, transaction = event.metadata, batch.transaction
    call = batch.call(run, event)
    if call is not None and call.tool_call_id != metadata["toolCallId"]:
        call = None
    if call is None or call.decided_at < iso(transaction.now - DAY):
        batch.need_answer()  # it is not remembered, so it may be there; or outputs of its time may be gone
    gap = _gap(call, metadata)
    if gap is not None or is_halted:
        batch.need_answer()  # flags are added to those that it has by now, and on other nodes
    believed = gap is None and not is_halted and event.body.eventType == "tool.completed"
    if call is not None and gap is not None:
        call.add_flag(GAP)
    if call is not None and is_halted:
        call.add_flag(HALTED)
    if call is not None and call.completed_at is not None:
        batch.write_flags(call)  # the first outcome stays
    elif call is not None:
        output = _encode(metadata["outputPayload"]).decode() if "outputPayload" in metadata else None
        batch.complete(call, event.body.eventType.removeprefix("tool."), output)
    told = flow.reported(batch, run, event, call, ruleset, believed=believed)
    if gap is None:
        return None, told
    record_gap(transaction, event, gap)
    return gap, told


def _gap(call: CallRow | None, metadata: dict[str, Any]) -> str | None:
    if call is None:
        return "the tool call was never reported before it ran"
    if call.status == "blocked":
        return "the tool call ran although it was blocked"
    if call.status == "awaiting_approval":
        return "the tool call ran before its approval was resolved"
    if call.completed_at is not None:
        return "the tool call ran more than once"
    if "toolName" in metadata and metadata["toolName"] != call.tool_name:
        return "another tool ran than the one decided on"
    if "inputPayload" in metadata:
        decided = call.payload_digest.partition(":")[0]
        if payload_digest(call.tool_name, metadata["inputPayload"]) != decided:
            return "the tool call ran with another payload than the one decided on"
    return None
