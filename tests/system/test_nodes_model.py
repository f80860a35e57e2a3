"""A random walk over several nodes on one PostgreSQL: after each answered change, no decision is older.

`LONG=1` walks further and more often; `NODES_SEED` repeats one walk, as far as that can be.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.harness.cluster import cluster
from tests.harness.effort import LONG
from tests.harness.nodes_model import LIMITS, POLICIES, Walk
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SEEDS = range(20) if LONG else [random.randrange(1 << 32)]
"""A short walk is another one each time."""
CALLS = 3_000 if LONG else 150
CHANGES = 20
NODES = 3


def test_no_decision_rests_on_what_was_changed_before(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    seed = os.environ.get("NODES_SEED")
    for number in [int(seed)] if seed else SEEDS:
        folder = tmp_path / str(number)
        url = postgres_url if number == SEEDS[0] or seed else postgres.create()
        with cluster(folder, postgres, url, NODES, [*POLICIES, LIMITS]) as made:
            for network, seconds in zip(made.networks, (0.001, 0.004, 0.01), strict=True):
                network.round_trip(seconds)
            print(f"NODES_SEED={number}")
            walk = Walk(made, f"walk-{number}", number)
            try:
                asyncio.run(walk.play(CALLS, CHANGES))
            except BaseExceptionGroup as group:
                raise AssertionError(f"NODES_SEED={number}: {group.exceptions}") from group
            walk.finish()
            print(f"walk {number}: {len(walk.calls)} calls, {walk.checked} answers, {walk.changes} changes")
            assert walk.checked > CALLS
