"""Proposed tools are bounded: a key that tells of ever more servers has to wait for an admin."""

from __future__ import annotations

from pathlib import Path

from api.store.tools.proposals import MOST_OF_A_KEY
from tests.harness.application import Service


def body(server: int, tools: int = 1) -> dict[str, object]:
    named = [{"name": f"tool_{number}", "definition": f"{number:064x}"} for number in range(tools)]
    return {"server": f"server {server}", "tools": named}


async def test_a_key_tells_of_so_many_servers(tmp_path: Path) -> None:
    async with Service(tmp_path, live=True) as service:

        async def told(server: int, who: str = "agent") -> int:
            answer = await service.call(who, "POST", "/v1/tool-proposals", body(server))
            return answer.status_code

        assert [await told(number) for number in range(MOST_OF_A_KEY)] == [200] * MOST_OF_A_KEY
        refused = await service.call("agent", "POST", "/v1/tool-proposals", body(MOST_OF_A_KEY))
        assert refused.status_code == 409 and "no admin has looked at" in refused.json()["detail"]
        assert await told(0) == await told(MOST_OF_A_KEY, "second agent") == 200
        listed = (await service.call("agent", "GET", "/v1/tool-proposals")).json()
        first = next(each for each in listed if each["server"] == "server 3")
        address = f"/v1/tool-proposals/{first['proposalId']}/dismiss"
        assert (await service.call("admin", "POST", address)).status_code == 200
        assert await told(MOST_OF_A_KEY) == 200
        listed = (await service.call("agent", "GET", "/v1/tool-proposals?limit=5")).json()
        assert len(listed) == 5 and "server 3" not in {each["server"] for each in listed}


async def test_pages_hold_each_proposal_once(tmp_path: Path) -> None:
    async with Service(tmp_path, live=True) as service:
        for number in range(7):
            await service.call("agent", "POST", "/v1/tool-proposals", body(number))
        found: list[str] = []
        address = "/v1/tool-proposals?limit=3"
        while address:
            answer = await service.call("admin", "GET", address)
            found += [each["server"] for each in answer.json()]
            address = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
        assert sorted(found) == [f"server {number}" for number in range(7)]


async def test_five_hundred_tools_are_admitted_at_once(tmp_path: Path) -> None:
    async with Service(tmp_path, live=True) as service:
        proposed = (await service.call("agent", "POST", "/v1/tool-proposals", body(1, 500))).json()
        address = f"/v1/tool-proposals/{proposed['proposalId']}/admit"
        answer = await service.answered("admin", "POST", address, {"digest": proposed["digest"]})
        assert answer["counts"] == {"admitted": 500, "changed": 0, "new": 0}
        assert len(answer["toolSet"]["tools"][0]["names"]) == 500
