"""How many events share a commit of the event loop, by when they arrive."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from api.database import inline_commit
from api.database.hand_over import settle_all


class Thread:
    """A writer that notes how many events are written together."""

    is_idle = True

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.wrote: list[int] = []

    def take(self, entries: Any) -> None:
        raise AssertionError("the loop writes")

    def commit_at_once(self, batch: list[Any]) -> bool:
        self.wrote.append(len(batch))
        return True


def arriving(*rounds: int) -> list[int]:
    """How many events are written together, when so many arrive in each round of the loop."""

    async def play() -> list[int]:
        loop, thread = asyncio.get_running_loop(), Thread()
        arrivals = inline_commit.Arrivals(thread)
        for count in rounds:
            for _ in range(count):
                arrivals.add(inline_commit.Entry(None, None, loop, lambda result: None, 1), loop)
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(arrivals) == arrivals.size == 0
        return thread.wrote

    return asyncio.run(play())


def test_events_that_come_one_behind_the_other_share_a_commit() -> None:
    assert arriving(30, 20, 10, 4) == [64]
    assert arriving(1, 0, 0, 40, 24) == [1, 64]
    most = inline_commit.MOST
    assert arriving(most - 1, most, most)[0] == most, "it is full"


def test_a_commit_waits_for_more_but_not_for_ever() -> None:
    rounds = inline_commit.MORE_ROUNDS
    assert arriving(*[1] * 4 * rounds)[0] == rounds + 1


async def test_who_is_alone_waits_for_nobody() -> None:
    loop, thread = asyncio.get_running_loop(), Thread()
    arrivals = inline_commit.Arrivals(thread)
    for number in range(1, 5):
        arrivals.add(inline_commit.Entry(None, None, loop, lambda result: None, 1), loop)
        await asyncio.sleep(0)
        if number == 1:  # nobody knows yet
            await asyncio.sleep(0)
        assert thread.wrote == [1] * number


async def test_the_loop_goes_round_between_commits_whatever_follows_them() -> None:
    """What is answered brings more at once; what others send is heard in each round."""
    loop, thread = asyncio.get_running_loop(), Thread()
    arrivals = inline_commit.Arrivals(thread)

    def add(_: Any = None) -> None:
        arrivals.add(inline_commit.Entry(None, None, loop, add, 1), loop)

    def commit_at_once(batch: list[Any]) -> bool:
        settle_all([(entry.settle, None) for entry in batch])
        return Thread.commit_at_once(thread, batch)

    thread.commit_at_once = commit_at_once  # type: ignore[method-assign]
    for _ in range(3):
        add()
    for rounds in range(1, 40):
        await asyncio.sleep(0)
        assert len(thread.wrote) <= rounds
    assert len(thread.wrote) > 10 and set(thread.wrote) == {3}


@pytest.mark.parametrize("cost", [0.0001, 0.001, 0.1])
async def test_what_an_event_costs_the_processor_is_known(
    monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    """A key's share is measured by it (`fair_share.py`)."""
    loop, thread, spent = asyncio.get_running_loop(), Thread(), [0.0]
    monkeypatch.setattr(inline_commit, "thread_time", lambda: spent[0])
    arrivals = inline_commit.Arrivals(thread)
    assert arrivals.cost == 0

    def commit_at_once(batch: list[Any]) -> bool:
        spent[0] += cost * len(batch)
        return True

    async def write(times: int, at_once: int) -> None:
        for _ in range(times):
            for _ in range(at_once):
                arrivals.add(inline_commit.Entry(None, None, loop, lambda result: None, 1), loop)
            while len(arrivals):
                await asyncio.sleep(0)

    thread.commit_at_once = commit_at_once  # type: ignore[method-assign]
    await write(200, 4)
    assert arrivals.cost == pytest.approx(cost, rel=0.01)
    dear, cost = cost, 0.0
    await write(2_000, 1)
    assert arrivals.cost < dear / 1_000
