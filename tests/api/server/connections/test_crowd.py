"""Whose connection gives way to a new one, by the addresses that they come from and by who holds them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from api.server.connections import crowd
from api.server.connections.crowd import ENDING, UNHEARD, Crowd

MOST = 100


@dataclass(eq=False)
class Waited:
    """A connection: at work, or waited for since some time."""

    address: str
    due: float | None = None
    beyond: bool = False
    ends: bool = False
    is_gone: bool = False
    key: str = ""

    @property
    def whose(self) -> str:
        return self.key or f"address {self.address}"

    @property
    def holder(self) -> str | None:
        return self.whose if self.due is None and not self.is_gone else None

    @property
    def is_known(self) -> bool:
        return bool(self.key)

    def make_way(self) -> None:
        self.due, self.is_gone = None, True

    def end_behind_answer(self) -> None:
        self.ends = True


class House:
    """Connections of a server, to which others come."""

    def __init__(self, connections: list[Waited]) -> None:
        self.connections = set(connections)
        self.crowd = Crowd(MOST)
        assert all(map(self.crowd.lets_in, connections)) and not any(each.beyond for each in connections)

    def comes(self, address: str, due: float = 1e9, key: str = "") -> Waited | None:
        """A new one that gets in; `key` is what its first request will tell."""
        new = Waited(address, due=due)
        if not self.crowd.lets_in(new):
            return None
        new.key = key
        self.connections.add(new)
        return new

    def asks(self, new: Waited) -> bool:
        """Whether it has a place once its first request is known."""
        new.due = None
        if new.beyond:
            new.ends = not self.crowd.takes_place(new, new.whose, lambda: False)
            new.beyond = False
        return not new.ends

    def let_in(self, address: str, key: str = "") -> Waited:
        """A new one that gets in, and a place."""
        new = self.comes(address, key=key)
        assert new is not None and self.asks(new)
        return new

    def next_round(self) -> None:
        self.lose(each for each in self.connections if each.is_gone)

    def lose(self, connections: Iterable[Waited]) -> None:
        for each in list(connections):
            self.connections.remove(each)
            self.crowd.lost(each)


async def test_who_came_just_now_gives_way_to_no_crowd() -> None:
    house = House([Waited(f"crowd-{number % 10}") for number in range(MOST)])
    new = house.comes("another", due=1.0)
    assert new is not None
    assert all(house.comes(f"quiet-{number}", due=2.0) for number in range(UNHEARD - 1))
    assert not any(house.comes(f"crowd-{number}") for number in range(10))
    assert not new.is_gone
    assert house.comes("another") and new.is_gone


async def test_the_address_that_has_most_gives_way_first() -> None:
    many = [Waited(f"crowd-{number % 3}", due=float(number)) for number in range(MOST - 1)]
    older = Waited("another", due=-1.0)
    house = House([older, *many])
    house.let_in("third")
    assert [each.is_gone for each in (older, many[0])] == [False, True]


async def test_who_has_a_key_gets_in_beside_many_addresses_that_say_nothing() -> None:
    """However many connections there are already from where it comes."""
    own = [Waited("office", key=f"organisation a key-{number}") for number in range(40)]
    silent = [Waited(f"crowd-{number}", due=float(number)) for number in range(MOST - len(own))]
    house = House([*own, *silent])
    assert all(house.comes(f"new-{number}") for number in range(UNHEARD))
    for number in range(len(silent)):
        house.let_in("office", key=f"organisation a key-{number % 40}")
        house.next_round()
        assert house.comes(f"more-{number}")  # in its place
    assert not any(each.is_gone or each.ends for each in own)


@pytest.mark.parametrize("crowd", ["address {}", "organisation a key-{}"])
async def test_who_has_a_key_or_token_gets_in_beside_many_who_have_few_at_work(crowd: str) -> None:
    house = House([Waited(f"crowd-{number}", key=crowd.format(number)) for number in range(MOST)])
    for whose in ("organisation b key-0", "user u"):
        new = house.let_in("another", key=whose)
    new = house.comes("another", key=crowd.format(0))
    assert new is not None and not house.asks(new)


async def test_of_many_that_come_at_once_each_is_heard_before_it_gives_way() -> None:
    house = House([Waited("crowd") for _ in range(MOST)])
    came = [house.comes("crowd", due=float(number)) for number in range(3 * UNHEARD)]
    assert [each is not None and not each.is_gone for each in came] == [
        number >= 2 * UNHEARD for number in range(3 * UNHEARD)
    ]


async def test_who_ends_behind_an_answer_that_does_not_come_keeps_nobody_out() -> None:
    many = [Waited(f"crowd-{number % 4}") for number in range(MOST)]
    house = House(many)
    for number in range(2 * ENDING):
        house.let_in(f"other-{number}")
        house.next_round()
        assert len(house.connections) <= MOST + ENDING + 1
        assert sum(not each.ends for each in house.connections) <= MOST
        if number < ENDING:
            assert not any(each.is_gone for each in many)


@pytest.mark.parametrize("count", [1, 50])
async def test_all_are_looked_at_once_for_those_who_come_meanwhile(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(crowd, "KEPT", 1e9)
    house = House([Waited("crowd") for _ in range(MOST)])
    view, looks = crowd._View, []
    monkeypatch.setattr(crowd, "_View", lambda *told: looks.append(1) or view(*told))
    for number in range(count):
        house.let_in(f"other-{number}")
    assert len(looks) == 1


@pytest.mark.parametrize("seconds", [0, 0.1], ids=["at once", "later"])
async def test_nothing_is_kept_of_a_crowd_that_has_gone(seconds: float) -> None:
    house = House([Waited("crowd") for _ in range(MOST)])
    house.comes("silent")
    for number in range(2 * ENDING):
        house.let_in(f"other-{number}")
    gone = weakref.WeakSet(house.connections)
    await asyncio.sleep(seconds)
    house.lose(house.connections)
    await asyncio.sleep(0.1 - seconds)
    gc.collect()
    assert not gone


async def test_who_ends_behind_an_answer_takes_no_place_of_those_who_come_and_go() -> None:
    many = [Waited(f"crowd-{number % 16}") for number in range(MOST)]
    house = House(many)
    for number in range(2 * UNHEARD):
        new = house.let_in(f"other-{number}")
        house.lose([new])
    assert sum(each.ends for each in many) == 1
    ended = next(each for each in many if each.ends)
    again = house.comes(ended.address)
    assert again is not None and not house.asks(again)


async def test_who_has_gone_by_itself_gives_no_place_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "KEPT", 1e9)
    house = House([Waited("crowd", due=float(number)) for number in range(MOST)])
    house.let_in("other")
    house.next_round()
    for each in [each for each in house.connections if each.due is not None][: UNHEARD // 2]:
        each.make_way()
    house.next_round()
    for number in range(UNHEARD):
        house.let_in(f"other-{number}")
        house.next_round()
    assert len(house.connections) == MOST


async def test_many_that_have_sent_nothing_keep_no_other_address_out() -> None:
    house = House([Waited("own") for _ in range(MOST)])
    for number in range(2 * UNHEARD):
        assert house.comes("silent", due=float(number))
        house.next_round()
    assert house.comes("own")


async def test_who_is_answered_without_a_place_gives_way_to_none_that_have_sent_nothing() -> None:
    house = House([Waited(f"crowd-{number}") for number in range(MOST)])
    ready = house.comes("own")
    assert ready is not None and not house.asks(ready)
    for number in range(2 * UNHEARD):
        house.comes("silent", due=float(number))
        house.next_round()
    assert not ready.is_gone


async def test_those_that_end_take_no_room_of_those_who_come() -> None:
    house = House([Waited("crowd") for _ in range(MOST)])
    for number in range(ENDING):
        house.let_in(f"other-{number}")
    came = [house.comes("crowd", due=float(number)) for number in range(UNHEARD)]
    assert all(each is not None and not each.is_gone for each in came)
