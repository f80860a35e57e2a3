"""Nodes, their networks and their database break under load: what was acknowledged stays, nothing hangs.

One cluster goes through it all, a round for each fault; every node serves again by itself, and the others do
while one is away. `KILL_ROUNDS` repeats each fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.faults.node_faults import GOES_ON, LEASE, Scene, audit_verify, scene, unique_numbers
from tests.harness.cluster import DEADLINE
from tests.harness.effort import LONG
from tests.harness.postgres import Postgres
from tests.harness.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ROUNDS = range(int(os.environ.get("KILL_ROUNDS", "5" if LONG else "1")))


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = Postgres()
    try:
        server.start()
        with scene(tmp_path_factory.mktemp("nodes"), server, server.create(), 3) as made:
            yield made
            made.ledger.check_all(made.cluster.nodes[0], made.cluster.admin)
            valid, results = audit_verify(made.cluster.nodes[0], made.cluster.database)
            assert valid, results
            unique_numbers(made.cluster.database)
    finally:
        server.close()


@pytest.mark.parametrize("_", ROUNDS)
def test_a_node_is_killed(play: Scene, _: int) -> None:
    with play.under_load() as load:
        node = play.chance.choice(play.cluster.nodes)
        node.kill()
        load.must_go_on(GOES_ON, DEADLINE)
        node.restart()


@pytest.mark.parametrize("_", ROUNDS)
def test_a_node_stands_still_for_longer_than_its_lease(play: Scene, _: int) -> None:
    with play.under_load() as load:
        number, other = play.chance.sample(range(len(play.cluster.nodes)), 2)
        node = play.cluster.nodes[number]
        node.freeze()
        try:
            time.sleep(1)
            before = play.written()
            time.sleep(LEASE - 1)
            play.lapse(before, other)
            load.must_go_on(GOES_ON, DEADLINE)
        finally:
            node.thaw()


@pytest.mark.parametrize("_", ROUNDS)
def test_a_node_is_cut_off_from_the_database(play: Scene, _: int) -> None:
    """Nobody tells it; what it had sent arrives when the network is back."""
    with play.under_load() as load:
        number = play.chance.randrange(len(play.cluster.nodes))
        network, node = play.cluster.networks[number], play.cluster.nodes[number]
        network.stall()
        try:
            for _again in range(2):
                assert play.asked_of_all(node) == {503}, "it decided on its own"
            load.must_go_on(GOES_ON, DEADLINE)
        finally:
            network.go()


@pytest.mark.parametrize("_", ROUNDS)
def test_connections_are_closed_reset_and_refused(play: Scene, _: int) -> None:
    with play.under_load() as load:
        for network in play.cluster.networks * 2:
            network.close_all()
            time.sleep(play.chance.uniform(0, 0.2))
            network.reset_all()
            time.sleep(play.chance.uniform(0, 0.2))
        load.must_go_on(GOES_ON, DEADLINE)
        network.refuse()
        time.sleep(1)
        load.must_go_on(GOES_ON, DEADLINE)
        network.go()


@pytest.mark.parametrize("_", ROUNDS)
def test_connections_are_ended_by_the_database(play: Scene, _: int) -> None:
    with play.under_load() as load:
        for _again in range(6):
            until(play.connections, DEADLINE)  # or none has come back yet
            time.sleep(play.chance.uniform(0, 0.5))
        load.must_go_on(GOES_ON, DEADLINE)


@pytest.mark.parametrize("_", ROUNDS)
def test_the_database_is_killed(play: Scene, _: int) -> None:
    with play.under_load() as load:
        play.cluster.server.crash()
        time.sleep(play.chance.uniform(0, 1))
        play.cluster.server.start()
        load.must_go_on(GOES_ON, DEADLINE)
