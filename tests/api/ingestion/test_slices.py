"""Batches leave the event loop to others, however many keys send them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from api.ingestion import slices
from api.ingestion.slices import SLICE, BatchSlices, Rounds

KEYS, BATCHES, EVENTS = 30, 2, 20
OF_AN_EVENT = SLICE / 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(slices, "perf_counter", lambda: now[0])
    return now


async def test_of_all_keys_there_is_one_slice_in_a_round_of_the_loop(clock: list[float]) -> None:
    loop, rounds = asyncio.get_running_loop(), Rounds()
    seen, done = [0.0], []

    def look() -> None:
        seen.append(clock[0])
        if len(done) < KEYS * BATCHES:
            loop.call_soon(look)

    async def batch(key: int, of_key: asyncio.Lock) -> None:
        of_batch = BatchSlices(of_key, rounds)
        for _ in range(EVENTS):
            await of_batch.go_on()
            clock[0] += OF_AN_EVENT
            of_batch.let_others()
        of_batch.rest()
        done.append(key)

    keys = [asyncio.Lock() for _ in range(KEYS)]
    loop.call_soon(look)
    await asyncio.gather(*(batch(number, key) for number, key in enumerate(keys) for _ in range(BATCHES)))
    longest = max(after - before for before, after in pairwise(seen))
    assert longest <= SLICE + 2 * OF_AN_EVENT
    assert clock[0] == pytest.approx(KEYS * BATCHES * EVENTS * OF_AN_EVENT)


async def test_a_batch_that_is_cancelled_in_its_turn_holds_up_nobody(clock: list[float]) -> None:
    rounds = Rounds()
    rounds.spent = 2 * SLICE
    waiting = [BatchSlices(asyncio.Lock(), rounds) for _ in range(3)]
    tasks = [asyncio.create_task(each.go_on()) for each in waiting]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in waiting:
        each.rest()
    await asyncio.wait_for(BatchSlices(asyncio.Lock(), rounds).go_on(), 1)
