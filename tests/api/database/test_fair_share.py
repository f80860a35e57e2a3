"""Whose events wait: those of a key that has its share under way, in their order, and nobody else's."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.database import fair_share, inline_commit
from api.database.errors import DatabaseUnavailable
from api.database.fair_share import FairShare
from api.database.inline_commit import Entry
from tests.harness.application import Service, event

SHARE = 3
AT = "2026-01-31T09:30:00Z"


class Arrivals:
    """Settles nothing by itself."""

    most = most_of_a_key = SHARE
    cost = 0.0

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        self.entries.append(entry)


@pytest.mark.parametrize("seed", range(20))
def test_a_key_has_its_share_and_its_order(seed: int) -> None:
    chance, arrivals = random.Random(seed), Arrivals()
    shares, loop = FairShare(arrivals), asyncio.new_event_loop()
    sent: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    settled: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    size = 0

    def settle_one() -> None:
        key = chance.choice([entry.event.caller.key_id for entry in arrivals.entries])
        first = next(entry for entry in arrivals.entries if entry.event.caller.key_id == key)
        arrivals.entries.remove(first)
        first.settle(first.event.number)

    for number in range(300):
        key = chance.choices("abc", (6, 2, 1))[0]
        sent[key].append(number)
        made = SimpleNamespace(caller=SimpleNamespace(key_id=key), number=number)
        shares.add(Entry(None, made, loop, settled[key].append, number), loop)
        while arrivals.entries and chance.random() < 0.45:
            settle_one()
        under_way = Counter(entry.event.caller.key_id for entry in arrivals.entries)
        for each in "abc":
            left = len(sent[each]) - len(settled[each])
            assert under_way[each] == min(left, SHARE)
        numbers = [set(sent[each]) - set(settled[each]) for each in "abc"]
        assert len(shares) == sum(map(len, numbers)) and shares.size == sum(map(sum, numbers))
        size = max(size, len(shares))
    while arrivals.entries:
        settle_one()
    assert settled == sent and len(shares) == shares.size == 0 and not shares._under_way
    assert size > 3 * SHARE
    loop.close()


@pytest.mark.parametrize("seed", range(20))
def test_who_is_alone_has_more_under_way(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And hands it back as what is under way is done, once somebody else is there; all keep their order."""
    chance, arrivals, now = random.Random(seed), Arrivals(), [100.0]
    arrivals.most = 3 * SHARE
    monkeypatch.setattr(fair_share, "monotonic", lambda: now[0])
    shares, loop = FairShare(arrivals), asyncio.new_event_loop()
    sent: dict[str, list[int]] = {"a": [], "b": []}
    settled: dict[str, list[int]] = {"a": [], "b": []}

    def add(key: str) -> None:
        number = len(sent[key])
        sent[key].append(number)
        made = SimpleNamespace(caller=SimpleNamespace(key_id=key), number=number)
        shares.add(Entry(None, made, loop, settled[key].append, 1), loop)

    def under_way(key: str) -> int:
        return sum(entry.event.caller.key_id == key for entry in arrivals.entries)

    def settle(key: str) -> None:
        first = next(entry for entry in arrivals.entries if entry.event.caller.key_id == key)
        arrivals.entries.remove(first)
        first.settle(first.event.number)

    for _ in range(5):
        for _ in range(5 * SHARE):
            add("a")
        assert under_way("a") == arrivals.most
        add("b")
        before = arrivals.most
        for _ in range(chance.randrange(4 * SHARE)):
            settle("a")
            before = max(before - 1, SHARE)
            assert under_way("a") == min(before, len(sent["a"]) - len(settled["a"]))
        settle("b")
        now[0] += fair_share.SECONDS - 1
        settle("a")
        assert under_way("a") <= max(before - 1, SHARE)
        now[0] += 1
        settle("a")
        assert under_way("a") == min(arrivals.most, len(sent["a"]) - len(settled["a"]))
    while arrivals.entries:
        settle("a")
    assert settled == sent and not shares._under_way and not shares._waiting
    loop.close()


@pytest.mark.parametrize("cost, expected", [(0.0, 64), (0.0001, 64), (0.001, 20), (0.1, 4)])
def test_a_key_has_as_many_under_way_as_take_a_fixed_time(cost: float, expected: int) -> None:
    """Others wait for them. Where each of many policies looks at a call, 64 would take a quarter second."""
    arrivals, loop = Arrivals(), asyncio.new_event_loop()
    arrivals.most, arrivals.most_of_a_key, arrivals.cost = 256, 64, cost
    shares = FairShare(arrivals)
    for key in "a" * 100 + "b" * 100:
        made = SimpleNamespace(caller=SimpleNamespace(key_id=key))
        shares.add(Entry(None, made, loop, lambda result: None, 1), loop)
    under_way = Counter(entry.event.caller.key_id for entry in arrivals.entries)
    assert under_way == {"a": 100, "b": expected}, "who was alone before has more"
    while arrivals.entries:
        arrivals.entries.pop(0).settle(None)
        under_way = Counter(entry.event.caller.key_id for entry in arrivals.entries)
        assert under_way["b"] <= expected
    assert len(shares) == 0
    loop.close()


def test_a_place_is_free_also_when_an_answer_could_not_be_given() -> None:
    arrivals, loop = Arrivals(), asyncio.new_event_loop()
    shares = FairShare(arrivals)

    def failing(result: Any) -> None:
        raise OSError

    for _ in range(2 * SHARE):
        made = SimpleNamespace(caller=SimpleNamespace(key_id="a"))
        shares.add(Entry(None, made, loop, failing, 1), loop)
    for _ in range(2 * SHARE):
        with pytest.raises(OSError):
            arrivals.entries.pop(0).settle(None)
    assert len(shares) == 0 and not shares._under_way
    loop.close()


def test_who_waits_for_a_share_does_not_wait_for_a_database_that_failed() -> None:
    """A lock that somebody holds, or a silent server, would be waited for again and again."""
    arrivals, loop = Arrivals(), asyncio.new_event_loop()
    shares, told = FairShare(arrivals), []
    error = DatabaseUnavailable("the database does not answer in time")
    for number in range(5 * SHARE):
        made = SimpleNamespace(caller=SimpleNamespace(key_id="ab"[number % 2]))
        shares.add(Entry(None, made, loop, told.append, 1), loop)
    arrivals.entries.pop(0).settle(error)
    assert told == [error] * (1 + (5 * SHARE + 1) // 2 - SHARE), "all of its key that were not under way"
    assert shares.size == len(shares) == 5 * SHARE - len(told)
    while arrivals.entries:
        arrivals.entries.pop(0).settle(None)
    assert len(told) == 5 * SHARE and told.count(error) < 3 * SHARE and not shares._under_way
    loop.close()


@pytest.mark.parametrize("is_known", [True, False])
def test_what_another_key_sends_stands_behind_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """And not behind as many events as somebody else has connections; a key that comes anew, behind those of
    one commit."""
    most, share = 2 * inline_commit.MOST, 2 * inline_commit.MOST_OF_A_KEY if is_known else inline_commit.MOST

    async def play() -> None:
        async with Service(tmp_path, []) as running:
            writer, order = running.context.writer, []
            transact = writer._transact

            def noted(batch: list[Entry], **how: Any) -> Any:
                committed = transact(batch, **how)  # by the loop, or by the thread where commits are slow
                order.extend(entry.event.caller.key_id for entry in batch if entry.job is None)
                return committed

            monkeypatch.setattr(writer, "_transact", noted)
            if is_known:
                first = event("first", "custom.note", AT, {}), event("other", "custom.note", AT, {})
                sent = zip(("agent", "other agent"), first, strict=True)
                await asyncio.gather(*(running.call(who, "POST", "/v1/events", each) for who, each in sent))
                order.clear()
            many = [
                running.call("agent", "POST", "/v1/events", event(f"m-{n}", "custom.note", AT, {}))
                for n in range(most)
            ]
            one = running.call("other agent", "POST", "/v1/events", event("one", "custom.note", AT, {}))
            answers = await asyncio.gather(*many, one)
            assert {answer.status_code for answer in answers} == {200}
            (lonely,) = (key for key, count in Counter(order).items() if count == 1)
            assert order.index(lonely) <= share, order.index(lonely)

    asyncio.run(play())


def test_of_many_keys_each_has_less_under_way() -> None:
    """What is under way of all of them, which everybody waits for, does not grow with how many they are."""
    arrivals = Arrivals()
    arrivals.most = arrivals.most_of_a_key = 64  # type: ignore[misc]
    shares, loop = FairShare(arrivals), asyncio.new_event_loop()
    assert not shares.is_crowded
    for number in range(64):
        for key in range(30):
            event = SimpleNamespace(caller=SimpleNamespace(key_id=f"key-{key}"), number=number)
            shares.add(Entry(None, event, loop, lambda result: None, 1), loop)
    for _ in range(200):
        entry = arrivals.entries.pop(0)
        entry.settle(entry.event.number)
    assert len(arrivals) <= 2 * 64 + 30
    while arrivals.entries:
        arrivals.entries.pop(0).settle(None)
    loop.close()
    assert shares.is_crowded, "they may come again at once"
