"""Whatever an API key asks for counts against its quota, and counts once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import Service

HOOK = {"session_id": "s", "tool_name": "Read", "tool_input": {"file_path": "a"}, "cwd": "/x"}
BIG = [{"name": f"t{number}", "definition": "0" * 64, "description": "x" * 500} for number in range(4)]
REQUEST = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "read"},
    "resource": {"type": "tool", "id": "read"},
    "denial": {"evaluation_id": "apr_1"},
}


def proposal(number: int) -> dict[str, Any]:
    return {"server": "s", "tools": [BIG[0] | {"definition": f"{number:064}"}, *BIG[1:]]}


def hook(event: str, **more: Any) -> dict[str, Any]:
    return HOOK | {"hook_event_name": event, **more}


async def played(
    tmp_path: Path, environment: dict[str, str], path: str, bodies: list[Any]
) -> list[httpx.Response]:
    async with Service(tmp_path, environment=environment) as service:
        return [await service.call("agent", "POST", path, body) for body in bodies]


@pytest.mark.parametrize(
    ("environment", "path", "bodies"),
    [
        ({"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "3"}, "/v1/tool-proposals", [proposal(1)] * 5),
        ({"GOVERNANCE_KEY_BYTES_PER_DAY": "8000"}, "/v1/tool-proposals", [proposal(n) for n in range(5)]),
        ({"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "3"}, "/access/v1/requests", [REQUEST] * 5),
        (
            {"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "3"},
            "/v1/hooks/claude-code?callId=c",
            [hook("SessionStart")] * 5,
        ),
    ],
)
async def test_a_key_that_asks_too_much_is_429(
    environment: dict[str, str], path: str, bodies: list[Any], tmp_path: Path
) -> None:
    codes = [answer.status_code for answer in await played(tmp_path, environment, path, bodies)]
    assert 429 not in codes[:3] and codes[3:] == [429, 429]


async def test_a_call_of_a_hook_counts_once_and_waiting_for_one_counts_too(tmp_path: Path) -> None:
    quota = {"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "3"}
    for name, query, allowed in (("calls", "", "allowed"), ("waits", "?handOut=false", "waiting")):
        calls = [hook("PreToolUse", tool_use_id=f"call-{number}") for number in range(5)]
        answers = await played(tmp_path / name, quota, f"/v1/hooks/claude-code{query}", calls)
        assert {answer.status_code for answer in answers} == {200}
        outcomes = [answer.headers["governance-outcome"] for answer in answers]
        assert outcomes == [allowed] * 3 + ["undecided"] * 2
