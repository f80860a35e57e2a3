"""Whose connection gives way to a new one, by the addresses that they come from."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from api.server.connections.crowd import RESERVED, Room, room_for_one_more

MOST = 100


@dataclass
class Waited:
    """A connection of a crowd: at work, or waited for since some time."""

    address: str
    due: float | None = None
    beyond: bool = False
    closed: bool = False

    @property
    def holder(self) -> str | None:
        return f"address {self.address}" if self.due is None and not self.closed else None

    def make_way(self) -> None:
        self.due, self.closed = None, True

    def end_behind_answer(self) -> None:
        raise AssertionError("nobody has sent anything")


def room(address: str, others: list[Waited]) -> Room:
    return room_for_one_more(address, others, MOST, lambda: False)


@pytest.mark.parametrize("beyond", [False, True])
def test_who_came_just_now_gives_way_to_no_crowd(beyond: bool) -> None:
    crowd = [Waited(f"crowd-{number % 14}") for number in range(MOST + (RESERVED if beyond else 0) - 1)]
    new = Waited("another", due=1.0, beyond=beyond)
    for number in range(14):
        assert room(f"crowd-{number}", [*crowd, new]) is (Room.NONE if beyond else Room.BEYOND)
    assert not new.closed
    assert room("another", [*crowd, new]) is (Room.BEYOND if beyond else Room.OF_ANOTHER)
    assert new.closed


def test_the_address_that_has_most_gives_way_first() -> None:
    crowd = [Waited(f"crowd-{number % 3}", due=float(number)) for number in range(MOST)]
    older = Waited("another", due=-1.0)
    assert room("third", [older, *crowd]) is Room.OF_ANOTHER
    assert [each.closed for each in (older, crowd[0])] == [False, True]
