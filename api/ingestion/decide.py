"""What one tool call comes to: what the policies say of it, then rate limits and kill switches.

It records nothing; `record.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from api.ingestion.batch import Batch
from api.ingestion.event import Evaluated
from engine.derived.summary import summary_of
from engine.flow.memory import RunMemory
from engine.matching import decision as engine_decision
from engine.matching.rate_limit import bucket
from engine.matching.ruleset import Ruleset
from engine.model import BEFORE, Decision, Evaluation, Policy, ToolCall

MADE: Final = "; it was made already, offline, so nobody is asked"
"""In the reason of a call that is not held for that."""

_UNMATCHED = engine_decision.decide(Evaluation(), lambda policy: False)
"""What most calls come to."""


class DecidedCall(msgspec.Struct):
    """The decision on a call as it is recorded: a kill switch outweighs what the policies decided."""

    evaluated: Evaluated
    decision: Decision
    status: str
    action: str
    reason: str
    halt: Mapping[str, Any] | None = None
    offline: bool = False
    """Whether it was made before anybody decided it, as its agent says."""


def evaluate(
    ruleset: Ruleset, call: ToolCall, run_facts: dict[str, Any] | None, memory: RunMemory | None = None
) -> Evaluated:
    """Ask the policies: most of an event's work, and all of it that may be done before the lock."""
    if run_facts is not None:
        call = ToolCall({**call.document, "run": run_facts})
    if memory is not None:
        call = ToolCall({**call.document, BEFORE: memory})
    found = ruleset.evaluate(call)
    asks = any(match.policy.action == "require_approval" for match in found.matches)
    return Evaluated(
        ruleset, run_facts, call, found, memory, summary_of(call, ruleset.tools) if asks else None
    )


def decide(
    batch: Batch, evaluated: Evaluated, halt: Mapping[str, Any] | None, *, offline: bool = False
) -> DecidedCall:
    """Settle what only the transaction knows: the counts of rate limits, and the halt that covers the run.

    INVARIANT: what is said to have been decided offline is never allowed more than another call. It is
    blocked where a person would be asked, since nobody waits for the answer.
    """
    found = evaluated.evaluation
    decision = _UNMATCHED
    if found.matches or found.shadow:
        decision = engine_decision.decide(found, lambda policy: _is_over(batch, policy, evaluated.call))
    if halt is not None:
        return DecidedCall(evaluated, decision, "blocked", "block", halted(halt), halt, offline)
    if offline and decision.status == "awaiting_approval":
        return DecidedCall(
            evaluated, decision, "blocked", decision.action, decision.reason + MADE, None, offline
        )
    return DecidedCall(evaluated, decision, decision.status, decision.action, decision.reason, None, offline)


def halted(halt: Mapping[str, Any]) -> str:
    """The reason of a call that a kill switch blocks."""
    return f"halted by {halt['createdBy']}: {halt['reason']}"


def _is_over(batch: Batch, policy: Policy, call: ToolCall) -> bool:
    limit = policy.rate_limit
    assert limit is not None
    return batch.is_over(bucket(policy, call), limit)


def count(batch: Batch, outcome: DecidedCall) -> None:
    """A call that goes ahead counts against the rate limits that it met."""
    if outcome.status == "blocked":
        return
    now = batch.transaction.now
    for policy in outcome.decision.counted:
        limit = policy.rate_limit
        assert limit is not None
        batch.hit(bucket(policy, outcome.evaluated.call), now + limit.window_seconds)
