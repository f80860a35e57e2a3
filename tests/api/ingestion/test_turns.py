"""What is dear is done beside the event loop, the keys taking turns; quotas bound what a key may send."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.handlers.events import MOST_WORDED
from api.ingestion import validation
from api.ingestion.evaluation import PutOff
from api.ingestion.event import Incoming
from api.ingestion.intake import Intake
from api.ingestion.pipeline import Ingestion
from api.ingestion.quotas import OverQuota, ProcessorTime, Quotas
from api.ingestion.turns import Turns
from engine.matching.ruleset import Ruleset
from engine.model import Evaluation, ToolCall
from tests.harness.application import Service, event
from tests.harness.conversation import check_shape
from tests.harness.policy_bodies import policy_body, where

NESTED = "inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))"
DEAR = policy_body("Lists", "block", where("toolName", "equals", "lists"), {"expression": NESTED})


def test_keys_take_turns() -> None:
    done: list[str] = []
    go = threading.Event()

    def work(name: str) -> None:
        go.wait(5)
        done.append(name)

    async def play() -> None:
        turns = Turns("test", 1, ProcessorTime())
        many = [asyncio.create_task(turns.run("many", partial(work, f"many-{n}"))) for n in range(20)]
        await asyncio.sleep(0.05)
        few = [asyncio.create_task(turns.run("few", partial(work, f"few-{n}"))) for n in range(3)]
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*many, *few)
        turns.close()

    asyncio.run(play())
    assert done.index("few-2") <= 7 and len(done) == 23


async def test_who_has_taken_least_lately_comes_first() -> None:
    """Nobody stands behind many keys that each take as much as they may."""
    spent, done, go = ProcessorTime(), list[str](), threading.Event()
    turns = Turns("test", 1, spent)
    tasks = [asyncio.create_task(turns.run("first", lambda: go.wait(5)))]
    await asyncio.sleep(0.02)
    for number in range(30):
        spent.took(f"many-{number}", 0.1)
        tasks.append(asyncio.create_task(turns.run(f"many-{number}", partial(done.append, "many"))))
    await asyncio.sleep(0.02)
    tasks.append(asyncio.create_task(turns.run("few", partial(done.append, "few"))))
    await asyncio.sleep(0.02)
    go.set()
    await asyncio.gather(*tasks)
    turns.close()
    assert done[0] == "few" and len(done) == 31


async def test_one_key_has_one_turn_at_a_time_and_a_rest_of_it_holds_up_no_other() -> None:
    """Of two threads one stays free for other keys; a key whose time is spent rests alone."""
    time_of = ProcessorTime()
    turns = Turns("test", 2, time_of)
    go = threading.Event()
    many = [asyncio.create_task(turns.run("many", lambda: go.wait(5))) for _ in range(9)]
    await asyncio.sleep(0.02)
    assert await asyncio.wait_for(turns.run("few", lambda: 1), 3) == 1
    go.set()
    await asyncio.gather(*many)
    time_of.took("many", 1.0)
    turns._rests["many"] = time.monotonic() + 60
    late = asyncio.create_task(turns.run("many", lambda: 2))
    assert await asyncio.wait_for(turns.run("few", lambda: 1), 3) == 1
    assert not late.done()
    turns.close()
    assert late.cancelled() or await asyncio.gather(late, return_exceptions=True)


async def test_one_key_waits_with_so_many() -> None:
    go = threading.Event()
    turns = Turns("test", 1, ProcessorTime(), most_of_a_key=5)
    tasks = [asyncio.create_task(turns.run("many", lambda: go.wait(5) and None)) for _ in range(20)]
    await asyncio.sleep(0.05)
    go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [each for each in results if isinstance(each, OverQuota)]
    assert 14 <= len(refused) <= 15 and results.count(None) == 20 - len(refused)
    turns.close()


async def test_work_of_one_name_is_done_once_for_all_who_wait() -> None:
    go = threading.Event()
    turns = Turns("test", 1, ProcessorTime(), most_of_a_key=2)
    first = asyncio.create_task(turns.run("key", lambda: go.wait(5)))
    await asyncio.sleep(0.05)
    counted = itertools.count(1)
    same = [asyncio.create_task(turns.run("key", lambda: next(counted), name="run")) for _ in range(50)]
    await asyncio.sleep(0.05)
    same[0].cancel()
    go.set()
    await first
    assert await asyncio.gather(*same[1:]) == [1] * 49
    # What has begun may have read too early for whoever comes later.
    assert await turns.run("key", lambda: next(counted), name="run") == 2
    turns.close()


async def test_a_stop_waits_for_what_takes_long_only_as_long_as_it_says() -> None:
    turns, goes_on = Turns("test", 1, ProcessorTime()), threading.Event()
    long = asyncio.create_task(turns.run("key", lambda: goes_on.wait(60)))
    await asyncio.sleep(0.05)
    turns.close(within=0.1)
    assert not long.done()
    goes_on.set()
    turns.close()
    assert await long


async def test_what_fails_in_its_turn_fails_for_who_waits() -> None:
    turns = Turns("test", 1, ProcessorTime())
    with pytest.raises(ZeroDivisionError):
        await turns.run("key", lambda: 1 / 0)
    assert await turns.run("key", lambda: 1) == 1
    turns.close()


def test_a_key_is_dear_until_its_time_is_paid_off(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = ProcessorTime()
    for _ in range(10_000):
        spent.took("a", 0.0001)
    assert not spent.is_spent("a"), "ordinary events make no key dear"
    spent.took("a", 0.2)
    assert not spent.is_spent("a"), "once may be chance"
    for _ in range(12):  # each just short of what once made a call dear
        spent.took("b", 0.009)
    assert not spent.is_spent("b")
    for _ in range(20):
        spent.took("b", 0.009)
    spent.took("a", 0.2)
    spent.took("c", 1_000.0)
    assert spent.is_spent("a") and spent.is_spent("b") and spent.is_spent("c") and not spent.is_spent("d")
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 30)
    assert not any(spent.is_spent(key) for key in "abc")


async def test_waiting_makes_no_key_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other things must not slow those who send cheap calls; dear ones are told
    by the processor's time, also small ones that came with others."""
    async with Service(tmp_path, [DEAR]) as service:
        spent = service.context.intake.processor_time._even
        ingestion = service.context.writer.ingest
        assert isinstance(ingestion, Ingestion)
        evaluate = ingestion.evaluator.evaluate

        def slowly(each: Incoming) -> None:
            time.sleep(0.03)
            evaluate(each)

        with monkeypatch.context() as patched:
            patched.setattr(ingestion.evaluator, "evaluate", slowly)
            answer = await service.call("agent", "POST", "/v1/events", call(1, {}))
        assert answer.status_code == 200 and max(spent.values(), default=0.0) < time.monotonic() + 0.02
        spent.clear()
        await service.call("agent", "POST", "/v1/events", call(2, {"l": list(range(900))}))
        assert spent


def call(number: int, payload: dict[str, Any], tool: str = "lists") -> dict[str, Any]:
    fields = {"toolCallId": f"c{number}", "toolName": tool, "inputPayload": payload}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", fields)


async def test_dear_calls_are_checked_and_evaluated_in_turn_only(tmp_path: Path) -> None:
    async with Service(tmp_path, [DEAR]) as service:
        ruleset = service.context.live.ruleset("default")
        where: list[str] = []
        ask = type(ruleset).evaluate

        def noted(self: Ruleset, each: ToolCall) -> Evaluation:
            if each.document["toolName"] == "lists":  # and not one by which others are measured
                where.append(threading.current_thread().name)
            return ask(self, each)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ruleset, "evaluate", noted)
            large = {"l": list(range(9_000))}
            answer = await service.call("agent", "POST", "/v1/events", call(1, large))
            assert answer.json()["toolCallStatus"] == "blocked", answer.text
            # When its time is spent, small calls of this key too, and those of a batch in their order.
            key_id = service.callers["agent"].key_id
            service.context.intake.processor_time.took(key_id, 9.0)
            batch = [call(2, {"l": [1]}), call(3, large), call(4, {"l": [1]})]
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
            statuses = [each["answer"]["toolCallStatus"] for each in answer.json()["results"]]
            assert statuses == ["blocked"] * 3
            assert where == ["turns-0"] * 4


async def test_a_commit_takes_so_much_of_one_key_and_the_rest_comes_again(tmp_path: Path) -> None:
    """Calls just short of what makes one dear: those of one group do not stand before another key's."""
    async with Service(tmp_path, [DEAR]) as service:
        writer, ingestion = service.context.writer, service.context.writer.ingest
        assert isinstance(ingestion, Ingestion)
        sizes: list[int] = []
        apply = ingestion.apply

        def noted(transaction: Any, events: Any, **how: Any) -> Any:
            answers = apply(transaction, events, **how)
            sizes.append(sum(not isinstance(each, PutOff) for each in answers))
            return answers

        ingestion.apply = noted  # type: ignore[method-assign]
        writer.writing.acquire()  # so that they make one group
        try:
            tasks = [
                asyncio.create_task(
                    service.call("agent", "POST", "/v1/events", call(n, {"l": list(range(500))}))
                )
                for n in range(60)
            ]
            await asyncio.sleep(0.3)
        finally:
            writer.writing.release()
        writer.arrivals._waits = False
        writer.arrivals._look()
        answers = await asyncio.gather(*tasks)
        assert [answer.json()["toolCallStatus"] for answer in answers] == ["blocked"] * 60
        assert max(sizes) < 30 and sum(sizes) == 60
        found = await service.call("viewer", "GET", "/v1/runs")
        assert found.json()[0]["toolCallCounts"]["blocked"] == 60


async def test_what_a_batch_says_of_its_run_is_known_when_its_calls_are_evaluated(tmp_path: Path) -> None:
    policy = policy_body("Theft", "block", where("run.task", "equals", "steal"))
    async with Service(tmp_path, [policy]) as service:
        asked: list[int] = []
        ask = Ruleset.evaluate

        def counted(self: Ruleset, each: ToolCall) -> Evaluation:
            asked.append(1)
            return ask(self, each)

        started = event(0, "run.started", "2026-01-31T09:30:00Z", {"task": "steal"})
        batch = [started, *(call(n, {}) for n in range(1, 30))]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ruleset, "evaluate", counted)
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
        statuses = [each["answer"].get("toolCallStatus") for each in answer.json()["results"]]
        assert statuses == [None] + ["blocked"] * 29
        assert len(asked) == 29, "none is evaluated again while the lock is held"


@contextmanager
def rounds_noted(monkeypatch: pytest.MonkeyPatch, intake: Intake, name: str) -> Iterator[list[int]]:
    """In which round of the event loop, which others count, each call of this function begins."""
    rounds, function = 0, getattr(intake, name)
    noted: list[int] = []

    async def others() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    def called(*arguments: Any, **named: Any) -> Any:
        noted.append(rounds)
        return function(*arguments, **named)

    monkeypatch.setattr(intake, name, called)
    task = asyncio.get_running_loop().create_task(others())
    try:
        yield noted
    finally:
        task.cancel()


def test_a_batch_of_mistakes_lets_the_loop_go_on_and_is_told_in_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "api.ingestion.slices.SLICE", 0.0
    )  # every event is worth one, however fast the machine is

    async def play() -> None:
        async with Service(tmp_path) as service:
            wrong = [{**call(n, {}), **{f"k{m}": 1 for m in range(60)}} for n in range(1_000)]
            wrong[7] = call(7, {})
            intake = service.context.intake
            with rounds_noted(monkeypatch, intake, "event") as begun:
                answer = await service.call("agent", "POST", "/v1/events/batch", {"events": wrong})
            check_shape("POST", "/v1/events/batch", answer)
            results = answer.json()["results"]
            assert [each["status"] for each in results] == [422] * 7 + [200] + [422] * 992
            told = [bool(each["error"]["errors"]) for each in results if "error" in each]
            assert told == [True] * MOST_WORDED + [False] * (999 - MOST_WORDED)
            assert "alone" in results[-1]["error"]["detail"]
            assert len(answer.content) < 1_000_000
            assert len(begun) == len(set(begun)) == 1_000, "others had their turn between any two events"

    asyncio.run(play())


@pytest.mark.parametrize("right", [True, False])
async def test_many_batches_of_a_key_hold_up_the_loop_no_longer_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    monkeypatch.setattr("api.ingestion.slices.SLICE", 0.0)
    async with Service(tmp_path) as service:
        sent = [[call(20 * b + n, {}) if right else {} for n in range(20)] for b in range(10)]
        with rounds_noted(monkeypatch, service.context.intake, "evaluate" if right else "event") as looked:
            answers = await asyncio.gather(
                *(service.call("agent", "POST", "/v1/events/batch", {"events": each}) for each in sent)
            )
        told = [each["status"] for answer in answers for each in answer.json()["results"]]
        assert told == [200 if right else 422] * 200
        assert len(looked) == len(set(looked)) == 200, "others had their turn between any two events"


async def test_mistakes_count_in_the_quota(tmp_path: Path) -> None:
    async with Service(tmp_path, environment={"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "20"}) as service:
        answer = await service.call("agent", "POST", "/v1/events/batch", {"events": [{}] * 40})
        statuses = [each["status"] for each in answer.json()["results"]]
        assert statuses[:20] == [422] * 20 and statuses.count(429) >= 10
        assert (await service.call("agent", "GET", "/v1/runs")).status_code == 429
        assert (await service.call("viewer", "GET", "/v1/runs")).status_code == 200


async def test_large_bodies_of_any_type_are_read_in_turn(tmp_path: Path) -> None:
    wide = "[" + ",".join(["[" * 40 + "]" * 40] * 9_000) + "]"
    digits = "[" + ",".join(["9" * 4_000] * 19) + "]"
    async with Service(tmp_path) as service:
        where: set[str] = set()
        read = validation.read_event

        def noted(raw: bytes, **how: Any) -> Any:
            where.add(threading.current_thread().name)
            return read(raw, **how)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(validation, "read_event", noted)
            for number, text in enumerate((wide, digits)):
                body = event(number, "custom.a", "2026-01-31T09:30:00Z", {"x": 1})
                raw = json.dumps(body).replace('"x": 1', f'"x": {text}')
                answer = await service.answered("agent", "POST", "/v1/events", raw=raw, status=422)
                assert answer["errors"][0]["pointer"] == "/metadata"
        assert where == {"turns-0"}


def test_buckets_empty_steadily() -> None:
    now = [1000.0]
    quotas = Quotas(60, 0, lambda: now[0])
    for _ in range(60):
        quotas.take("a", 10**9)
    with pytest.raises(OverQuota) as refusal:
        quotas.take("a", 1)
    assert refusal.value.retry_after == 1
    quotas.take("b", 1)
    now[0] += 1.0
    quotas.take("a", 1)
    with pytest.raises(OverQuota):
        quotas.take("a", 1)
    kept = Quotas(0, 86_400, lambda: now[0])
    kept.take("a", 86_400)
    with pytest.raises(OverQuota) as refusal:
        kept.take("a", 3_600)
    assert refusal.value.retry_after == 3_600 and "bytes" in str(refusal.value)


@pytest.mark.parametrize(
    "environment", [{"GOVERNANCE_KEY_EVENTS_PER_MINUTE": "3"}, {"GOVERNANCE_KEY_BYTES_PER_DAY": "1000"}]
)
async def test_a_key_beyond_its_quota_is_429(environment: dict[str, str], tmp_path: Path) -> None:
    async with Service(tmp_path, environment=environment) as service:
        answers = [await service.call("agent", "POST", "/v1/events", call(number, {})) for number in range(6)]
        assert {answer.status_code for answer in answers[:3]} == {200}
        refused = answers[-1]
        check_shape("POST", "/v1/events", refused)
        assert refused.status_code == 429 and refused.json()["code"] == "rate_limited"
        assert int(refused.headers["retry-after"]) >= 1
        batch = {"events": [call(7, {})]}
        answer = await service.call("agent", "POST", "/v1/events/batch", batch)
        assert answer.json()["results"][0]["status"] == 429
        assert (await service.call("viewer", "GET", "/v1/runs")).status_code == 200
