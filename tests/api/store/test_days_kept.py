"""A setting by which more would be deleted than before counts a day later; what says more counts at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import api.service
from api.database.table import counter
from api.retention import cleaning
from api.retention.days_kept import EVENT_DAYS, KEPT, DaysKept
from tests.api.store.test_retention import DAY, HOLD, count, told, until
from tests.harness.application import Service

LONG = {"SOME_DAYS": 100, "OTHER_DAYS": 0, "MORE_DAYS": 400}
SHORT = {"SOME_DAYS": 1, "OTHER_DAYS": 30, "MORE_DAYS": 40}


async def test_fewer_days_count_a_day_later(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Service(tmp_path, database=database_url) as service:
        writer, clock = service.context.writer, service.clock

        async def counting(days: dict[str, int], kept: DaysKept | None = None) -> object:
            kept = kept or DaysKept(days)
            await kept.look(writer, clock())
            return kept.counting

        assert await counting(SHORT) == SHORT, "the first ones count at once"
        assert await counting(LONG) == LONG, "and so do more"
        short = DaysKept(SHORT)
        assert await counting(SHORT, short) == LONG
        clock.advance(DAY - 60)
        assert await counting(SHORT, short) == LONG
        assert caplog.text.count("SOME_DAYS is 1 now, and was 100: what it would delete stays") == 1
        assert caplog.text.count("OTHER_DAYS is 30 now, and was 0 (for ever)") == 1
        assert await counting(LONG) == LONG, "put right in time"
        clock.advance(60)
        assert await counting(SHORT) == LONG, "the day begins anew"
        clock.advance(-2 * DAY)
        assert await counting(SHORT) == LONG, "of a time to come"
        clock.advance(DAY)
        assert await counting(SHORT) == SHORT, "also for a process that has just begun"
        assert await counting(SHORT) == SHORT


async def test_each_number_waits_for_a_day_of_its_own(tmp_path: Path, database_url: str) -> None:
    async with Service(tmp_path, database=database_url) as service:
        writer, clock = service.context.writer, service.clock

        async def counting(days: int) -> int:
            kept = DaysKept({"SOME_DAYS": days})
            await kept.look(writer, clock())
            return kept.counting["SOME_DAYS"]

        assert await counting(90) == 90
        assert await counting(30) == 90
        clock.advance(DAY - 60)
        assert await counting(3) == 90, "mistyped while 30 waited"
        clock.advance(60)
        assert await counting(3) == 30, "the 30 have waited for a day, and the 3 have not"
        clock.advance(DAY - 60)
        assert await counting(3) == 30
        clock.advance(60)
        assert await counting(3) == 3
        assert await counting(90) == 90
        assert await counting(3) == 90
        clock.advance(DAY - 60)
        assert await counting(30) == 90, "put right, which is fewer all the same"
        clock.advance(60)
        assert await counting(30) == 90
        clock.advance(DAY)
        assert await counting(30) == 30
        assert await counting(3) == 30
        clock.advance(3 * DAY)
        assert await counting(7) == 30, "nobody looked meanwhile, and 7 is said for the first time"


@pytest.mark.parametrize("first", [3, 30])
async def test_of_nodes_that_differ_the_longest_counts_whoever_looks_first(
    tmp_path: Path, database_url: str, first: int
) -> None:
    async with Service(tmp_path, database=database_url) as service:
        writer, clock = service.context.writer, service.clock
        nodes = {days: DaysKept({"SOME_DAYS": days}) for days in (first, 33 - first)}
        await DaysKept({"SOME_DAYS": 90}).look(writer, clock())
        for _ in range(7):
            for kept in nodes.values():
                await kept.look(writer, clock())
            assert nodes[3].counting["SOME_DAYS"] >= 30, "of what the other node keeps nothing is deleted"
            clock.advance(DAY / 2)
        assert nodes[30].counting["SOME_DAYS"] == 30


async def test_a_mistyped_number_deletes_nothing_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleaning, "EVERY_SECONDS", 0.05)
    made: list[DaysKept] = []

    def kept(days: dict[str, int]) -> DaysKept:
        made.append(DaysKept(days))
        return made[0]

    monkeypatch.setattr(api.service, "DaysKept", kept)
    async with Service(tmp_path, [HOLD], environment={EVENT_DAYS: "100"}) as service:
        await until(caplog, lambda: counter(KEPT + EVENT_DAYS) == 101)
        for number in range(3):
            await told(service, number)
        service.clock.advance(5 * DAY)
        await told(service, 3)
        await asyncio.sleep(0.5)  # a look that began before the clock went on is over
        made[0]._days = {**made[0]._days, EVENT_DAYS: 1}  # as after a start
        await until(caplog, lambda: f"{EVENT_DAYS} is 1 now, and was 100" in caplog.text)
        await asyncio.sleep(0.5)
        assert count(service, "events") == 4
        service.clock.advance(DAY + 1)
        await until(caplog, lambda: count(service, "events") == 1)
