"""A call that waits for a person: in whichever way the client can, and never approved by the client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mcp_proxy import MODERN, Proxy, ScriptedRun, call, elicits, tool

TOOLS = [tool("wire")]
URL = "https://console.example/approvals?approvalId=apr_1"


async def handshake(proxy: Proxy, **capabilities: Any) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {}}
    await proxy.say({"id": 0, "method": "initialize", "params": params})
    await proxy.to_server()
    await proxy.server_says({"id": 0, "result": {"protocolVersion": "2025-11-25"}})
    await proxy.to_client()


@pytest.mark.parametrize("meta", [None, MODERN], ids=["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("outcome", ["rejected", "expired", "cancelled", "halted", "unavailable"])
async def test_a_client_that_cannot_ask_waits(meta: Any, outcome: str, tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await proxy.say(call(1, "wire", meta, amount=1))
        await proxy.until_asked(run)
        run.later.set_result(outcome)
        assert await proxy.refusal() == f"To the model: {outcome}."
        assert await proxy.nothing_reached_the_server()


async def test_an_approved_call_goes_on(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await proxy.say(call(1, "wire", amount=1))
        await proxy.until_asked(run)
        run.later.set_result("allowed")
        assert (await proxy.to_server())["params"] == {"name": "wire", "arguments": {"amount": 1}}


async def test_an_open_call_is_gone_on_with_by_the_same_arguments_once(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path, wait=0) as proxy:
        for number in range(2):
            await proxy.say(call(number, "wire", amount=1))
            assert await proxy.refusal() == "To the model: awaiting_approval."
        await proxy.say(call(2, "wire", amount=2))
        await proxy.refusal()
        run.now = "allowed"
        for number in (3, 4):
            await proxy.say(call(number, "wire", amount=1))
            await proxy.to_server()
    first, again, other, approved, anew = run.call_ids
    assert first == again == approved
    assert len({first, other, anew}) == 3, "an approval lets one call through"


async def test_progress_is_told_to_whoever_wants_it(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await proxy.say(call(1, "wire", {"progressToken": "p"}, amount=1))
        told = await proxy.to_client()
        assert told["method"] == "notifications/progress" and "id" not in told
        assert told["params"]["progressToken"] == "p" and 0 < told["params"]["progress"] < 1
        assert URL in told["params"]["message"]
        run.later.set_result("allowed")
        await proxy.to_server()


async def test_an_id_is_the_same_however_a_client_writes_it(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, [tool("pay")], pins=tmp_path) as proxy:
        await proxy.say(call(1, "pay"))
        while not run.asked:
            await asyncio.sleep(0.01)
        await proxy.say({"method": "notifications/cancelled", "params": {"requestId": 1.0}})
        await proxy.say({"id": 2, "method": "ping"})
        assert (await proxy.to_server())["method"] == "ping", "what is held here is no business of the server"


async def test_a_client_that_cancels_leaves_its_call_open(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await proxy.say(call(1, "wire", amount=1))
        await proxy.until_asked(run)
        await proxy.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        run.later.set_result("allowed")
        assert await proxy.nothing_reached_the_server()
        await proxy.say(call(2, "wire", amount=1))
        assert (await proxy.to_server())["id"] == 2
    assert len(set(run.call_ids)) == 1


async def test_a_client_that_goes_away_ends_the_waiting(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await proxy.say(call(1, "wire", amount=1))
        await proxy.until_asked(run)
        proxy.client_ends()
        assert await proxy.refusal() == "To the model: awaiting_approval."


# ---- up to 2025-11-25: elicitation/create ------------------------------------------------------------------


async def test_the_person_at_the_client_is_told_where_the_reviewer_decides(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await handshake(proxy, elicitation={})
        await proxy.say(call(1, "wire", amount=1))
        asked = await proxy.to_client()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["requestedSchema"] == {"type": "object", "properties": {}}
        assert URL in asked["params"]["message"] and "does not approve" in asked["params"]["message"]
        await proxy.say({"id": asked["id"], "result": {"action": "accept", "content": {}}})
        assert await proxy.nothing_reached_the_server(), "accepting approves nothing"
        run.later.set_result("allowed")
        assert (await proxy.to_server())["method"] == "tools/call"


async def test_a_server_cannot_answer_what_the_client_is_asked(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, pins=tmp_path, lists=False) as proxy:
        await handshake(proxy, elicitation={})
        await proxy.say(call(1, "wire", amount=1))
        listing = await proxy.to_server()
        await proxy.server_says({"id": listing["id"], "result": {"tools": TOOLS}})
        asked = await proxy.to_client()
        await proxy.server_says({"id": asked["id"], "result": {"action": "decline"}})
        assert await proxy.nothing_reached_the_server()
        run.later.set_result("allowed")
        assert (await proxy.to_server())["method"] == "tools/call"
    assert listing["id"].split("-")[1] not in asked["id"], "nor guess under which id that is"
    assert any("nothing of this id was asked" in each for each in proxy.warnings)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_client_that_answers_by_itself_leaves_the_call_waiting(action: str, tmp_path: Path) -> None:
    """As Claude Code does with `-p` (`cancel`, 15 ms) and Copilot (`decline`, 1 ms)."""
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await handshake(proxy, elicitation={})
        await proxy.say(call(1, "wire", amount=1))
        await proxy.say({"id": (await proxy.to_client())["id"], "result": {"action": action}})
        assert await proxy.nothing_reached_the_server()
        run.later.set_result("allowed")
        assert (await proxy.to_server())["method"] == "tools/call"


@pytest.mark.parametrize("action", ["decline", "cancel", "approve", None])
async def test_whoever_does_not_accept_gives_the_call_up(
    action: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.mcp_proxy.governor.QUICKEST_SECONDS", 0)
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await handshake(proxy, elicitation={})
        await proxy.say(call(1, "wire", amount=1))
        asked = await proxy.to_client()
        await proxy.say({"id": asked["id"], "result": {"action": action}})
        assert "did not want to wait" in await proxy.refusal()
        run.later.set_result("allowed")
        assert await proxy.nothing_reached_the_server()
        await proxy.say(call(2, "wire", amount=1))
        await proxy.until_asked(run, 2)
    assert len(set(run.call_ids)) == 2, "what was given up is not gone on with"


async def test_a_client_that_fails_to_ask_leaves_the_call_waiting(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await handshake(proxy, elicitation={})
        await proxy.say(call(1, "wire", amount=1))
        asked = await proxy.to_client()
        await proxy.say({"id": asked["id"], "error": {"code": -32601, "message": "no"}})
        assert await proxy.nothing_reached_the_server()
        run.later.set_result("allowed")
        assert (await proxy.to_server())["method"] == "tools/call"


async def test_what_was_asked_is_taken_back_when_the_reviewer_has_decided(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        await handshake(proxy, elicitation={"url": {}})
        await proxy.say(call(1, "wire", amount=1))
        asked = await proxy.to_client()
        assert asked["params"]["mode"] == "url" and asked["params"]["url"] == URL
        run.later.set_result("allowed")
        taken_back = await proxy.to_client()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == asked["id"]
        assert (await proxy.to_server())["method"] == "tools/call"
        await proxy.say({"id": asked["id"], "result": {"action": "decline"}})
        assert await proxy.nothing_reached_the_server(), "a late answer concerns nobody"


# ---- 2026-07-28: input_required ----------------------------------------------------------------------------


async def asked_by(proxy: Proxy, id: int = 1, **arguments: Any) -> dict[str, Any]:
    await proxy.say(call(id, "wire", elicits(form={}), **arguments))
    result: dict[str, Any] = (await proxy.to_client())["result"]
    assert result["resultType"] == "input_required"
    return result


def answered(id: int, asked: dict[str, Any], action: str, **arguments: Any) -> dict[str, Any]:
    made = call(id, "wire", elicits(form={}), **arguments)
    (key,) = asked["inputRequests"]
    made["params"] |= {
        "requestState": asked["requestState"],
        "inputResponses": {key: {"action": action}},
    }
    return made


async def test_a_modern_client_is_asked_and_goes_on_with_the_state(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        asked = await asked_by(proxy, amount=1)
        (request,) = asked["inputRequests"].values()
        assert request["method"] == "elicitation/create" and URL in request["params"]["message"]
        await proxy.say(answered(2, asked, "accept", amount=1))
        await proxy.until_asked(run, 2)
        assert await proxy.nothing_reached_the_server(), "accepting approves nothing"
        run.later.set_result("allowed")
        passed = await proxy.to_server()
        assert passed["params"] == call(2, "wire", elicits(form={}), amount=1)["params"]
    assert len(set(run.call_ids)) == 1


async def test_a_state_serves_its_own_call_once(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        asked = await asked_by(proxy, amount=1)
        run.now = "allowed"
        await proxy.say(answered(2, asked, "accept", amount=1_000_000))
        assert "not of this call" in await proxy.refusal()
        forged = {**asked, "requestState": asked["requestState"] + "x"}
        await proxy.say(answered(3, forged, "accept", amount=1))
        assert "not of this call" in await proxy.refusal()
        await proxy.say(answered(4, asked, "accept", amount=1))
        assert (await proxy.to_server())["id"] == 4
        await proxy.say(answered(5, asked, "accept", amount=1))
        assert "not of this call" in await proxy.refusal()
        assert await proxy.nothing_reached_the_server()


async def test_a_state_lapses(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.mcp_proxy.governor.STATE_SECONDS", -1.0)
        async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
            asked = await asked_by(proxy, amount=1)
            await proxy.say(answered(2, asked, "accept", amount=1))
            assert "has lapsed" in await proxy.refusal()


async def test_asking_anew_takes_the_earlier_state_out_of_use(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        first = await asked_by(proxy, 1, amount=1)
        second = await asked_by(proxy, 2, amount=1)
        run.now = "allowed"
        await proxy.say(answered(3, second, "accept", amount=1))
        assert (await proxy.to_server())["id"] == 3
        await proxy.say(answered(4, first, "accept", amount=1))
        assert "not of this call" in await proxy.refusal()
    assert len(set(run.call_ids)) == 1, "one approval"


async def test_a_modern_client_may_give_the_call_up(tmp_path: Path) -> None:
    run = ScriptedRun("awaiting_approval")
    async with Proxy(run, TOOLS, pins=tmp_path) as proxy:
        asked = await asked_by(proxy, amount=1)
        await proxy.say(answered(2, asked, "decline", amount=1))
        assert "did not want to wait" in await proxy.refusal()
        assert len(run.asked) == 1
