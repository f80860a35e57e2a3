"""Events of some KiB, as agents that write files send them: evaluated in turns, and neither refused nor put
behind all others for it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.database.fair_share import FairShare
from api.ingestion import evaluation, validation
from api.ingestion import turns as turns_of_keys
from api.ingestion.event import Incoming
from api.ingestion.intake import DEAR, Intake
from api.ingestion.pipeline import Ingestion
from api.ingestion.quotas import MOST_AT_ONCE, ORDINARY, OverQuota, ProcessorTime
from api.ingestion.turns import LARGE, MOST_OF_A_KEY, Turns
from tests.harness.application import Service, event
from tests.harness.waiting import busy

AT = "2026-01-31T09:30:00Z"


def call(number: int, size: int = DEAR + 1) -> dict[str, Any]:
    fields = {"toolCallId": f"c{number}", "toolName": "note", "inputPayload": {"text": "x" * size}}
    return event(number, "tool.called", AT, fields)


async def test_everybody_has_a_turn_whoever_else_comes() -> None:
    """What one key sends without end, each of it too small to be counted, keeps none out that has taken more
    lately."""
    spent, done, go = ProcessorTime(), list[str](), threading.Event()
    turns = Turns("test", 1, spent)
    tasks = [asyncio.create_task(turns.run("first", lambda: go.wait(5)))]
    await asyncio.sleep(0.02)
    spent.took("dear", 1.0)
    for key, count in (("many", 60), ("dear", 3)):
        tasks += [asyncio.create_task(turns.run(key, partial(done.append, key))) for _ in range(count)]
    await asyncio.sleep(0.02)
    go.set()
    await asyncio.gather(*tasks)
    turns.close()
    assert len(done) == 63 and done[:12].count("dear") == 3


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many other keys send something."""
    monkeypatch.setattr(FairShare, "is_crowded", True)


@pytest.mark.usefixtures("crowd")
async def test_events_of_the_usual_size_are_not_refused_for_their_number(tmp_path: Path) -> None:
    """A crowd of agents may have one key; large bodies and dear keys are told to come back as before."""
    async with Service(tmp_path, []) as service:
        intake, key_id, go = service.context.intake, service.callers["agent"].key_id, threading.Event()
        held = asyncio.create_task(intake.turns.run("another", lambda: go.wait(10)))
        await asyncio.sleep(0.02)
        count = 3 * MOST_OF_A_KEY
        sent = [
            asyncio.create_task(service.call("agent", "POST", "/v1/events", call(n))) for n in range(count)
        ]
        await asyncio.sleep(0.5)
        large = [
            asyncio.create_task(service.call("agent", "POST", "/v1/events", call(count + n, LARGE)))
            for n in range(MOST_OF_A_KEY + 5)
        ]
        await asyncio.sleep(0.5)
        intake.processor_time.took(key_id, 9.0)
        with pytest.raises(OverQuota):
            await intake._in_turn(key_id, int, DEAR)
        go.set()
        await held
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
        refused = [answer.status_code for answer in await asyncio.gather(*large)]
        assert refused.count(429) == 5 and refused.count(200) == MOST_OF_A_KEY


@pytest.mark.usefixtures("crowd")
async def test_an_event_of_some_size_takes_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To go to another thread and back takes longer than most of them."""
    taken: list[str] = []
    run = Turns.run

    async def counted(self: Turns, key_id: str, *given: Any, **how: Any) -> Any:
        taken.append(key_id)
        return await run(self, key_id, *given, **how)

    monkeypatch.setattr(Turns, "run", counted)
    async with Service(tmp_path, []) as service:
        for path, body in (("", call(1)), ("/batch", {"events": [call(2), call(3)]})):
            await service.answered("agent", "POST", f"/v1/events{path}", body)
        assert len(taken) == 3


@pytest.mark.usefixtures("crowd")
async def test_what_policies_ask_of_every_call_makes_no_key_dear_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation.OrdinaryCall, "seconds", lambda *given: 100 * ORDINARY)
    async with Service(tmp_path, []) as service:
        ingestion = service.context.writer.ingest
        assert isinstance(ingestion, Ingestion)
        evaluate, where = ingestion.evaluator.evaluate, set[str]()

        def longer(each: Incoming) -> None:
            where.add(threading.current_thread().name)
            if each.evaluated is None:
                busy(20 * ORDINARY)
            evaluate(each)

        monkeypatch.setattr(ingestion.evaluator, "evaluate", longer)
        intake: Intake = service.context.intake
        for number in range(2 + round(MOST_AT_ONCE / (20 * ORDINARY))):
            await service.answered("agent", "POST", "/v1/events", call(number))
        assert "turns-0" in where and intake.processor_time._even == {}


async def test_where_few_keys_send_something_an_event_of_some_size_waits_for_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[str] = []
    check = validation.read_event

    def noted(raw: bytes, **how: Any) -> Any:
        where.append(threading.current_thread().name)
        return check(raw, **how)

    monkeypatch.setattr(validation, "read_event", noted)
    async with Service(tmp_path, []) as service:
        for number in range(3):
            await service.answered("agent", "POST", "/v1/events", call(number))
        for path, body in (("", call(8, LARGE)), ("/batch", {"events": [call(9)]})):
            await service.answered("agent", "POST", f"/v1/events{path}", body)
    assert [each == "turns-0" for each in where] == [False, False, False, True, False]


async def test_each_key_has_its_part_of_the_bytes_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_of_keys, "MOST_BYTES_OF_ALL", 4_000)
    turns, go = Turns("test", 1, ProcessorTime()), threading.Event()

    async def waiting(key: str, count: int, size: int = 500) -> list[asyncio.Task[Any]]:
        made = [asyncio.create_task(turns.run(key, lambda: go.wait(5), size=size)) for _ in range(count)]
        await asyncio.sleep(0.05)
        return made

    asked = [*await waiting("at work", 1), *await waiting("first", 8), *await waiting("second", 8)]
    asked += [*await waiting("first", 1), *await waiting("third", 1, 9_000)]
    go.set()
    done = await asyncio.gather(*asked, return_exceptions=True)
    turns.close()
    allowed = [not isinstance(each, OverQuota) for each in done]
    assert allowed == [True] * 13 + [False] * 5 + [True], "what is the only one of its key is done"
