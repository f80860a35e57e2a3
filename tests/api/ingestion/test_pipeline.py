"""Repetitions, and what the writer leaves out since it is hardly ever needed: reading runs again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import peewee
import pytest

from api.auth.credentials import key_digest
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.ingestion import event as event_
from api.ingestion.pipeline import Ingestion
from api.ingestion.quotas import PendingQuota, ProcessorTime
from api.ingestion.validation import checked
from api.server.connections import event_fast_path
from engine.matching.ruleset import Ruleset
from tests.harness.application import Service, event
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.sql_archive import opened

BLOCK = on_tool("No wires", "block", "wire")


def serving(tmp_path: Path) -> Service:
    return Service(tmp_path, [BLOCK, THIEVES])


def another_process(service: Service) -> Ingestion:
    """What decides events in another process: it shares the database and remembers nothing of ours."""
    context = service.context
    return Ingestion(
        context.store,
        IdIndex(context.store),
        rules=context.live.ruleset,
        rules_revision=lambda: context.live.revision,
        rules_mark=lambda: 0,
        catch_up=context.live.catch_up,
        keys_version=lambda: context.credentials.keys_version,
        load_keys=context.credentials.load_keys,
        key_is_active=context.credentials.is_active,
        processor_time=ProcessorTime(),
        keeps=lambda key_id, size: None,
        frontend="",
        pending=PendingQuota(0),
    )


async def record_of_run(service: Service) -> Any:
    return (await service.call("admin", "GET", "/v1/runs/r")).json()


THIEVES = policy_body("No thieves", "block", where("run.task", "contains", "steal"))


async def called(service: Service, number: int, call: str, tool: str = "mail", run: str = "r") -> Any:
    return await service.report("agent", number, "tool.called", runId=run, toolCallId=call, toolName=tool)


async def test_a_repeated_event_gets_its_recorded_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        first = await called(service, 1, "c-1", "wire")
        again = await called(service, 1, "c-1", "wire")
        assert again.content == first.content
        assert again.headers["idempotent-replay"] == "true"
        assert "idempotent-replay" not in first.headers


ASK = on_tool("Ask", "require_approval", "pay")
WARN = policy_body("Wärn", "warn", where("inputPayload.text", "contains", "quote"))
SHADOW = {**WARN, "name": "Shadow", "mode": "shadow"}


async def test_an_answer_that_its_call_tells_is_kept_once(tmp_path: Path) -> None:
    tools = ("mail", "wire", "pay", "halted")

    async def report(service: Service, number: int, tool: str) -> Any:
        payload = {"text": 'a "quote" \u2028 😀 \\'}
        return await service.report(
            *("agent", number, "tool.called"),
            runId="r",
            toolCallId=tool,
            toolName=tool,
            inputPayload=payload,
        )

    async def steps(service: Service) -> None:
        await called(service, 0, "c-0", "pay")  # known by a second event, too
        first = []
        for number, tool in enumerate(tools, 1):
            if tool == "halted":
                halt = await service.call("admin", "POST", "/v1/halt", {"scope": "all", "reason": "stop"})
                assert halt.is_success, halt.text
            first.append(await report(service, number, tool))
        first.append(await report(service, 9, "wire"))
        assert [each.json()["toolCallStatus"] for each in first] == [
            *("allowed", "blocked", "awaiting_approval", "blocked", "blocked"),
        ]
        ended = await service.call("admin", "POST", "/v1/resume", {"scope": "all"})
        assert ended.is_success, ended.text
        approval = first[2].json()["approvalId"]
        done = await service.call("admin", "POST", f"/v1/approvals/{approval}/approve", {"reason": "fine"})
        assert done.is_success, done.text
        rows = service.context.store.rows(
            "SELECT event_id, length(receipt) > 0 FROM events ORDER BY event_no"
        )
        assert [bool(kept) for _, kept in rows] == [True, False, False, True, False, True]
        again = [await report(service, number, tool) for number, tool in enumerate(tools, 1)]
        again.append(await report(service, 9, "wire"))
        for one, other in zip(first, again, strict=True):
            assert other.content == one.content
            assert other.headers["idempotent-replay"] == "true"
        service.context.store.rows_changed("DELETE FROM tool_calls WHERE tool_call_id = 'wire'")
        lost = await report(service, 2, "wire")
        assert (lost.status_code, lost.json()["code"]) == (409, "event_id_conflict")

    async with Service(tmp_path, [BLOCK, ASK, WARN, SHADOW]) as service:
        await steps(service)


async def test_one_repetition_among_many_new_events_spoils_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await called(service, 1, "c-1", "wire")
        numbers = [*range(2, 40), 1, *range(40, 60)]
        answers = await asyncio.gather(
            *(called(service, n, f"c-{n}", "wire" if n == 1 else "mail") for n in numbers)
        )
        for number, answer in zip(numbers, answers, strict=True):
            assert answer.status_code == 200, answer.text
            assert answer.json()["toolCallStatus"] == ("blocked" if number == 1 else "allowed")
            assert ("idempotent-replay" in answer.headers) == (number == 1)
        audit = await service.call("admin", "GET", "/v1/audit?type=decision&limit=200")
        assert len(audit.json()) == 59


async def test_what_was_reported_as_something_else_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await called(service, 1, "c-1")
        answers = [
            await service.report("agent", 1, "tool.called", runId="s", toolCallId="c-1", toolName="mail"),
            await called(service, 2, "c-1", "wire"),
            await service.report(
                "agent", 1, "tool.called", runId="r", agentId="other", toolCallId="c-1", toolName="mail"
            ),
        ]
        for answer in answers:
            assert answer.status_code == 409
        assert [answer.json()["code"] for answer in answers] == [
            *("event_id_conflict", "tool_call_conflict", "event_id_conflict")
        ]


async def test_ids_that_share_a_hash_are_refused_and_not_mixed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(owner: str, name: str) -> int:
        return len(name)

    async with serving(tmp_path) as service:
        monkeypatch.setattr(event_, "hash64", short)
        first = await called(service, 1, "call-1", "wire")
        assert first.json()["toolCallStatus"] == "blocked"
        same_event = await called(service, 2, "another call", "mail")
        assert same_event.json()["code"] == "event_id_conflict"
        same_call = await called(service, 100, "call-2", "wire")
        assert same_call.json()["code"] == "tool_call_conflict"
        ended = await service.report("agent", 2_000_000, "tool.completed", runId="r", toolCallId="call-3")
        assert ended.status_code == 200
        run = await record_of_run(service)
        assert [(call["toolCallId"], call.get("completedAt")) for call in run["toolCalls"]] == [
            ("call-1", None)
        ]


async def test_a_run_that_another_process_ended_is_known_to_have_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await service.report("agent", 1, "run.started", runId="r", task="pay")
        await called(service, 2, "c-1")
        ours, service.context.writer.ingest = service.context.writer.ingest, another_process(service)
        await service.report("agent", 3, "run.completed", runId="r")
        service.context.writer.ingest = ours
        await called(service, 4, "c-2")
        flags = {call["toolCallId"]: call["flags"] for call in (await record_of_run(service))["toolCalls"]}
        assert flags == {"c-1": [], "c-2": ["after_run_ended"]}


async def test_a_run_that_a_failed_transaction_had_ended_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as service:
        await called(service, 1, "c-1")

        def broken(*_: Any) -> None:
            raise peewee.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr("api.database.writer.Transaction.flush", broken)
            failed = await service.report("agent", 2, "run.completed", runId="r")
            assert failed.status_code == 503
        await called(service, 3, "c-2")
        run = await record_of_run(service)
        assert run["status"] == "running"
        assert [call["flags"] for call in run["toolCalls"]] == [[], []]


async def test_what_was_asked_before_does_not_decide_once_the_policies_have_changed(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        writer, ingest = service.context.writer, service.context.writer.ingest
        assert isinstance(ingest, Ingestion)
        caller = service.context.credentials.known(key_digest(service.credentials["agent"]["X-API-Key"]))
        assert caller is not None
        fields = {"toolCallId": "c-1", "toolName": "wire"}
        ready = checked(caller, msgspec.json.encode(event(1, "tool.called", service.clock.text, fields)))
        lax = Ruleset.build([])
        strict = ingest.evaluator._rules("default")
        assert ready is not None
        ingest.evaluator._rules = lambda _: lax
        ingest.prepare([ready])
        ingest.evaluator._rules = lambda _: strict
        answer = await writer.ingested(ready, asyncio.get_running_loop())
        assert msgspec.json.decode(answer.content)["toolCallStatus"] == "blocked"


async def test_what_was_asked_before_does_not_decide_once_the_run_has_said_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        writer = service.context.writer
        caller = service.context.credentials.known(key_digest(service.credentials["agent"]["X-API-Key"]))
        assert caller is not None
        fields = {"toolCallId": "c-1", "toolName": "mail", "runId": "r"}
        ready = checked(caller, msgspec.json.encode(event(1, "tool.called", service.clock.text, fields)))
        assert isinstance(writer.ingest, Ingestion) and ready is not None
        writer.ingest.prepare([ready])
        await service.report("agent", 2, "run.started", runId="r", task="steal")
        answer = await writer.ingested(ready, asyncio.get_running_loop())
        assert msgspec.json.decode(answer.content)["toolCallStatus"] == "blocked"


async def test_events_leave_no_work_to_the_garbage_collector(tmp_path: Path) -> None:
    """It would stop the process for tens of milliseconds time and again."""
    async with serving(tmp_path) as service:
        loop, writer = asyncio.get_running_loop(), service.context.writer
        key = service.credentials["agent"]["X-API-Key"]
        caller = service.context.credentials.known(key_digest(key))
        assert caller is not None

        async def ingest(first: int) -> None:
            waiting = []
            for number in range(first, first + 300):
                tool = "wire" if number % 3 else "mail"
                fields = {"toolCallId": f"c-{number}", "toolName": tool, "inputPayload": {"a": [1, {}]}}
                raw = msgspec.json.encode(event(number, "tool.called", service.clock.text, fields))
                ready = checked(caller, raw)
                waiting.append(writer.ingested(ready, loop))
            await asyncio.gather(*waiting)

        await ingest(0)
        gc.collect()
        gc.disable()
        try:
            await ingest(1_000)
            assert gc.collect() < 300
        finally:
            gc.enable()
        exchange = event_fast_path._Exchange(b"key", None, b"", True)
        gone = weakref.finalize(exchange, lambda: None)
        gc.disable()
        try:
            del exchange
            assert not gone.alive
        finally:
            gc.enable()


# ---- databases of before ------------------------------------------------------------------------------


@pytest.fixture
def store(database_url: str) -> Iterator[Database]:
    made = opened(database_url)
    yield made
    made.close()
