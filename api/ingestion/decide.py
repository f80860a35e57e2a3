"""One `tool.called` event, decided inside the transaction: what matched, limits, halts, and what follows.

It settles what other transactions may have changed since the policies were asked - kill switches, rate
counts, the run's facts - and leaves the decision's rows, audit record and webhook events behind. A call that
was reported before gets its recorded decision, never a second one; only a halt outweighs an old yes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET

from api.caller import Caller
from api.clock import iso
from api.database.audit_chain import Record
from api.database.transaction import Decided, Transaction
from api.http.problems import ApiError
from api.ingestion.batch import Batch, Call, Run
from api.ingestion.event import DIGEST, Evaluated, EventBody, Incoming, Receipt
from api.store.halts import HaltBook
from engine.matching.decision import decide
from engine.matching.rate_limit import bucket, is_over, window_start
from engine.matching.ruleset import Ruleset
from engine.model import Decision, Evaluation, Match, Policy, ToolCall

_encode = msgspec.json.encode

IN_THE_EVENT = frozenset({"toolName", "inputPayload", "agentId", "runId", "toolCallId"})
"""Roots of a call that the stored event holds; the others are kept with the decision."""
_PLAIN = len(IN_THE_EVENT) + 1
"""Roots of a call of which only those and the key are known: most calls."""

UNMATCHED = decide(Evaluation(), lambda policy: False)
"""What most calls come to."""


class Decisions:
    """`rules` gives the newest ruleset of an organisation; `frontend` is the address in approval links."""

    def __init__(self, rules: Callable[[str], Ruleset], halts: HaltBook, frontend: str) -> None:
        self._rules = rules
        self._halts = halts
        self._approvals_page = f"{frontend}/approvals?approvalId="

    def evaluate(self, event: Incoming, run_facts: dict[str, Any] | None) -> Evaluated:
        """Ask the policies; the only work that may be done before the lock, and the most of it."""
        call = event.call
        assert call is not None
        ruleset = self._rules(event.caller.organisation_id)
        if run_facts is not None:
            call = ToolCall({**call.document, "run": run_facts})
        return Evaluated(ruleset, run_facts, call, ruleset.evaluate(call))

    def conflict(self, existing: Call, event: Incoming) -> ApiError | None:
        """The error of a call that was reported before as another one."""
        tool_call_id = event.metadata["toolCallId"]
        if (existing.digest, existing.tool_call_id) == (event.digest, tool_call_id):
            return None
        return ApiError(
            "tool_call_conflict",
            f"the tool call `{tool_call_id}` of this run was reported with another"
            " tool or payload, or for another user; a changed call needs a new `toolCallId`",
        )

    def is_current(self, event: Incoming) -> bool:
        """Whether the newest policies were asked."""
        evaluated = event.evaluated
        return evaluated is not None and evaluated.ruleset is self._rules(event.caller.organisation_id)

    def decide(
        self, batch: Batch, event: Incoming, run: Run, existing: Call | None, event_no: int
    ) -> Receipt:
        """Decide and leave the rows. `existing`: the call as it was reported before."""
        halt = self._halts.covering(run.organisation_id, run.agent_id, run.run_id)
        if existing is not None:
            return self._repeated(batch, event, existing, halt)
        facts, evaluated = run.facts(), event.evaluated
        if evaluated is None or not self.is_current(event) or evaluated.run_facts != facts:
            evaluated = self.evaluate(event, facts)
        found = evaluated.evaluation
        if found.matches or found.shadow:
            decision = decide(found, lambda policy: _is_over(batch, policy, evaluated.call))
        else:
            decision = UNMATCHED
        status, action, reason = decision.status, decision.action, decision.reason
        if halt is not None:
            status, action, reason = "blocked", "block", _halted(halt)
        elif status != "blocked":
            for policy in decision.counted:
                _count(batch, policy, evaluated.call)
        return self._record(batch, event, evaluated, run, event_no, decision, status, action, reason, halt)

    def halted(self, existing: Call | None, run: Run) -> bool:
        """Whether a call that was allowed before is stopped by a halt now."""
        covered = self._halts.covering(run.organisation_id, run.agent_id, run.run_id) is not None
        return covered and existing is not None and existing.status == "allowed"

    def _repeated(
        self, batch: Batch, event: Incoming, existing: Call, halt: dict[str, Any] | None
    ) -> Receipt:
        status, reason = existing.status, existing.reason
        details = {"decisionAuditId": existing.audit_id}
        if halt is not None and status == "allowed":
            # What was recorded stays, and holds again when the halt ends.
            status, reason = "blocked", _halted(halt)
            details["haltId"] = halt["haltId"]
        audit_id = _audit(
            batch.transaction, "decision.repeated", event, status, existing.policy_revision, details
        )
        return self._receipt(event.body, existing, status, reason, audit_id)

    def recorded(self, event: Incoming, call: Call) -> Receipt:
        """What the event is answered that reports a call first; the same later, unless somebody was asked to
        decide it."""
        return self._receipt(event.body, call, call.status, call.reason, call.audit_id)

    def _record(
        self,
        batch: Batch,
        event: Incoming,
        evaluated: Evaluated,
        run: Run,
        event_no: int,
        decision: Decision,
        status: str,
        action: str,
        reason: str,
        halt: dict[str, Any] | None,
    ) -> Receipt:
        transaction, organisation_id, metadata = batch.transaction, run.organisation_id, event.metadata
        tool_call_id, tool_name = metadata["toolCallId"], metadata["toolName"]
        ruleset, at = evaluated.ruleset, transaction.at
        matched = [_match_json(match) for match in decision.matched] if decision.matched else []
        shadow = [_match_json(match) for match in decision.shadow] if decision.shadow else []
        flags = ["after_run_ended"] if run.status != "running" else []
        approval_id = transaction.ids("apr") if status == "awaiting_approval" else None
        details: dict[str, Any] = {
            "action": action,
            "policyIds": [match["policyId"] for match in matched[:50]],
            "policyDigest": ruleset.digest,
            "payloadDigest": event.digest[:DIGEST],
        }
        if approval_id is not None:
            details["approvalId"] = approval_id
        if halt is not None:
            details["haltId"] = halt["haltId"]
        if flags:
            details["flags"] = flags
        audit_id = _audit(
            transaction, "decision", event, status, ruleset.revision, details, reason=reason[:2_000]
        )
        if approval_id is not None:
            _ask(batch, event, run, decision, approval_id, event_no)
        batch.entries.append((run.run_no, event.call_hash, event_no))
        batch.call_rows.append(
            (
                event_no,
                organisation_id,
                run.run_no,
                tool_call_id,
                event.call_hash,
                event_no,
                tool_name,
                event.digest,
                status,
                action,
                reason,
                _list(matched),
                _list(shadow),
                ruleset.revision,
                ruleset.digest,
                at,
                audit_id,
                approval_id,
                reason if status == "blocked" else None,
                _recorded_facts(event.caller, evaluated.call),
                _list(flags),
            )
        )
        call = batch.calls[(run.run_no, event.call_hash)] = Call(
            tool_call_id,
            event_no,
            event.digest,
            status,
            reason,
            matched,
            shadow,
            flags,
            approval_id,
            ruleset.revision,
            at,
            audit_id,
        )
        batch.statuses.append(status)
        if matched or halt is not None:
            _tell(batch, event, status, decision, reason)
        transaction.decided.append(
            Decided(organisation_id, run.run_id, run.agent_id, tool_call_id, tool_name, status, reason)
        )
        return self.recorded(event, call)

    def _receipt(self, body: EventBody, call: Call, status: str, reason: str, audit_id: str) -> Receipt:
        """`status` and `reason` are the call's, unless a halt outweighs them."""
        return Receipt(
            body.eventId,
            body.runId,
            True,
            status,
            reason,
            UNSET if call.approval_id is None else call.approval_id,
            UNSET if call.approval_id is None else self._approvals_page + call.approval_id,
            call.matched,
            call.shadow or UNSET,
            call.decided_at,
            call.policy_revision,
            audit_id,
        )


# Rate limits --------------------------------------------------------------------------------------


def _is_over(batch: Batch, policy: Policy, call: ToolCall) -> bool:
    limit = policy.rate_limit
    assert limit is not None
    return is_over(limit, batch.count(bucket(policy, call), window_start(limit, batch.transaction.now)))


def _count(batch: Batch, policy: Policy, call: ToolCall) -> None:
    limit = policy.rate_limit
    assert limit is not None
    name = bucket(policy, call)
    batch.count(name, window_start(limit, batch.transaction.now))
    batch.hit(name, batch.transaction.now + limit.window_seconds)


# What follows -------------------------------------------------------------------------------------


def _ask(batch: Batch, event: Incoming, run: Run, decision: Decision, approval_id: str, call_no: int) -> None:
    """One approval for the call, on behalf of all policies that ask for one."""
    transaction, organisation_id = batch.transaction, run.organisation_id
    asking = [match.policy for match in decision.matched if match.policy.action == "require_approval"]
    limits = [
        policy.approval_expires_after_seconds
        for policy in asking
        if policy.approval_expires_after_seconds is not None
    ]
    expires_at = iso(transaction.now + min(limits)) if limits else None
    first = asking[0]
    tool_call_id, tool_name = event.metadata["toolCallId"], event.metadata["toolName"]
    batch.approval_rows.append(
        (
            *(approval_id, organisation_id, run.run_no, run.run_id, run.agent_id, call_no, tool_call_id),
            *(tool_name, first.policy_id, first.name, "pending", decision.reason),
            *(transaction.at, expires_at),
        )
    )
    transaction.notify(
        organisation_id,
        "approval.requested",
        {
            "approvalId": approval_id,
            "runId": run.run_id,
            "toolCallId": tool_call_id,
            "toolName": tool_name,
            "policyName": first.name,
            "agentId": run.agent_id,
        },
    )
    transaction.publish(organisation_id, "approval", approval_id, status="pending", runId=run.run_id)


def _tell(batch: Batch, event: Incoming, status: str, decision: Decision, reason: str) -> None:
    warned = status == "allowed" and decision.action == "warn"
    if status != "blocked" and not warned:
        return
    names = [match.policy.name for match in decision.matched if match.policy.action == decision.action]
    batch.transaction.notify(
        event.caller.organisation_id,
        "tool.warned" if warned else "tool.blocked",
        {
            "runId": event.body.runId,
            "toolCallId": event.metadata["toolCallId"],
            "toolName": event.metadata["toolName"],
            "agentId": event.body.agentId,
            "policyName": names[0] if names else "",
            "reason": reason,
        },
    )


# Shapes -------------------------------------------------------------------------------------------


def _halted(halt: dict[str, Any]) -> str:
    return f"halted by {halt['createdBy']}: {halt['reason']}"


def _match_json(match: Match) -> dict[str, Any]:
    policy = match.policy
    return {
        "policyId": policy.policy_id,
        "policyName": policy.name,
        "action": policy.action,
        "reason": match.reason,
    }


def _recorded_facts(caller: Caller, call: ToolCall) -> str:
    """What the decision saw beside the payload, which the event itself holds."""
    document = call.document
    if len(document) == _PLAIN:
        return _key_alone(caller.key_id, caller.scopes)
    return _encode({root: value for root, value in document.items() if root not in IN_THE_EVENT}).decode()


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
    caller, body, metadata, facts = event.caller, event.body, event.metadata, event.facts
    user, delegation = facts.get("user"), facts.get("delegation")
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
            delegationChain=delegation["chain"] if delegation else None,
            decision=status,
            reason=reason,
            policyRevision=policy_revision,
            details=details,
        )
    )


def _list(values: list[Any]) -> str:
    return _encode(values).decode() if values else "[]"
