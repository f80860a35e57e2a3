"""Deleting, renaming or switching off what another policy waits for takes that one out of force, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.api.handlers.test_policy_files import HOLD, serving

NOTE = HOLD | {"action": "warn", "enabled": True}
HOLDS = HOLD | {"enabled": True}


async def test_a_policy_that_waits_for_what_is_gone_is_told_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:

        async def put(name: str, shape: dict[str, Any]) -> str:
            answer = await service.answered(
                "admin", "POST", "/v1/policies", shape | {"name": name}, status=201
            )
            return f"/v1/policies/{answer['policyId']}"

        async def told() -> dict[str, str]:
            answer = await service.call("nobody", "GET", "/health")
            found = (
                each["message"].split(" waits in vain: ") for each in answer.json()["policies"]["warnings"]
            )
            return {name.split("`")[1]: why.partition(";")[0] for name, why in found}

        reads = await put("Reads", NOTE)
        labels = await put("Labels", NOTE | {"labels": {"add": ["secret"]}})
        await put("After a policy", HOLDS | {"after": {"policy": "reads"}})
        await put("After a label", HOLDS | {"after": {"label": "secret"}})
        asked = [
            {"field": "toolName", "operator": "equals", "value": "send"},
            {"expression": '"secret" in run.labels'},
        ]
        await put("Asks for a label", HOLDS | {"matchConditions": asked})
        either = [{"expression": '"secret" in run.labels || inputPayload.to == "all"'}, asked[0]]
        await put("Asks for either", HOLDS | {"matchConditions": either})
        await put("In shadow", HOLDS | {"after": {"policy": "reads"}, "mode": "shadow"})
        assert await told() == {}

        assert (await service.call("admin", "PATCH", reads, {"mode": "shadow"})).status_code == 200
        why = "the policy `reads` is in shadow, and so never counts as matched"
        assert await told() == {"after-a-policy": why}
        assert (await service.call("admin", "DELETE", reads)).status_code == 204
        assert await told() == {"after-a-policy": "there is no policy `reads`"}
        assert (await service.call("admin", "PATCH", labels, {"enabled": False})).status_code == 200
        nobody = "no policy that is in force adds the label `secret`"
        assert await told() == {
            "after-a-policy": "there is no policy `reads`",
            "after-a-label": nobody,
            "asks-for-a-label": nobody,
        }
