"""An output that the service cannot read as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.hosts.conftest import Agent
from tests.harness.agent_host import told

Make = Callable[..., Agent]


@pytest.mark.parametrize("unreadable", ["\0", "\ud800", float("nan")])
@pytest.mark.parametrize("by_host", [False, True])
def test_all_that_such_an_output_says_is_told(agent: Make, unreadable: Any, by_host: bool) -> None:
    """Policies label a run by its members, and by what stands far behind in a text."""
    made = agent("claude-code")
    assert made.call().goes_ahead
    page = {"class": "secret", "text": "x" * 30_000 + "the end", "more": unreadable}
    page |= {name: name for name in ("\ud801", "\ud802", "?", "\0", "\ufffd", "? (2)")}
    said = json.loads(told("claude-code", "result", session=made.session, call="c-1"))
    raw = json.dumps(said | {"tool_response": page}).encode()
    if by_host:
        headers = {"Content-Type": "application/json", "X-API-Key": made.service.api_key}
        place = f"/v1/hooks/claude-code?agentId=agent-{made.session}"
        answer = made.service.http.post(place, content=raw, headers=headers)
        assert answer.headers["Governance-Outcome"] == "recorded"
    else:
        assert made.hook(raw).code == 0
    found = made.run["toolCalls"][0]["outputPayload"]
    assert found["class"] == "secret" and found["text"].endswith("the end")
    alike = {
        "?": "?",
        "? (2)": "? (2)",
        "? (3)": "?",
        "? (4)": "?",
        "\ufffd": "\ufffd",
        "\ufffd (2)": "\ufffd",
    }
    assert found.items() >= alike.items()
