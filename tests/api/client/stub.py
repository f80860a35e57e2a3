"""A service that says what a test wants: plain answers, and every way of spoiling one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.harness.receiver import Answer, Received

Spoil = Callable[[dict[str, Any]], object]
"""Changes an answer in place, or gives what is sent instead: any JSON value, or bytes."""


def event_answer(event: dict[str, Any], status: str = "allowed") -> dict[str, Any]:
    """As `POST /v1/events` answers."""
    answer = {"eventId": event["eventId"], "runId": event["runId"], "processed": True}
    if event["eventType"] != "tool.called":
        return answer
    answer |= {"toolCallStatus": status, "reason": "as the stub says", "matchedPolicies": []}
    return answer | ({"approvalId": "apr_1"} if status == "awaiting_approval" else {})


def plain_service(request: Received, status: str = "allowed", spoil: Spoil | None = None) -> Answer:
    """Takes every report, and answers each call with this status, spoilt."""
    sent = request.json
    if "events" in sent:
        return _answer(
            {"results": [{"status": 200, "answer": event_answer(each)} for each in sent["events"]]}
        )
    answer = event_answer(sent, status)
    if spoil is not None and sent["eventType"] == "tool.called":
        return _answer(spoil(answer) or answer)
    return _answer(answer)


def _answer(value: object) -> Answer:
    return Answer(200, value if isinstance(value, bytes) else json.dumps(value).encode())
