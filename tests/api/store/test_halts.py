"""How many halts may be in force: whoever stops everything is never refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from api.store import halts
from tests.harness.application import Service


def test_halts_in_force_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With each change of one all are read again before the next event, of whichever organisation."""
    monkeypatch.setattr(halts, "MOST_IN_FORCE", 3)

    async def play() -> None:
        async with Service(tmp_path) as service:

            async def halt(who: str, body: dict[str, str]) -> int:
                return (await service.call(who, "POST", "/v1/halt", body)).status_code

            for number in range(3):
                assert await halt("other admin", {"agentId": f"agent-{number}"}) == 200
            refused = await service.call("other admin", "POST", "/v1/halt", {"agentId": "agent-3"})
            assert refused.status_code == 409 and "halt all agents" in refused.json()["detail"]
            assert await halt("admin", {"agentId": "agent-3"}) == 200, "of another organisation"
            assert await halt("other admin", {}) == 200, "an emergency"
            assert await halt("other admin", {}) == 409, "which all agents are halted by already"
            assert (await service.call("other admin", "POST", "/v1/resume", {})).json()[0]["scope"] == "all"
            assert (await service.call("other admin", "POST", "/v1/resume", {"agentId": "agent-0"})).json()
            assert await halt("other admin", {"agentId": "agent-3"}) == 200

    asyncio.run(play())
