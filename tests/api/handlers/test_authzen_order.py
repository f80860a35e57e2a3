"""Evaluations of one request are decided in the order in which they stand there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jwt

from tests.harness.application import Service

SECRET = "the identity provider's secret, shared with the service"
MANY = 5
POLICIES: list[dict[str, Any]] = [
    {
        "name": "Label secrets",
        "action": "allow",
        "labels": {"add": ["secret"]},
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "read_secret"}],
    },
    {
        "name": "Block sending after secrets",
        "action": "block",
        "after": {"label": "secret"},
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "send"}],
    },
]


def test_what_is_said_for_a_user_is_overtaken_by_nothing_behind_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with Service(tmp_path, POLICIES) as service:
            rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
            assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
            for number in range(MANY):
                token = jwt.encode({"sub": f"ada-{number}", "exp": service.clock() + 600}, SECRET, "HS256")
                body = {
                    "subject": {"type": "user", "id": "ann"},
                    "action": {"name": "call"},
                    "evaluations": [
                        _evaluation("read_secret", number, userToken=token),
                        _evaluation("send", number),
                    ],
                }
                answer = await service.call("agent", "POST", "/access/v1/evaluations", body)
                found = answer.json()["evaluations"]
                assert [each["decision"] for each in found] == [True, False], found

    asyncio.run(play())


def _evaluation(tool: str, number: int, **said: str) -> dict[str, Any]:
    governance = {"runId": f"run-{number}", **said}
    return {"resource": {"type": "tool", "id": tool}, "context": {"governance": governance}}
