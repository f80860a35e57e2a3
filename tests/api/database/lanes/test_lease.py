"""Lanes as leases: who gets which, what goes along with it; and who has lost one writes nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import Conflict
from api.database.lanes.lease import LANE, LEASE_SECONDS, Lane, lease, release
from api.database.models import numbers_of
from tests.api.database.lanes.test_dispatch import Lanes, lanes, look, opened, post, serving
from tests.harness.application import Service

__all__ = ["lanes"]

pytestmark = pytest.mark.postgres

_NOW = "extract(epoch FROM clock_timestamp())"
_LEFT = f"SELECT expires_at - {_NOW} FROM lanes WHERE lane_no = ?"
TIP = 7, "a" * 64


def leased(store: Database, owner: str) -> Lane:
    with store.peewee.atomic():
        return lease(store.rows, owner)


def move(store: Database, lane: Lane, numbers: int = 2) -> None:
    """One transaction of who holds it."""
    with store.transaction(first=[lane.advance(numbers)], shared=True):
        """It writes nothing else."""
    lane.moved(numbers, {})


def expire(store: Database, lane: Lane) -> None:
    store.rows_changed(f"UPDATE lanes SET expires_at = {_NOW} - 1 WHERE lane_no = ?", (lane.number,))


def left(store: Database, lane: Lane) -> float:
    return float(store.rows(_LEFT, (lane.number,))[0][0])


def test_a_lane_is_one_owner_s_until_it_expires(store: Database) -> None:
    one, other = leased(store, "one"), leased(store, "other")
    assert (one.number, other.number) == (1, 2) and one.first == numbers_of(1) + 1
    move(store, one, 5)
    store.insert_many("chains", ("organisation_id", "chain", "sequence", "hash"), [("o", 1, *TIP)])
    assert leased(store, "third").number == 3
    expire(store, one)
    taken = leased(store, "fourth")
    assert taken.number == one.number and taken.epoch == one.epoch + 1
    assert taken.first == one.first == numbers_of(1) + 6, "no number comes twice"
    assert taken.tips == {"o": TIP}, "its chains go on"
    with pytest.raises(Conflict) as lost:
        move(store, one)
    assert lost.value.state == LANE
    move(store, taken)
    expire(store, taken)
    assert leased(store, "other").number == 2, "an owner's own comes before one that is free"


@pytest.mark.parametrize("what", ["epoch", "version"])
def test_who_does_not_know_what_the_database_says_writes_nothing(store: Database, what: str) -> None:
    lane = leased(store, "one")
    store.rows_changed(f"UPDATE lanes SET {what} = {what} + 1")
    with pytest.raises(Conflict) as lost:
        move(store, lane)
    assert lost.value.state == LANE


def test_each_transaction_renews_the_lease(store: Database) -> None:
    lane = leased(store, "one")
    assert LEASE_SECONDS - 10 < left(store, lane) <= LEASE_SECONDS
    expire(store, lane)
    move(store, lane)
    assert left(store, lane) > LEASE_SECONDS - 10


def test_nobody_waits_for_a_lane_that_another_is_just_taking(store: Database) -> None:
    expire(store, leased(store, "one"))
    with psycopg.connect(store.url) as another:
        another.execute("SELECT 1 FROM lanes FOR UPDATE")
        assert leased(store, "other").number == 2


def test_what_a_process_lets_go_of_is_free_at_once(store: Database) -> None:
    for owner in ("a:1", "a:2", "b:1"):
        leased(store, owner)
    release(store.rows_changed, "a:")
    assert [leased(store, f"c:{n}").number for n in range(3)] == [1, 2, 4]


def test_a_service_that_stops_lets_go_of_its_lanes(tmp_path: Path, postgres_url: str) -> None:
    async def play() -> None:
        environment = {"GOVERNANCE_DATABASE_URL": postgres_url, "GOVERNANCE_LANES": "3"}
        async with Service(tmp_path, environment=environment) as running:
            await opened(running)
            assert held() >= 3
        assert held() == 0

    def held() -> int:
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute("SELECT count(*) FROM lanes WHERE expires_at > 0").fetchone()
        assert found is not None
        return int(found[0])

    asyncio.run(play())


async def test_lanes_that_rested_for_longer_than_their_lease_are_taken_and_nothing_is_lost(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """As those of a node that stood still: it finds out with the next event, and leases others."""
    async with serving(tmp_path, postgres_url) as running:
        await asyncio.gather(*(post(running, look(n)) for n in range(20)))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE lanes SET expires_at = 1")

            def ask(statement: str, parameters: Sequence[Any]) -> Any:
                found = connection.execute(statement.replace("?", "%s").encode(), parameters)
                return found.fetchall()

            taken = [lease(ask, f"another:{n}") for n in range(4)]
        assert {lane.epoch for lane in taken} == {2}
        answers = await asyncio.gather(*(post(running, look(n)) for n in range(20, 40)))
        assert {answer.status_code for answer in answers} == {200} and lanes.failed
        with psycopg.connect(postgres_url) as connection:
            numbers = connection.execute("SELECT event_no FROM events WHERE event_id <> 'x'").fetchall()
            assert len(set(numbers)) == len(numbers) == 41
            owned = connection.execute("SELECT count(*) FROM lanes WHERE owner LIKE 'another:%'").fetchone()
            assert owned == (4,), "nobody takes back what another holds"
