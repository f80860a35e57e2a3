"""Who must approve, who has, and what waits for a second admin: a change in the database alone is found."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from api.caller import Caller
from api.store.review import changes
from api.store.review.changes import NewChange
from tests.harness.application import Service
from tests.harness.dropping import changed, signed, verified
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay", approval={"approvers": 2})
ADMIN = Caller("user", "default", role="admin", user_id="usr_1", email="admin@acme.example")
WANTED = NewChange("DELETE /v1/policies/:id", "no-wipes", {}, {}, "digest", 1)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE tool_calls SET status = status", None),
        ("UPDATE approvals SET terms = '{}'", "the request for approval"),
        ("UPDATE approvals SET payload_digest = 'x'", "the request for approval"),
        ('UPDATE approvals SET given = \'[{"actor":"boss"}]\'', "the approvers so far of approval"),
        ("UPDATE approvals SET given = NULL", "the approvers so far of approval"),
        ("DELETE FROM held_changes", "is in the log, but gone from the database"),
        ("UPDATE held_changes SET status = 'approved'", "the log says `DELETE /v1/policies/:id`"),
        ("UPDATE held_changes SET state = 'other'", "the log says `DELETE /v1/policies/:id`"),
    ],
)
async def test_it_is_found(tmp_path: Path, statement: str, problem: str | None) -> None:
    async with Service(tmp_path, [HOLD]) as service:
        call = {"toolCallId": "call-1", "toolName": "pay", "inputPayload": {}}
        approval = (await service.report("agent", 1, "tool.called", **call)).json()["approvalId"]
        await service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve")
        await service.context.writer.write(partial(changes.add, caller=ADMIN, change=WANTED))
        await signed(service)
        await changed(service, statement)
        found = await verified(service)
        assert found["valid"] is (problem is None)
        assert problem is None or any(problem in each for each in found["problems"]), found
