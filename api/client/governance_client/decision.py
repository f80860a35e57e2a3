"""What became of the question whether a tool may run, as the service said it or as nobody could.

A decision is read strictly: what is not exactly an answer to the call that was asked about is none, and what
is none lets nothing run. Knows nothing of HTTP and of waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Status = Literal[
    "allowed",
    "blocked",
    "awaiting_approval",
    "rejected",
    "expired",
    "cancelled",
    "halted",
    "unauthorized",
    "invalid",
    "unavailable",
]
"""Only `allowed` lets a tool run."""

STATUSES: Final[Mapping[Status, str]] = {
    "allowed": "it may run",
    "blocked": "a policy forbids it",
    "awaiting_approval": "a person may still decide it",
    "rejected": "a person said no",
    "expired": "nobody said yes in time",
    "cancelled": "its run ended before anybody decided",
    "halted": "an admin has stopped the agent",
    "unauthorized": "the API key is wrong, revoked or not this agent's",
    "invalid": "the service refused the question",
    "unavailable": "nobody answered, or nothing that could be understood",
}
"""What each means."""

_HALTED: Final = "halted by "
"""What the reason of a call begins with that a kill switch stopped; reasons of policies begin otherwise."""


_CALLS: Final[Mapping[str, Status]] = {
    "allowed": "allowed",
    "blocked": "blocked",
    "awaiting_approval": "awaiting_approval",
}
_APPROVALS: Final[Mapping[str, Status]] = {
    "pending": "awaiting_approval",
    "approved": "allowed",
    "rejected": "rejected",
    "expired": "expired",
    "cancelled": "cancelled",
}
"""What the service calls it, and what that means for the call."""


class MalformedAnswer(Exception):
    """An answer that is not what the contract says; whatever it says, it allows nothing."""


@dataclass(frozen=True, slots=True)
class MatchedPolicy:
    """A policy that matched the call."""

    policy_id: str
    name: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """See the module. `agent_message` is for the model, `reason` for people and logs. `decided_offline`: it
    runs because the service was away and the fail mode is `open`; it is on disk, and will be reported."""

    status: Status
    tool: str
    run_id: str
    tool_call_id: str
    reason: str
    agent_message: str
    approval_id: str | None = None
    approval_url: str | None = None
    matched: tuple[MatchedPolicy, ...] = ()
    decided_offline: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the tool may run now."""
        return self.status == "allowed"

    @property
    def waiting(self) -> bool:
        """Whether a person may still decide it."""
        return self.status == "awaiting_approval"


def still_waiting(kept: Any) -> ToolDecision | None:
    """A decision that a person may still make, from its members, as adapters keep them beside what tools ask
    for themselves; None: it is none. INVARIANT: whoever writes such members allows nothing by them."""
    try:
        decision = ToolDecision(**kept)
    except TypeError:
        return None
    return decision if decision.waiting else None


class Refused(Exception):
    """A guarded tool that must not run; the text is the decision's `agent_message`, made for the model."""

    def __init__(self, decision: ToolDecision) -> None:
        super().__init__(decision.agent_message)
        self.decision = decision


@dataclass(frozen=True, slots=True)
class Question:
    """A call as it is asked about; `payload` is the JSON of its arguments."""

    run_id: str
    tool: str
    tool_call_id: str
    payload: str

    def without_answer(self, status: Status, reason: str) -> ToolDecision:
        """What the client itself says, when no decision came."""
        message = f"The call of `{self.tool}` was not made: {reason}. {_ADVICE[status]}"
        return ToolDecision(status, self.tool, self.run_id, self.tool_call_id, reason, message)

    def offline(self, reason: str) -> ToolDecision:
        """It runs though nobody was there to ask."""
        found = ToolDecision("allowed", self.tool, self.run_id, self.tool_call_id, reason, reason)
        return replace(found, decided_offline=True)

    def answered(self, event_id: str, answer: Any) -> ToolDecision:
        """The decision in an answer to `tool.called`; raises MalformedAnswer."""
        said = _object(answer)
        if said.get("eventId") != event_id or said.get("runId") != self.run_id:
            raise MalformedAnswer("the answer is about another event")
        reason, matched = _text(said, "reason"), said.get("matchedPolicies") or []
        if not isinstance(matched, list):
            raise MalformedAnswer("`matchedPolicies` of the answer is no list")
        decision = ToolDecision(
            _status(said.get("toolCallStatus"), _CALLS, reason),
            self.tool,
            self.run_id,
            self.tool_call_id,
            reason,
            _optional(said, "agentMessage") or reason,
            _optional(said, "approvalId"),
            _optional(said, "approvalUrl"),
            tuple(_matched(each) for each in matched),
        )
        if decision.waiting and not decision.approval_id:
            raise MalformedAnswer("the call waits for an approval that has no `approvalId`")
        return decision


_ADVICE: Final[Mapping[str, str]] = {
    "unavailable": "It may be tried again later",
    "unauthorized": "Trying again does not help; ask the person who runs this agent",
    "invalid": "Trying the same call again does not help",
    "blocked": "Trying the same call again does not help",
    "halted": "Stop, and ask the person who runs this agent",
}


def resolved(decision: ToolDecision, approval: Any) -> ToolDecision:
    """A waiting decision as its approval has it now; raises MalformedAnswer."""
    said = _object(approval)
    about = tuple(said.get(name) for name in ("approvalId", "runId", "toolCallId"))
    if about != (decision.approval_id, decision.run_id, decision.tool_call_id):
        raise MalformedAnswer("the answer is about another approval")
    why, by = _optional(said, "decisionReason"), _optional(said, "resolvedBy")
    status = _status(said.get("status"), _APPROVALS, why or "")
    if status == "awaiting_approval":
        return decision
    reason = why or (f"{said['status']} by {by}" if by else f"the approval is {said['status']}")
    message = _optional(said, "agentMessage") or reason
    return replace(decision, status=status, reason=reason, agent_message=message)


def _status(said: Any, known: Mapping[str, Status], reason: str) -> Status:
    found = known.get(said) if isinstance(said, str) else None
    if found is None:
        raise MalformedAnswer(f"the answer has the unknown status `{str(said)[:64]}`")
    return "halted" if found in ("blocked", "rejected") and reason.startswith(_HALTED) else found


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedAnswer("the answer is no JSON object")
    return value


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str):
        raise MalformedAnswer(f"`{name}` of the answer is no text")
    return value


def _optional(said: Mapping[str, Any], name: str) -> str | None:
    return None if said.get(name) is None else _text(said, name)


def _matched(entry: Any) -> MatchedPolicy:
    said = _object(entry)
    policy_id, name, action = (_text(said, key) for key in ("policyId", "policyName", "action"))
    return MatchedPolicy(policy_id, name, action, _optional(said, "reason") or "")
