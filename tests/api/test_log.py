"""What an operator reads in the log: one line for each thing that people did, and nothing that is secret."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.harness.application import PASSWORD, Service
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")
PRESET = """\
apiVersion: governance/v1
kind: Preset
presetId: {0}
category: money
name: {0}
description: Wires are for people.
action: block
matchConditions: [{{field: toolName, operator: equals, value: {0}}}]
examples: [{{match: true, toolName: {0}}}]
"""
PACK = """\
apiVersion: governance/v1
kind: Pack
packId: money
name: Money
description: All about money.
presets: [wires, swaps]
"""
FILES = {f"presets/money/{each}.yaml": PRESET.format(each) for each in ("wires", "swaps")}


class Told:
    """What was logged since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", logger="governance")
        self._caplog = caplog

    def __call__(self) -> list[tuple[str, str]]:
        found = [(each.levelname, each.getMessage()) for each in self._caplog.records]
        self._caplog.clear()
        return found


def test_what_people_do_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_what_people_do(tmp_path, Told(caplog)))


async def _what_people_do(folder: Path, told: Told) -> None:
    async with Service(folder, [HOLD], live=True, files=FILES | {"packs/money.yaml": PACK}) as service:
        said = [line for line in told() if "is in force" in line[1]]
        assert said == [
            (
                "INFO",
                "revision 1 is in force, from the policy files: "
                "created `hold-payments`, pack `money`, preset `swaps`, preset `wires`",
            )
        ]
        by = "is in force, through the API, by admin@acme.example:"
        await service.call("admin", "POST", "/v1/policy-presets/packs/money/activate")
        assert told() == [
            ("INFO", f"revision 2 {by} created `swaps` of preset `swaps`, `wires` of preset `wires`")
        ]
        await service.call("admin", "PATCH", "/v1/policies/swaps", {"enabled": False})
        assert told() == [("INFO", f"revision 3 {by} changed `swaps` of preset `swaps`")]
        await service.call("admin", "PATCH", "/v1/policies/swaps", {"enabled": "maybe"})
        await service.call("admin", "PATCH", "/v1/policies/swaps", {"enabled": False})
        assert told() == [], "nothing was changed"
        await service.call("admin", "DELETE", "/v1/policies/swaps")
        assert told() == [("INFO", f"revision 4 {by} deleted `swaps` of preset `swaps`")]

        call = {"toolCallId": "call-1", "toolName": "pay", "inputPayload": {}}
        approval_id = (await service.report("agent", 1, "tool.called", **call)).json()["approvalId"]
        for _ in range(2):
            await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve")
        assert told() == [("INFO", f"rita@acme.example: approval {approval_id} is approved")]

        halt = {"agentId": "mailer\nforged line", "reason": "it pays too much"}
        halt_id = (await service.call("admin", "POST", "/v1/halt", halt)).json()["haltId"]
        assert told() == [
            ("WARNING", f"admin@acme.example halted agent 'mailer\\nforged line' (halt {halt_id})")
        ]
        for _ in range(2):
            await service.call("second admin", "POST", "/v1/resume", {"haltId": halt_id, "reason": "mended"})
        assert told() == [
            ("WARNING", f"second.admin@acme.example resumed agent 'mailer\\nforged line' (halt {halt_id})")
        ]
        halt_id = (await service.call("admin", "POST", "/v1/halt", {})).json()["haltId"]
        assert told() == [("WARNING", f"admin@acme.example halted all agents (halt {halt_id})")]

        halt_id = (await service.call("other admin", "POST", "/v1/halt", {})).json()["haltId"]
        assert told() == [("WARNING", f"admin@other.example halted all agents of `other` (halt {halt_id})")]

        for email, password in (
            ("Vera@acme.example", PASSWORD),
            ("vera@acme.example", "not her password"),
            ("a password by mistake", "not her password"),
        ):
            await service.call("nobody", "POST", "/auth/login", {"email": email, "password": password})
        assert told() == [
            ("WARNING", "login of vera@acme.example from 127.0.0.1 failed: wrong password"),
            ("WARNING", "login of nobody from 127.0.0.1 failed: no user has this e-mail"),
        ]


def test_many_files_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"preset-{number}" for number in range(12)]
    files = {f"presets/money/{each}.yaml": PRESET.format(each) for each in names}
    told = Told(caplog)

    async def start() -> None:
        async with Service(tmp_path, [HOLD], live=True, files=files):
            pass

    asyncio.run(start())
    counted = "created 1 policy, 12 presets"
    assert ("INFO", f"revision 1 is in force, from the policy files: {counted}") in told()
