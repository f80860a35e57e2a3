"""The recorded session: its events, and the rule by which its reviewer resolves what is held.

Decides what is posted and how an approval is answered. It knows nothing of HTTP or of how results are shown.

`session.jsonl`: the first line is the session's head with the reviewer's rules; each further line is one
event with `after`, seconds since the start, in place of `timestamp`, and a short `run` name in place of
`runId`. Times and ids become real when the session is played, so that it can be played again and again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

SESSION = Path(__file__).parent / "session.jsonl"

Resolution = Literal["approve", "reject"]


@dataclass(frozen=True, slots=True)
class ReviewRule:
    """Applies to a call in which all `texts` occur; the first that applies decides."""

    texts: tuple[str, ...]
    decision: Resolution
    reason: str


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """`events` are in order of time; each holds `run`, `after`, `eventType`, `agentId`, maybe `metadata`."""

    title: str
    rules: tuple[ReviewRule, ...]
    events: tuple[Mapping[str, Any], ...]

    def review(self, tool_name: str, payload: Mapping[str, Any]) -> ReviewRule:
        """The rule by which the reviewer resolves a held call; the last rule applies to every call."""
        text = tool_name + " " + json.dumps(payload, ensure_ascii=False)
        return next(rule for rule in self.rules if all(part in text for part in rule.texts))

    def run_names(self) -> tuple[str, ...]:
        """Each run once, in order of its first event."""
        return tuple(dict.fromkeys(event["run"] for event in self.events))


def load_session() -> RecordedSession:
    """The session of the demo; raises ValueError when no rule applies to every call."""
    head, *events = [json.loads(line) for line in SESSION.read_text(encoding="utf-8").splitlines() if line]
    rules = tuple(
        ReviewRule(tuple(each["texts"]), each["decision"], each["reason"]) for each in head["review"]
    )
    if not rules or rules[-1].texts:
        raise ValueError("the last review rule must apply to every call: give it no texts")
    return RecordedSession(head["session"], rules, tuple(events))


def posted(event: Mapping[str, Any], number: int, play_id: str, start: datetime) -> dict[str, Any]:
    """The body of POST /v1/events: times counted from `start`, ids that no other play has."""
    at = start + timedelta(seconds=event["after"])
    body = {key: value for key, value in event.items() if key not in ("after", "run")}
    return {
        "eventId": f"demo-{play_id}-{number:04d}",
        "runId": f"demo-{play_id}-{event['run']}",
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    } | body
