"""What is read of runs stays within bounds, whatever their agents wrote into them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from api.audit import stored_decision
from api.ingestion.flow import SAID
from api.store import hook_calls, runs
from tests.harness.application import NO_LAUNCHES, Service
from tests.harness.conversation import check_shape
from tests.harness.policy_bodies import on_tool


def serving(tmp_path: Path, database_url: str, policies: Any = (NO_LAUNCHES,)) -> Service:
    return Service(tmp_path, policies, database=database_url)


async def test_what_agents_assert_of_calls_is_bounded(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_PAYLOAD_BYTES", 1_000_000)
    async with serving(tmp_path, database_url) as service:
        said = {"reason": "since", "agentContext": {"goal": "a" * 150_000}}
        for number in range(8):
            fields = {"toolCallId": f"c-{number}", "toolName": "look", **said}
            assert (await service.report("agent", number, "tool.called", **fields)).status_code == 200
        answer = await service.call("agent", "GET", "/v1/runs/run-1")
        assert len(answer.content) < 1_100_000
        check_shape("GET", "/v1/runs/run-1", answer)
        calls = answer.json()["toolCalls"]
        assert [call["asserted"] == said for call in calls] == [True] * 3 + [False] * 5
        size = len('"since"{"goal":""}') + 150_000
        assert [call["asserted"] for call in calls[3:]] == [{"bytes": size}] * 5
        assert ["leftOut" in call for call in calls] == [False] * 3 + [True] * 5
        assert all(call["keyId"] for call in calls)


def _most_in_memory() -> int:
    """Bytes that this process had in memory at most, since its peak was forgotten."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is known on Linux alone")
async def test_a_run_is_not_in_memory_as_a_whole(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is kept of it: who has a key, or looks at its runs, would end the service for all."""
    monkeypatch.setattr(runs, "MOST_PAYLOAD_BYTES", 1_000_000)
    monkeypatch.setattr(runs, "AT_ONCE", 4)
    async with serving(tmp_path, database_url) as service:
        large = "x" * 900_000
        for number in range(60):
            call = {"toolCallId": f"c-{number}"}
            await service.report(
                "agent", 2 * number, "tool.called", **call, toolName="look", inputPayload={"x": large}
            )
            answer = await service.report(
                "agent", 2 * number + 1, "tool.completed", **call, outputPayload=large
            )
            assert answer.status_code == 200
        Path("/proc/self/clear_refs").write_text("5")
        before = _most_in_memory()
        answer = await service.call("agent", "GET", "/v1/runs/run-1")
        assert len(answer.json()["toolCalls"]) == 60
        assert _most_in_memory() - before < 50_000_000


async def test_prompts_that_were_put_off_are_not_in_memory_together(
    tmp_path: Path, database_url: str
) -> None:
    """A host asks at each prompt whether one of its calls has put it off until now."""
    async with serving(tmp_path, database_url) as service:
        large = "x" * 900_000
        for number in range(60):
            call = {"toolCallId": f"c-{number}", "toolName": "CronCreate"}
            payload = {"prompt": "look again" if number == 0 else large}
            await service.report("agent", number, "tool.called", **call, inputPayload=payload)
        kinds = {"look again": [], "hello": ["run.started"], "hello again": ["run.started", SAID]}
        for prompt, told in kinds.items():
            said = {"hook_event_name": "UserPromptSubmit", "session_id": "run-1", "prompt": prompt}
            tracemalloc.start()
            try:
                answer = await service.call("agent", "POST", "/v1/hooks/claude-code?agentId=mailer", said)
                assert tracemalloc.get_traced_memory()[1] < 10_000_000
            finally:
                tracemalloc.stop()
            assert answer.headers["Governance-Outcome"] == "recorded", answer.text
            records = (await service.call("admin", "GET", "/v1/audit?type=event")).json()
            assert sorted(each["details"]["eventType"] for each in records) == sorted(told)


async def test_a_call_that_retention_removes_meanwhile_has_put_nothing_off(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload_of = hook_calls._payload_of
    monkeypatch.setattr(hook_calls, "_payload_of", lambda number: payload_of(number + 1_000))
    async with serving(tmp_path, database_url) as service:
        call = {"toolCallId": "c-1", "toolName": "CronCreate", "inputPayload": {"prompt": "look again"}}
        await service.report("agent", 1, "tool.called", **call)
        said = {"hook_event_name": "UserPromptSubmit", "session_id": "run-1", "prompt": "look again"}
        answer = await service.call("agent", "POST", "/v1/hooks/claude-code?agentId=mailer", said)
        assert answer.headers["Governance-Outcome"] == "recorded", answer.text


async def test_outputs_take_no_more_memory_than_their_text(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        output = [{}] * 60_000
        for number in range(8):
            call = {"toolCallId": f"c-{number}"}
            await service.report("agent", 2 * number, "tool.called", **call, toolName="look")
            answer = await service.report(
                "agent", 2 * number + 1, "tool.completed", **call, outputPayload=output
            )
            assert answer.status_code == 200
        tracemalloc.start()
        try:
            answer = await service.call("agent", "GET", "/v1/runs/run-1")
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < 10 * len(answer.content)
        check_shape("GET", "/v1/runs/run-1", answer)
        assert [call["outputPayload"] for call in answer.json()["toolCalls"]] == [output] * 8


async def test_a_list_of_runs_is_bounded(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        long = "ä" * 100_000
        said = {"task": long, "model": long, "reason": long, "agentContext": {"goal": long}}
        brief = {"task": "settle", "agentContext": {"goal": "win"}}
        await service.report("agent", 1, "run.started", **said)
        await service.report("agent", 2, "run.started", runId="run-2", **brief)
        answer = await service.call("agent", "GET", "/v1/runs")
        assert len(answer.content) < 40_000
        check_shape("GET", "/v1/runs", answer)
        second, first = answer.json()
        assert (second["task"], second["model"]) == ("settle", None)
        assert second["asserted"] == {"agentContext": {"goal": "win"}}
        shown = long[:4_096]
        assert (first["task"], first["model"]) == (shown, shown)
        assert first["asserted"] == {"reason": shown, "bytes": 100_011}
        whole = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        assert (whole["task"], whole["asserted"]) == (
            long,
            {"reason": long, "agentContext": {"goal": long}},
        )


async def test_a_run_comes_in_pages_from_its_newest_call(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        for number in range(5):
            tool = {"toolCallId": f"c-{number}", "toolName": "launch" if number == 1 else "look"}
            await service.report("agent", number, "tool.called", **tool)
        path, pages = "/v1/runs/run-1?limit=2", []
        while path:
            answer = await service.call("agent", "GET", path)
            check_shape("GET", "/v1/runs/run-1", answer)
            assert answer.headers["X-Total-Count"] == "5"
            run = answer.json()
            assert run["toolCallCounts"] == {"allowed": 4, "blocked": 1, "awaiting_approval": 0}
            pages.append([call["toolCallId"] for call in run["toolCalls"]])
            path = answer.headers.get("Link", "").partition(">")[0].removeprefix("<")
        assert pages == [["c-3", "c-4"], ["c-1", "c-2"], ["c-0"]]
        await service.answered("agent", "GET", "/v1/runs/run-1?limit=10001", status=422)


async def test_approvals_are_held_against_the_record_together(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    check = stored_decision.check

    def noted(call: Any, receipt: bytes = b"") -> Any:
        checked.append(call.tool_call_id)
        return check(call, receipt)

    hold = on_tool("Hold payments", "require_approval", "pay")
    async with serving(tmp_path, database_url, [hold]) as service:
        for number in range(4):
            fields = {"toolCallId": f"c-{number}", "toolName": "pay"}
            answer = await service.report("agent", number, "tool.called", **fields)
            how = "reject" if number == 2 else "approve"
            await service.call("reviewer", "POST", f"/v1/approvals/{answer.json()['approvalId']}/{how}")
            service.clock.advance(1)
        change = "UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-2'"
        await service.context.writer.write(lambda transaction: transaction.store.change(change, ()))
        monkeypatch.setattr(stored_decision, "check", noted)
        calls = (await service.call("agent", "GET", "/v1/runs/run-1")).json()["toolCalls"]
        assert [call["status"] for call in calls] == ["allowed", "allowed", "blocked", "allowed"]
        assert "not the one of its record" in calls[2]["blockedReason"]
        assert checked == ["c-2"]
