"""What an alert says in one sentence: how many of what, by whom, within which time.

Names that agents chose stand in backticks. It must not know tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.detectors.watch import MOST_OF_A_KEY, Fired
from engine.model import Detector

_COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "tool.called": ("call", "calls"),
    "tool.refused": ("refused call", "refused calls"),
    "request.refused": ("request refused at the door", "requests refused at the door"),
    "enforcement.gap": ("call that ran though it must not", "calls that ran though they must not"),
    "approval.unseen": ("approval that nobody opened", "approvals that nobody opened"),
    "agent.new": ("agent that was never seen before", "agents that were never seen before"),
    "agent.changed": ("change", "changes"),
}
_DISTINCT: Final[Mapping[str, tuple[str, str]]] = {
    "toolName": ("tool", "different tools"),
    "agentId": ("agent", "different agents"),
    "runId": ("run", "different runs"),
    "apiKeyId": ("API key", "different API keys"),
    "userId": ("user", "different users"),
}
_WHOSE: Final[Mapping[str, str]] = {
    "agentId": " of the agent `{}`",
    "apiKeyId": " with the API key `{}`",
    "runId": " in the run `{}`",
    "userId": " for the user `{}`",
    "organisationId": "",
}
_CHANGED: Final[Mapping[str, str]] = {"model": "model", "client": "client", "apiKeyId": "API key"}


def summary(fired: Fired) -> str:
    """Of an alert that is new."""
    detector, because = fired.detector, fired.because
    if fired.per != detector.per:
        many = f"more than {MOST_OF_A_KEY} {_DISTINCT[detector.per][1]}"
        return f"the same of {many}{_WHOSE[fired.per].format(fired.subject)}, told together from here on"
    if detector.on == "agent.changed" and fired.count == 1:
        return f"the agent `{because.agent_id}` came with another {_CHANGED[because.what]}: `{because.value}`"
    if detector.on == "agent.new" and fired.count == 1:
        return f"the agent `{because.agent_id}` was never seen before"
    singular, plural = _DISTINCT[detector.distinct] if detector.distinct else _COUNTED[detector.on]
    whose = _WHOSE[detector.per].format(fired.subject)
    if detector.first:
        tool = f", of `{because.tool_name}`" if because.tool_name else ""
        return f"the first {singular}{whose} that counts here{tool}{_established(detector)}"
    counted = f"{fired.count:,} {singular if fired.count == 1 else plural}"
    return f"{counted}{whose}{_within(detector) if fired.count > 1 else ''}"


def _established(detector: Detector) -> str:
    return f", after {detector.established:,} others or more" if detector.established else ""


def _within(detector: Detector) -> str:
    for seconds, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if detector.window_seconds % seconds == 0:
            number = detector.window_seconds // seconds
            return f" within {number} {unit}s" if number > 1 else f" within one {unit}"
    return f" within {detector.window_seconds} seconds"
