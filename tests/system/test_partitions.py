"""Nodes that drop partitions of events: one is killed at it, four go on at once, and no other event goes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from api.clock import DAY
from api.database.connection import Database
from api.database.partitions.catalog import EVENTS, partitions
from api.database.partitions.upkeep import Partitions, midnight
from tests.harness.nodes import nodes, wait_for
from tests.harness.partitions import divide_since, held, loose_ids
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

OLD = 30_000
"""Events, in partitions of three days; it takes some seconds to forget their ids."""
_EVENTS = (
    "INSERT INTO events (event_no, organisation_id, event_id, id_hash, run_no, event_type, received_at, body,"
    " receipt) SELECT n, 'default', 'old-' || n, 0, 1, 't', ?::text, '{}', '' FROM"
    " generate_series(?::bigint, ?::bigint) AS n"
)
_IDS = (
    "INSERT INTO ids (organisation_id, key, no) SELECT organisation_id, encode(substring(sha256("
    "convert_to('event', 'UTF8') || '\\x00'::bytea || convert_to(organisation_id, 'UTF8') || '\\x00'::bytea"
    " || convert_to(event_id, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid, event_no FROM events"
)
_PROGRESS = "SELECT name FROM counters WHERE starts_with(name, 'forgotten') AND value > 0"


def filled(store: Database, now: float) -> None:
    """Partitions since four days ago, with events in the first three of them."""
    divide_since(store, midnight(now, -4))
    Partitions(store, 1).prepare(now - 4 * DAY)
    for day in range(3):
        first = day * OLD // 3
        at = midnight(now, day - 4)
        store.rows_changed(_EVENTS, (at, first + 1, first + OLD // 3))
    store.rows_changed(_IDS)


def test_a_node_is_killed_while_it_drops_and_four_go_on(tmp_path: Path, postgres: Postgres) -> None:
    url, now = postgres.create(postgres.migrated), time.time()
    with closing(Database(url)) as store:
        filled(store, now)
        assert [len(ids) for ids in held(store).values()] == [OLD // 3] * 3 and loose_ids(store) == (0, 0)
        with psycopg.connect(url) as reader:
            reader.execute("SELECT COUNT(*) FROM events")  # nothing can be dropped meanwhile
            with nodes(tmp_path, url, 1, GOVERNANCE_EVENT_DAYS="1") as (node,):
                wait_for(lambda: bool(store.rows(_PROGRESS)), node)
                node.kill()
        assert len(held(store)) == 3
        with nodes(tmp_path, url, 4, GOVERNANCE_EVENT_DAYS="1") as four:
            with ThreadPoolExecutor(4) as pool:
                answers = pool.map(lambda n: four[n % 4].call(f"new-{n}", run=f"run-{n % 4}"), range(40))
                assert {answer.status_code for answer in answers} == {200}
            gone = midnight(time.time(), -1)
            wait_for(lambda: partitions(store)[0].span.since == gone, four[0])
            for node in four:
                health = node.http.get("/health").json()["partitions"]
                assert health["until"] >= midnight(now, 7) and not health["late"]
                assert "Traceback" not in node.log
            again = {node.call("old-1").status_code for node in four}
            assert again == {200}, "an id that went is free again"
        (ids,) = [ids for name, ids in held(store).items() if name != EVENTS.other]
        assert sorted(ids) == sorted([*(f"event-new-{n}" for n in range(40)), "event-old-1"])
        assert loose_ids(store) == (0, 0)
        assert store.rows(_PROGRESS) == []
    postgres.drop(url)
