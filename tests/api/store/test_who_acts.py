"""Whom the token of a call names, be it as who acts for another, has asked for it: they neither approve it
nor exempt its run from labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool, policy_body, where

SECRET = "a secret of the organisation that is long enough for any digest"
HOLD = on_tool("Hold payments", "require_approval", "pay")
LABEL = on_tool("Label pages", "allow", "fetch", labels={"add": ["page"]})
AFTER = policy_body(
    "Hold mail after pages",
    "require_approval",
    where("toolName", "equals", "mail"),
    where("run.labels", "equals", "page"),
)


@pytest.mark.parametrize(
    ("said", "is_own"),
    [
        ({"act": {"sub": "rita@acme.example"}}, True),
        ({"act": {"sub": "desk", "act": {"sub": "Rita@ACME.example"}}}, True),
        ({"act": {"sub": "u-7", "email": "rita@acme.example"}}, True),
        ({"act": {"sub": "u-7", "upn": "rita@acme.example"}}, True),
        ({"act": {"sub": "ravi@acme.example", "email": ["rita@acme.example"]}}, True),
        ({"emails": ["alice@acme.example", "Rita@acme.example", 7, {}]}, True),
        ({"mail": "rita@acme.example"}, True),
        ({"login": "rita@acme.example"}, True),
        ({"user_name": "rita@acme.example"}, True),
        ({"cognito:username": "rita@acme.example"}, True),
        ({"preferred_username": "rita@acme.example"}, True),
        ({"upn": "Rita@ACME.example"}, True),
        ({"unique_name": "rita@acme.example"}, True),
        ({"manager": "rita@acme.example"}, False),
    ],
)
async def test_whom_a_token_names_has_asked(tmp_path: Path, said: dict[str, Any], is_own: bool) -> None:
    async with Service(tmp_path, [HOLD, LABEL, AFTER]) as service:
        rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
        assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
        claims = {"sub": "alice", "exp": int(service.clock()) + 600, **said}
        token = jwt.encode(claims, SECRET, algorithm="HS256")

        async def status(number: int, tool: str) -> tuple[str, str]:
            call = {"toolCallId": f"c-{number}", "toolName": tool, "userToken": token}
            said = (await service.report("agent", number, "tool.called", **call)).json()
            return said["toolCallStatus"], said.get("approvalId", "")

        held, approval = await status(1, "pay")
        assert held == "awaiting_approval"
        shown = (await service.call("reviewer", "GET", f"/v1/approvals/{approval}")).json()
        assert ("mayNotApprove" in shown) is is_own
        answer = await service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve")
        assert answer.status_code == (403 if is_own else 200)

        assert await status(2, "fetch") == ("allowed", "")
        exempts = {"runId": "run-1", "labels": ["page"], "minutes": 5, "reason": "looked"}
        assert (await service.call("reviewer", "POST", "/v1/grants", exempts)).status_code == 201
        assert (await status(3, "mail"))[0] == ("awaiting_approval" if is_own else "allowed")
