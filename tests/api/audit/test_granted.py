"""Grants in the tables are those of the log, and so is how often each was used."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.audit.verification import verify
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

POLICIES = [on_tool("Ask before paying", "require_approval", "pay")]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT 1", ""),
        ("DELETE FROM grants", "is in the log, but gone from the database"),
        ("UPDATE grants SET calls = 100", "is `100`"),
        ("UPDATE grants SET expires_at = '2999-01-01T00:00:00.000000Z'", "`2999-01-01T00:00:00.000000Z`"),
        ("UPDATE grants SET run_id = 'another'", "another"),
        ("UPDATE grants SET key_id = 'another'", "another"),
        ("UPDATE grants SET payload_digest = 'x'", "the grant"),
        ("UPDATE grants SET revoked_at = NULL", "`not revoked`"),
        ("UPDATE grants SET revoked_at = created_at", "the log says `5`"),
        ("UPDATE grants SET policies = 'x'", "the grant"),
        ("UPDATE grants SET labels = ''", "the grant"),
        ("DELETE FROM grant_uses", "the number of calls of grant"),
        ("INSERT INTO grant_uses SELECT grant_id, 7 FROM grants", "the number of calls of grant"),
    ],
)
async def test_what_was_changed_of_grants_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    async with Service(tmp_path, POLICIES) as service:
        granted = []
        for number in range(2):
            call = {"toolName": "pay", "inputPayload": {"amount": number}}
            held = await service.report("agent", number, "tool.called", toolCallId=f"a-{number}", **call)
            path = f"/v1/approvals/{held.json()['approvalId']}/approve"
            body = {"grant": {"scope": "run", "calls": 5, "minutes": 9}}
            granted.append((await service.call("reviewer", "POST", path, body)).json()["grant"])
            again = await service.report(
                "agent", 10 + number, "tool.called", toolCallId=f"b-{number}", **call
            )
            assert again.json()["grantIds"] == [granted[-1]["grantId"]]
        await service.call("reviewer", "POST", f"/v1/grants/{granted[0]['grantId']}/revoke")
        context = service.context
        await context.writer.write(lambda transaction: transaction.store.change(statement))
        found = await context.store.read(lambda: verify(context.store, "default"))
        assert found["valid"] is (problem == "")
        assert not problem or any(problem in each for each in found["problems"]), found["problems"]
