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


@pytest.mark.parametrize("cost, expected", [(0.0001, 64), (0.001, 20), (0.1, 4)])
async def test_a_key_has_as_many_under_way_as_take_a_fixed_time(
    monkeypatch: pytest.MonkeyPatch, cost: float, expected: int
) -> None:
    """Others wait for them. Where each of many policies looks at a call, 64 would take a quarter second."""
    loop, thread, spent = asyncio.get_running_loop(), Thread(), [0.0]
    monkeypatch.setattr(inline_commit, "thread_time", lambda: spent[0])
    arrivals = inline_commit.Arrivals(thread)
    assert arrivals.most_of_a_key == inline_commit.MOST_OF_A_KEY

    def commit_at_once(batch: list[Any]) -> bool:
        spent[0] += cost * len(batch)
        return True

    thread.commit_at_once = commit_at_once  # type: ignore[method-assign]
    for _ in range(200):
        for _ in range(arrivals.most_of_a_key):
            arrivals.add(inline_commit.Entry(None, None, loop, lambda result: None, 1), loop)
        while len(arrivals):
            await asyncio.sleep(0)
    assert arrivals.most_of_a_key in (expected, expected - 1), "but for rounding"
    cost = 0.0
    for _ in range(2_000):
        arrivals.add(inline_commit.Entry(None, None, loop, lambda result: None, 1), loop)
        while len(arrivals):
            await asyncio.sleep(0)
    assert arrivals.most_of_a_key == inline_commit.MOST_OF_A_KEY
