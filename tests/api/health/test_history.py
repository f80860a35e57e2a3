"""The last hour of several nodes: added up by spans, bounded, and robust against what others tell."""

from __future__ import annotations

import pytest

from api.health.history import EVERY_SECONDS, KEPT, TOLD, History, Point, point_of, quantile, slot_of
from api.metrics import LATENCY_BOUNDS, Totals

NOW = 1000
NONE = (0,) * (len(LATENCY_BOUNDS) + 1)
START = Totals({"allowed": 5, "blocked": 1, "awaiting_approval": 0}, 10, NONE)


def point(slot: int = NOW, **changes: int) -> Point:
    values = {"allowed": 30, "blocked": 15, "awaiting_approval": 0, "events": 60} | changes
    waiting = {"writer": 0, "webhooks": 0, "notifications": 0, "approvals": 0}
    return Point(slot=slot, latency=NONE, **(waiting | values))


def test_a_point_is_what_was_counted_between_two_looks() -> None:
    latency = (3, *NONE[1:])
    after = Totals({"allowed": 7, "blocked": 1, "awaiting_approval": 4}, 20, latency)
    made = point_of(NOW, START, after, 1, 2, 3, 4)
    assert made == Point(NOW, 2, 0, 4, 10, latency, 1, 2, 3, 4)


def test_rates_of_nodes_add_up_and_what_the_database_holds_is_counted_once() -> None:
    history = History()
    history.add("one", [point(writer=2, approvals=7, webhooks=3)], NOW)
    history.add("two", [point(writer=1, approvals=8, webhooks=3)], NOW)
    (told,) = history.told()
    assert told == {
        "at": "1970-01-01T04:10:00.000000Z",
        "nodes": 2,
        "eventsPerSecond": 8.0,
        "allowedPerSecond": 4.0,
        "blockedPerSecond": 2.0,
        "heldPerSecond": 0.0,
        "p50Ms": None,
        "p99Ms": None,
        "writer": 3,
        "webhooks": 3,
        "notifications": 0,
        "approvals": 8,
    }


def test_an_hour_is_kept_and_clocks_that_differ_do_not_empty_it() -> None:
    history = History()
    for slot in range(NOW - 2 * KEPT, NOW + 1):
        history.add("own", [point(slot)], slot)
    history.add("ahead", [point(NOW + 5000)], NOW)
    history.add("behind", [point(NOW - 5000)], NOW)
    assert len(history.told()) == KEPT
    assert [each.slot for each in history.newest("own")] == list(range(NOW - TOLD + 1, NOW + 1))
    assert history.newest("ahead") == []


def test_a_point_told_twice_counts_once() -> None:
    history = History()
    for _ in range(2):
        history.add("other", [point(NOW - 1), point(NOW)], NOW)
    assert [each["eventsPerSecond"] for each in history.told()] == [4.0, 4.0]


def test_a_point_of_another_version_is_left_out() -> None:
    history = History()
    history.add("other", [Point(NOW, 1, 1, 1, 1, (1, 2), 0, 0, 0, 0)], NOW)
    assert history.told() == []


@pytest.mark.parametrize(
    ("share", "counts", "expected"),
    [
        (0.5, {}, None),
        (0.5, {0: 10}, 0.5),
        (0.99, {0: 50, 3: 50}, 9.9),
        (0.5, {len(LATENCY_BOUNDS): 1}, 10_000),
    ],
)
def test_a_quantile_lies_within_its_bucket(
    share: float, counts: dict[int, int], expected: float | None
) -> None:
    found = quantile(share, [counts.get(bucket, 0) for bucket in range(len(LATENCY_BOUNDS) + 1)])
    assert found == expected


def test_spans_end_at_the_same_times_everywhere() -> None:
    assert slot_of(60.002) == slot_of(59.9) == 60 / EVERY_SECONDS
