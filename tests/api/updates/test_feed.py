"""Following the audit log: every record of others once, none of our own."""

from __future__ import annotations

import random
from typing import Any

import pytest

from api.updates.feed import Feed

NOBODY: Any = None
ONE = ("one", 3)


@pytest.fixture
def feed() -> Feed:
    made = Feed(NOBODY, NOBODY, NOBODY)
    made._seen = {ONE: 10}
    return made


def test_records_of_others_are_told_and_ours_are_not(feed: Feed) -> None:
    feed.about_to_commit({ONE: (12, 14)})
    assert feed._unseen(ONE, 11) == [(11, 11)], "ours are not committed yet"
    assert feed._unseen(ONE, 16) == [(15, 16)]
    assert feed._unseen(ONE, 16) == []
    feed.about_to_commit({ONE: (17, 17)})
    feed.about_to_commit({ONE: (18, 20)})
    assert feed._unseen(ONE, 20) == []
    assert feed._unseen(("new", 0), 2) == [(1, 2)], "an organisation made meanwhile"


def test_numbers_of_a_failed_commit_belong_to_whoever_gets_them(feed: Feed) -> None:
    feed.about_to_commit({ONE: (11, 12)})
    feed.about_to_commit({ONE: (13, 15)})
    feed.rolled_back({ONE: (13, 15)})
    assert feed._unseen(ONE, 14) == [(13, 14)]
    feed.about_to_commit({ONE: (15, 15)})
    feed.rolled_back({ONE: (15, 15)})
    assert feed._unseen(ONE, 15) == [(15, 15)]


def test_numbers_that_a_copy_of_the_database_gives_again_are_told(feed: Feed) -> None:
    feed.about_to_commit({ONE: (11, 12)})
    assert feed._unseen(ONE, 7) == [], "it lacks three that were seen, and ours"
    assert feed._unseen(ONE, 9) == [(8, 9)]
    assert feed._unseen(ONE, 12) == [(10, 12)]


def test_any_order_of_commits_and_looks_tells_each_record_once() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        feed = Feed(NOBODY, NOBODY, NOBODY)
        tip, others, told = 0, set(), []
        for _ in range(60):
            last = tip + chance.randint(1, 4)
            match chance.randrange(4):
                case 0:
                    others |= set(range(tip + 1, last + 1))
                    tip = last
                case 1:
                    feed.about_to_commit({ONE: (tip + 1, last)})
                    if chance.random() < 0.3:
                        feed.rolled_back({ONE: (tip + 1, last)})
                    else:
                        tip = last
                case 2:
                    # A look between the announcement and the commit.
                    feed.about_to_commit({ONE: (tip + 1, last)})
                    told += feed._unseen(ONE, tip)
                    if chance.random() < 0.3:
                        feed.rolled_back({ONE: (tip + 1, last)})
                    else:
                        tip = last
                case _:
                    told += feed._unseen(ONE, tip)
        told += feed._unseen(ONE, tip)
        numbers = [number for first, last in told for number in range(first, last + 1)]
        assert sorted(numbers) == sorted(others) and len(set(numbers)) == len(numbers)
