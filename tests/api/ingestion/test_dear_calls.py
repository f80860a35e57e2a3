"""Dear calls are evaluated beside the event loop, the keys taking turns; quotas bound what a key may send."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from api.caller import Caller
from api.ingestion import dear_calls
from api.ingestion.dear_calls import DearCalls
from api.ingestion.event import EventBody, Incoming
from api.ingestion.quotas import OverQuota, Quotas
from tests.harness.application import Service, event
from tests.harness.conversation import check_shape

NESTED = "inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))"
DEAR = {
    "name": "Lists",
    "action": "block",
    "matchConditions": [
        {"field": "toolName", "operator": "equals", "value": "lists"},
        {"expression": NESTED},
    ],
}


def incoming(key: str, number: int, size: int = 10) -> Incoming:
    body = EventBody(f"{key}-{number}", "run", "agent", "2026-01-31T09:30:00Z", "tool.called")
    return Incoming(Caller("key", "default", key_id=key), b" " * size, body, {})


def test_keys_take_turns() -> None:
    done: list[str] = []
    go = threading.Event()

    def evaluate(each: Incoming) -> None:
        go.wait(5)
        done.append(each.body.eventId)

    async def play() -> None:
        calls = DearCalls(evaluate)
        many = [asyncio.create_task(calls.evaluated(incoming("many", number))) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        few = [asyncio.create_task(calls.evaluated(incoming("few", number))) for number in range(3)]
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*many, *few)
        calls.close()

    asyncio.run(play())
    assert done.index("few-2") <= 7 and len(done) == 23


def test_one_key_waits_with_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dear_calls, "MOST_OF_A_KEY", 5)

    async def play() -> None:
        go = threading.Event()
        calls = DearCalls(lambda each: go.wait(5) and None)
        tasks = [asyncio.create_task(calls.evaluated(incoming("many", number))) for number in range(20)]
        await asyncio.sleep(0.05)
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [each for each in results if isinstance(each, OverQuota)]
        assert 14 <= len(refused) <= 15 and results.count(None) == 20 - len(refused)
        calls.close()

    asyncio.run(play())


def test_a_key_is_dear_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = DearCalls(lambda each: None)
    assert calls.is_dear("a", 17_000) and not calls.is_dear("a", 1_000)
    calls.took("a", 0.001)
    assert not calls.is_dear("a", 1_000)
    calls.took("a", 0.2)
    assert not calls.is_dear("a", 1_000)
    calls.took("a", 0.2)
    assert calls.is_dear("a", 1_000) and not calls.is_dear("b", 1_000)
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 100)
    assert not calls.is_dear("a", 1_000)
    calls.close()


def test_waiting_makes_no_key_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other things must not slow those who send cheap calls; dear ones are told
    by the processor's time, also small ones that came with others."""

    async def play() -> None:
        async with Service(tmp_path, [DEAR]) as service:
            ingestion = service.context.writer.ingest
            assert ingestion is not None
            prepare = ingestion._prepare  # type: ignore[attr-defined]

            def slowly(each: Incoming) -> None:
                time.sleep(0.03)
                prepare(each)

            with monkeypatch.context() as patched:
                patched.setattr(ingestion, "_prepare", slowly)
                answer = await service.call("agent", "POST", "/v1/events", call(1, {}))
            assert answer.status_code == 200 and not service.context.dear_calls._last_slow
            await service.call("agent", "POST", "/v1/events", call(2, {"l": list(range(900))}))
            assert service.context.dear_calls._last_slow

    asyncio.run(play())


def call(number: int, payload: dict[str, Any], tool: str = "lists") -> dict[str, Any]:
    fields = {"toolCallId": f"c{number}", "toolName": tool, "inputPayload": payload}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", fields)


def test_dear_calls_are_evaluated_on_their_thread_only(tmp_path: Path) -> None:
    async def play() -> None:
        async with Service(tmp_path, [DEAR]) as service:
            ruleset = service.context.live.ruleset("default")
            where: list[str] = []
            calls = service.context.dear_calls
            evaluate = calls._evaluate

            def noted(each: Incoming) -> None:
                where.append(threading.current_thread().name)
                evaluate(each)

            calls._evaluate = noted  # type: ignore[method-assign]
            large = {"l": list(range(9_000))}
            answer = await service.call("agent", "POST", "/v1/events", call(1, large))
            assert answer.json()["toolCallStatus"] == "blocked", answer.text
            assert len(where) == 1 and where[0].startswith("dear-calls")
            # From the second on, small calls of this key too, and those of a batch in their order.
            await service.call("agent", "POST", "/v1/events", call(5, large))
            batch = [call(2, {"l": [1]}), call(3, large), call(4, {"l": [1]})]
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": batch})
            statuses = [each["answer"]["toolCallStatus"] for each in answer.json()["results"]]
            assert statuses == ["blocked"] * 3 and len(where) == 5
            assert service.context.live.ruleset("default") is ruleset

    asyncio.run(play())


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
def test_a_key_beyond_its_quota_is_429(environment: dict[str, str], tmp_path: Path) -> None:
    async def play() -> None:
        async with Service(tmp_path, environment=environment) as service:
            answers = [
                await service.call("agent", "POST", "/v1/events", call(number, {})) for number in range(6)
            ]
            assert {answer.status_code for answer in answers[:3]} == {200}
            refused = answers[-1]
            check_shape("POST", "/v1/events", refused)
            assert refused.status_code == 429 and refused.json()["code"] == "rate_limited"
            assert int(refused.headers["retry-after"]) >= 1
            batch = {"events": [call(7, {})]}
            answer = await service.call("agent", "POST", "/v1/events/batch", batch)
            assert answer.json()["results"][0]["status"] == 429
            assert (await service.call("viewer", "GET", "/v1/runs")).status_code == 200

    asyncio.run(play())
