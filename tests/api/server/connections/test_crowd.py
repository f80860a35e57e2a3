"""Who gives way when all connections are at work, by how many each has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from api.server.connections.crowd import ADDRESS, RESERVED, Room, room_for_one_more, takes_place

MOST = 1_100


@dataclass
class AtWork:
    holder: str | None
    beyond: bool = False
    due: float | None = None
    ends: bool = False

    def make_way(self) -> None:
        raise AssertionError("none of these is idle")

    def end_behind_answer(self) -> None:
        self.ends = True


def of(**counts: int) -> list[AtWork]:
    return [AtWork(holder) for holder, count in counts.items() for _ in range(count)]


def test_many_keys_that_have_less_than_a_tenth_each_keep_no_other_out() -> None:
    others = of(**{f"key{number}": MOST // 11 for number in range(11)})
    assert room_for_one_more(others, MOST, lambda: False) is Room.BEYOND
    assert takes_place("another", others, MOST)
    assert sum(each.ends for each in others) == 1


def test_an_address_without_a_credential_takes_nothing_of_less_than_a_tenth() -> None:
    others = of(**{f"key{number}": MOST // 11 for number in range(11)})
    assert not takes_place(f"{ADDRESS}192.0.2.1", others, MOST)
    others += of(greedy=1 + MOST // 10)
    assert takes_place(f"{ADDRESS}192.0.2.1", others, MOST)
    assert [each.holder for each in others if each.ends] == ["greedy"]


@pytest.mark.parametrize(
    ("own", "gets_in"), [(0, True), (MOST // 30, True), (MOST // 20, False), (MOST // 11, False)]
)
def test_who_has_half_as_many_takes_nothing_of_them(own: int, gets_in: bool) -> None:
    others = of(**{f"key{number}": MOST // 11 for number in range(11)}, another=own)
    assert takes_place("another", others, MOST) is gets_in


def test_who_has_few_gives_way_to_nobody() -> None:
    others = of(**{f"key{number}": RESERVED for number in range(4)})
    assert not takes_place("another", others, len(others))
    assert room_for_one_more(others, len(others), lambda: False) is Room.NONE
