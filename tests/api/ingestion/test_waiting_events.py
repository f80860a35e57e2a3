"""What one key has waiting leaves room for the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.ingestion.event import Answer, Incoming
from api.ingestion.intake import MOST_AHEAD, MOST_AHEAD_OF_ALL
from tests.harness.application import Service, event

AT = "2026-01-31T09:30:00Z"
MOST = 20


def batch(name: str, count: int) -> dict[str, Any]:
    return {"events": [event(f"{name}-{n}", "custom.note", AT, {"runId": name}) for n in range(count)]}


async def test_one_key_has_a_bounded_number_of_events_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.ingestion.intake.MOST_OF_A_KEY", MOST)
    monkeypatch.setattr("api.ingestion.slices.SLICE", 60.0)
    async with Service(tmp_path, []) as running:
        for name in ("run-1", "run-2"):  # what was written waits no more
            answer = await running.call("agent", "POST", "/v1/events/batch", batch(name, 2 * MOST))
            statuses = [result["status"] for result in answer.json()["results"]]
            assert statuses == [200] * MOST + [429] * MOST
            late = answer.json()["results"][-1]["error"]
            assert late["code"] == "rate_limited" and "wait to be recorded" in late["detail"]
        while running.context.intake._waiting:
            await asyncio.sleep(0.01)


def test_what_others_send_waits_for_few_events_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer takes what comes first, and a batch would be there as a whole."""
    monkeypatch.setattr("api.ingestion.intake.MOST_AHEAD", MOST)
    monkeypatch.setattr("api.ingestion.slices.SLICE", 60.0)

    async def play() -> None:
        async with Service(tmp_path, []) as running:
            intake, most = running.context.intake, 0
            handed_over = intake._written

            def counted(given: Incoming) -> asyncio.Future[Answer]:
                nonlocal most
                future = handed_over(given)
                most = max(most, sum(intake._waiting.values()))
                return future

            monkeypatch.setattr(intake, "_written", counted)
            batches = [batch(f"run-{number}", 5 * MOST) for number in range(4)]
            sent = [running.call("agent", "POST", "/v1/events/batch", each) for each in batches]
            for answer in await asyncio.gather(*sent):
                assert [each["status"] for each in answer.json()["results"]] == [200] * (5 * MOST)
            assert MOST <= most <= MOST + len(batches)
            most, asked = 0, {"subject": {"type": "agent", "id": "mailer"}, "action": {"name": "see"}}
            several = {**asked, "evaluations": [{"resource": {"type": "tool", "id": "t"}}] * 50}
            sent = [running.call("agent", "POST", "/access/v1/evaluations", several) for _ in batches]
            for answer in await asyncio.gather(*sent):
                assert [each["decision"] for each in answer.json()["evaluations"]] == [True] * 50
            assert MOST <= most <= MOST + len(batches)
            assert not intake._room

    asyncio.run(play())


async def test_batches_of_many_keys_leave_room_together(tmp_path: Path) -> None:
    async with Service(tmp_path, []) as running:
        intake = running.context.intake
        for count in (1, 4, 16, 64):
            keys = [f"key-{number}" for number in range(count)]
            intake._waiting.clear()
            while behind := [key for key in keys if not intake._is_ahead(key)]:
                intake._waiting.update(behind)
            assert intake._waiting.total() == min(MOST_AHEAD * count, MOST_AHEAD_OF_ALL)
            assert not intake._is_ahead("another")
        intake._waiting.clear()


async def test_what_keys_send_leaves_as_much_room_as_any_of_them_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.ingestion.intake.MOST_WAITING", 2 * MOST)
    monkeypatch.setattr("api.ingestion.slices.SLICE", 60.0)
    async with Service(tmp_path, []) as running:
        answer = await running.call("agent", "POST", "/v1/events/batch", batch("run", 2 * MOST))
        statuses = [result["status"] for result in answer.json()["results"]]
        taken = statuses.count(200)
        assert taken in (MOST, MOST - 1), "something of the service's own may wait beside them"
        assert statuses == [200] * taken + [429] * (2 * MOST - taken)
