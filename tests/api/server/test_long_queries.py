"""A query that is longer than any route takes is not read: on the event loop it would keep everybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette import requests

from api.server.endpoint import MOST_PARAMETERS
from tests.harness.application import Service

LONG = {
    "many parameters": "a&" * 30_000,
    "many with values": "wait=1&" * MOST_PARAMETERS,
}


@pytest.mark.parametrize("query", LONG.values(), ids=LONG)
@pytest.mark.parametrize("who", ["nobody", "agent"])
async def test_a_long_query_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, query: str
) -> None:
    async with Service(tmp_path) as service:
        monkeypatch.setattr(requests.Request, "query_params", property(_is_read))
        path = "/health/live" if who == "nobody" else "/v1/runs"
        answer = await service.call(who, "GET", f"{path}?{query}")
        assert answer.status_code == 422
        assert answer.json()["code"] == "validation_failed"
        assert f"at most {MOST_PARAMETERS} parameters" in answer.json()["detail"]


async def test_a_hook_with_a_long_query_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts go ahead where a hook answers with an error."""
    called = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": {}}
    async with Service(tmp_path) as service:
        monkeypatch.setattr(requests.Request, "query_params", property(_is_read))
        answer = await service.call("agent", "POST", f"/v1/hooks/claude-code?{'a&' * 30_000}", called)
        assert answer.status_code == 200
        assert answer.json()["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_query_may_be_as_long_as_its_parameters(tmp_path: Path) -> None:
    words = "%F0%9F%92%B6" * 256
    query = "&".join(f"{name}={words}" for name in ("agentId", "toolName", "policyId", "search"))
    async with Service(tmp_path) as service:
        answer = await service.call("admin", "GET", f"/v1/approvals?{query}&limit=1")
        assert answer.status_code == 200 and answer.json() == []


def _is_read(request: requests.Request) -> None:
    raise AssertionError("the query is read")
