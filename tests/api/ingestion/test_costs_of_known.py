"""What is reported again is found, compared and answered within the commit of others: it costs them next to
nothing, however large what was recorded is and however often it is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.ingestion import event as ingested
from api.ingestion import pipeline
from api.ingestion.known import lookups
from api.ingestion.pipeline import Ingestion
from api.ingestion.quotas import MOST_OF_A_COMMIT
from api.ingestion.turns import LARGE
from tests.harness.application import Service, event
from tests.harness.policy_bodies import policy_body
from tests.harness.waiting import busy

AT = "2026-01-31T09:30:00Z"


def told(number: int, size: int) -> dict[str, Any]:
    return event(number, "custom.note", AT, {"runId": "r", "text": "x" * size})


def test_small_events_under_the_ids_of_large_ones_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """Each is compared with all that was recorded, which takes a thousand times as long as to send it."""
    compared: list[int] = []
    same_body = ingested.same_body

    def slow(one: bytes, other: bytes) -> bool:
        compared[-1] += 1
        busy(2 * MOST_OF_A_COMMIT)
        return same_body(one, other)

    monkeypatch.setattr(lookups, "same_body", slow)

    async def play() -> None:
        async with Service(tmp_path, database=database_url) as service:
            recorded = {"events": [told(number, LARGE) for number in range(6)]}
            first = await service.call("agent", "POST", "/v1/events/batch", recorded)
            assert [each["status"] for each in first.json()["results"]] == [200] * 6, first.text
            ingestion = service.context.writer.ingest
            assert isinstance(ingestion, Ingestion)
            apply = ingestion.apply

            def noted(transaction: Any, events: Any, **how: Any) -> Any:
                compared.append(0)
                return apply(transaction, events, **how)

            monkeypatch.setattr(ingestion, "apply", noted)
            other = {"events": [told(number, 1) for number in range(6)]}
            answer = await service.call("agent", "POST", "/v1/events/batch", other)
            assert {each["status"] for each in answer.json()["results"]} == {409}, answer.text
            again = await service.call("agent", "POST", "/v1/events", recorded["events"][0])
            assert again.json() == first.json()["results"][0]["answer"]

    asyncio.run(play())
    assert max(compared) == 1, "of one key in one commit"
    assert sum(compared) == 7


def test_what_may_be_large_is_not_read_with_all_that_events_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """Of a call that is known, what its decision saw, such as a context of a megabyte."""
    seen: list[int] = []
    calls = lookups._calls

    def noted(rows: Any) -> Any:
        found = calls(rows)
        seen.extend(len(each.facts) for each in found.values())
        return found

    monkeypatch.setattr(lookups, "_calls", noted)

    async def play() -> None:
        async with Service(tmp_path, database=database_url) as service:
            call = {"runId": "r", "toolCallId": "c", "toolName": "look", "inputPayload": {}}
            body = event(1, "tool.called", AT, {**call, "agentContext": {"goal": "x" * 100_000}})
            answers = [await service.call("agent", "POST", "/v1/events", body) for _ in range(2)]
            assert answers[0].content == answers[1].content
            done = event(2, "tool.completed", AT, {"runId": "r", "toolCallId": "c"})
            assert (await service.call("agent", "POST", "/v1/events", done)).status_code == 200
            run = (await service.call("agent", "GET", "/v1/runs/r")).json()
            assert run["toolCalls"][0]["asserted"]["agentContext"] == {"goal": "x" * 100_000}

    asyncio.run(play())
    assert seen and max(seen) == 0


def test_what_runs_tell_of_themselves_is_read_within_the_time_of_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """A run may tell a megabyte of itself, and a call in it be tiny. What it told counts, and stays."""
    read: list[int] = []
    tell = pipeline.tell

    def slow(store: Any, run: Any) -> None:
        read[-1] += 1
        busy(2 * MOST_OF_A_COMMIT)
        tell(store, run)

    monkeypatch.setattr(pipeline, "tell", slow)
    rule = {"field": "run.agentContext.aim", "operator": "ends_with", "value": "deploy"}
    policy = {"policyId": "no-deploy", "name": "No deploy", "matchConditions": [rule], "action": "block"}

    def begins(number: int) -> dict[str, Any]:
        context = {"aim": "x" * LARGE + ("deploy" if number % 2 else "")}
        return event(number, "run.started", AT, {"runId": f"r-{number}", "agentContext": context})

    def calls(number: int) -> dict[str, Any]:
        call = {"runId": f"r-{number}", "toolCallId": "c", "toolName": "look", "inputPayload": {}}
        return event(10 + number, "tool.called", AT, call)

    def ends(number: int) -> dict[str, Any]:
        return event(20 + number, "run.completed", AT, {"runId": f"r-{number}"})

    async def play() -> None:
        async with Service(tmp_path, [policy], database=database_url) as service:
            ingestion = service.context.writer.ingest
            assert isinstance(ingestion, Ingestion)
            apply = ingestion.apply

            def noted(transaction: Any, events: Any, **how: Any) -> Any:
                read.append(0)
                return apply(transaction, events, **how)

            monkeypatch.setattr(ingestion, "apply", noted)
            answers = []
            for told in (begins, calls, ends):
                ingestion._known_runs.forget()
                batch = {"events": [told(number) for number in range(6)]}
                answers.append((await service.call("agent", "POST", "/v1/events/batch", batch)).json())
            decided = [each["answer"]["toolCallStatus"] for each in answers[1]["results"]]
            assert decided == ["allowed", "blocked"] * 3
            for number in range(6):
                run = (await service.call("agent", "GET", f"/v1/runs/r-{number}")).json()
                context = begins(number)["metadata"]["agentContext"]
                assert (run["status"], run["asserted"]["agentContext"]) == ("completed", context)

    asyncio.run(play())
    assert max(read) == 1, "of one key in one commit"
    assert sum(read) >= 12


async def test_whether_a_run_told_much_is_asked_at_less_than_reading_it(tmp_path: Path) -> None:
    """By SQLite, which goes through a text to know its length, and slowly where it counts characters."""
    async with Service(tmp_path) as service:
        for number in range(12):
            began = {"runId": f"r-{number}", "agentContext": {"aim": "x" * 800_000}}
            await service.answered("agent", "POST", "/v1/events", event(number, "run.started", AT, began))

        def seconds(ask: Callable[[], Any]) -> float:
            begun = time.thread_time()
            ask()
            return time.thread_time() - begun

        def ratio(store: Any) -> float:
            wanted = [("default", f"r-{number}") for number in range(12)]
            asked, read = (
                min(seconds(ask) for _ in range(7))
                for ask in (
                    lambda: store.found(lookups._RUNS, wanted),
                    lambda: store.rows("SELECT agent_context FROM runs"),
                )
            )
            return asked / read

        store = service.context.store
        assert await store.read(ratio, store) < 1


async def test_a_call_that_is_reported_again_leaves_what_its_run_told(
    tmp_path: Path, database_url: str
) -> None:
    """Also where it names the run that started its own, which has read something meanwhile."""
    label = {"field": "toolName", "operator": "equals", "value": "fetch"}
    policy = policy_body("Web", "allow", label, labels={"add": ["web"]})
    context = {"aim": "x" * LARGE}

    def call(number: int, run: str, name: str, tool: str, **more: str) -> dict[str, Any]:
        told = {"runId": run, "toolCallId": name, "toolName": tool, "inputPayload": {}}
        return event(number, "tool.called", AT, told | more)

    async with Service(tmp_path, [policy], database=database_url) as service:
        ingestion = service.context.writer.ingest
        assert isinstance(ingestion, Ingestion)
        begins = {"runId": "child", "parentRunId": "parent", "agentContext": context}
        for body in (
            call(1, "parent", "p-1", "look"),
            event(2, "run.started", AT, begins),
            call(3, "child", "c-1", "look", parentRunId="parent"),
            call(4, "parent", "p-2", "fetch"),
            call(5, "child", "c-1", "look", parentRunId="parent"),
            call(6, "child", "c-2", "look", parentRunId="parent"),
        ):
            ingestion._known_runs.forget()
            await service.answered("agent", "POST", "/v1/events", body)
        run = (await service.call("agent", "GET", "/v1/runs/child")).json()
        assert run["asserted"]["agentContext"] == context
        assert run["labels"] == ["web"]


async def test_calls_that_are_reported_again_cost_little_more_than_new_ones(tmp_path: Path) -> None:
    def batch(name: str, count: int = 400) -> dict[str, Any]:
        fields = {"runId": "r", "toolName": "look", "inputPayload": {}}
        calls = [{**fields, "toolCallId": f"c-{number}"} for number in range(count)]
        return {
            "events": [
                event(number, "tool.called", AT, call) | {"eventId": f"{name}-{number}"}
                for number, call in enumerate(calls)
            ]
        }

    async with Service(tmp_path) as service:

        async def seconds(name: str) -> float:
            begun = time.process_time()
            answer = await service.call("agent", "POST", "/v1/events/batch", batch(name))
            took = time.process_time() - begun
            assert {each["status"] for each in answer.json()["results"]} == {200}, answer.text
            return took

        new = await seconds("new")
        assert min([await seconds(f"again-{number}") for number in range(3)]) < 8 * new
