"""Organisations whose agents call while no policy of theirs is enforced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")
CALL = {"toolCallId": "call-1", "toolName": "pay", "inputPayload": {}}


async def test_health_names_them_since_policies_of_others_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Service(tmp_path, [HOLD], live=True) as service:

        async def warnings() -> list[str]:
            answer = await service.call("nobody", "GET", "/health")
            return [each["message"] for each in answer.json()["policies"]["warnings"]]

        assert (await service.report("agent", 1, "tool.called", **CALL)).status_code == 200
        assert await warnings() == []
        answer = await service.report("other agent", 2, "tool.called", **CALL)
        assert answer.json()["toolCallStatus"] == "allowed"
        (warning,) = await warnings()
        assert warning == (
            "no policy is enforced for the agents of `other`, so that every call of theirs is allowed: "
            "make some of its own, such as `organisations/other/ID.yaml`, since those of others do not "
            "count"
        )
        with monkeypatch.context() as few:
            few.setattr("api.policies.warnings.MOST_ERRORS", 0)
            assert await warnings() == [], "anybody may ask, and there may be thousands"
        await service.answered("other admin", "POST", "/v1/policies", HOLD, status=201)
        assert await warnings() == []
