"""What one tool call comes to: what the policies said of it, then rate limits, grants and kill switches.

It records nothing; `record.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from api.ingestion.batch import Batch
from api.ingestion.event import Evaluated, Incoming
from api.ingestion.grants.book import GrantBook
from api.ingestion.grants.cover import Cover, cover
from api.ingestion.known.runs import KnownRun
from engine.matching import decision as engine_decision
from engine.matching.rate_limit import bucket
from engine.model import Decision, Evaluation, Policy, ToolCall

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
    cover: Cover | None = None
    """By which grants it is so, if by any."""


def decide(
    batch: Batch,
    event: Incoming,
    run: KnownRun,
    evaluated: Evaluated,
    halt: Mapping[str, Any] | None,
    book: GrantBook,
) -> DecidedCall:
    """Settle what only the transaction knows: the counts of rate limits, the halt that covers the run, and
    the grants that cover the call.

    INVARIANT: what is said to have been decided offline is never allowed more than another call. It is
    blocked where a person would be asked, since nobody waits for the answer.
    """
    found, offline = evaluated.evaluation, event.decided_offline
    decision, reason, made = _UNMATCHED, _UNMATCHED.reason, None
    if found.matches or found.shadow:
        is_over = partial(_is_over, batch, evaluated.call)
        decision = engine_decision.decide(found, is_over)
        reason = decision.reason
        if book and halt is None and decision.action in ("require_approval", "warn"):
            made = cover(batch, book, event, run, evaluated, decision, is_over)
            made = made if made.grants else None
    if made is not None:
        decision, reason = made.decision, made.reason
    if halt is not None:
        return DecidedCall(evaluated, decision, "blocked", "block", halted(halt), halt, offline)
    status = decision.status
    if offline and status == "awaiting_approval":
        status, reason = "blocked", reason + MADE
    return DecidedCall(evaluated, decision, status, decision.action, reason, None, offline, made)


def halted(halt: Mapping[str, Any]) -> str:
    """The reason of a call that a kill switch blocks."""
    return f"halted by {halt['createdBy']}: {halt['reason']}"


def _is_over(batch: Batch, call: ToolCall, policy: Policy) -> bool:
    limit = policy.rate_limit
    assert limit is not None
    return batch.counts.is_over(bucket(policy, call), limit)


def count(batch: Batch, outcome: DecidedCall) -> None:
    """A call that goes ahead counts against the rate limits that it met."""
    if outcome.status == "blocked":
        return
    for policy in outcome.decision.counted:
        limit = policy.rate_limit
        assert limit is not None
        batch.counts.hit(bucket(policy, outcome.evaluated.call), limit)
