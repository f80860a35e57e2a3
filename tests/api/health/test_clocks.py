"""A node whose clock is not that of the database, and who is told of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from api.database.connection import Database
from api.health.clocks import ClockCheck
from tests.harness.nodes import nodes

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(("ahead", "told"), [(300.0, "ahead of"), (-300.0, "behind")])
def test_a_clock_that_is_wrong_is_told_once_and_when_it_is_right(
    postgres_url: str, caplog: pytest.LogCaptureFixture, ahead: float, told: str
) -> None:
    by = ahead
    store = Database(postgres_url)
    try:
        clocks = ClockCheck(store, lambda: time.time() + by)
        clocks.look()
        clocks.look()
        assert clocks.is_apart and abs(clocks.ahead - ahead) < 5
        (line,) = [each.getMessage() for each in caplog.records]
        assert f"the clock of this node is 300 seconds {told} that of the database" in line
        by = 0.0
        clocks.look()
        assert not clocks.is_apart and "agrees" in caplog.records[-1].getMessage()
    finally:
        store.close()


def test_what_a_slow_network_takes_is_no_difference(postgres_url: str) -> None:
    """Forty seconds pass between the two looks at its own clock."""
    times = iter(time.time() + step for step in (0.0, 40.0))
    store = Database(postgres_url)
    try:
        clocks = ClockCheck(store, lambda: next(times))
        clocks.look()
        assert clocks.ahead == 0 and not clocks.is_apart
    finally:
        store.close()


@pytest.mark.slow
def test_health_says_how_far_the_clocks_are_apart(tmp_path: Path, postgres_url: str) -> None:
    with nodes(tmp_path, postgres_url, 1) as (node,):
        told = node.http.get("/health").json()["clock"]
    assert told["apart"] is False and abs(told["aheadSeconds"]) < 5
