"""Databases of before are brought to where the tables are now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import peewee
import psycopg
import pytest

from api.clock import random_ids
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.id_index import IdIndex
from api.database.lanes import locks
from api.database.lanes.keys import call_key, event_key
from api.database.models import CallTable, Event, Run
from api.database.transaction import Transaction
from api.ingestion import event as event_
from tests.harness.partitions import undivide, undivide_records
from tests.harness.sql_archive import opened


@pytest.fixture
def store(database_url: str) -> Iterator[Database]:
    made = opened(database_url)
    yield made
    made.close()


def test_a_database_of_before_gets_the_directory(store: Database) -> None:
    undivide(store)
    undivide_records(store)
    names = [f"call-{number}" for number in range(25)]
    call = {
        "organisation_id": "default",
        "event_no": 1,
        "tool_name": "mail",
        "payload_digest": "d",
        "status": "allowed",
        "action": "allow",
        "reason": "",
        "matched": "[]",
        "shadow": "[]",
        "policy_revision": 1,
        "policy_digest": "d",
        "decided_at": "",
        "audit_id": "a",
        "facts": "{}",
    }
    event_row = {
        "organisation_id": "default",
        "event_type": "t",
        "received_at": "",
        "body": b"{}",
        "receipt": b"",
    }
    with store.transaction():
        run = Run.create(
            organisation_id="default", run_id="r", agent_id="a", status="running", started_at="", key_id="k"
        )
        for number, name in enumerate(names):
            Event.create(**event_row, event_id=name, id_hash=-number, run_no=run.run_no)
            CallTable.create(**call, run_no=run.run_no, tool_call_id=name, call_hash=number)
        store.rows_changed("DROP TABLE IF EXISTS directory")
        store.rows_changed("DROP TABLE IF EXISTS ids")
        store.rows_changed("ALTER TABLE events RENAME COLUMN id_hash TO event_hash")
        store.rows_changed("ALTER TABLE events RENAME COLUMN receipt TO answer")
        store.rows_changed('CREATE INDEX "by_time" ON "approvals" ("organisation_id", "requested_at")')
        store.rows_changed('CREATE INDEX "open" ON "approvals" ("expires_at")')
        store.rows_changed('DROP INDEX "approvals_expiring"')
        store.rows_changed('CREATE UNIQUE INDEX "events_event_hash" ON "events" ("event_hash")')
        store.rows_changed('ALTER TABLE "tool_calls" DROP COLUMN "call_hash"')
        store.rows_changed('CREATE INDEX "approvals_run_no" ON "approvals" ("run_no")')
        store.rows_changed('CREATE UNIQUE INDEX "old" ON "tool_calls" ("run_no", "tool_call_id")')
        store.rows_changed('CREATE UNIQUE INDEX "older" ON "audit" ("audit_id")')
        store.rows_changed("DELETE FROM schema_migration WHERE name > ?", ("0002",))
    store.migrate()
    hashes = dict(store.rows("SELECT tool_call_id, call_hash FROM tool_calls"))
    assert hashes == {name: event_.hash64("", name) for name in names}
    if store.is_sqlite:
        filed = {(owner, key): no for owner, key, no in store.rows("SELECT owner, hash, no FROM directory")}
        assert filed == {
            **{(0, -number): number + 1 for number in range(25)},
            **{(run.run_no, hashes[name]): number + 1 for number, name in enumerate(names)},
        }
    else:
        kept = store.rows("SELECT replace(key::text, '-', ''), no FROM ids WHERE organisation_id = 'default'")
        assert sorted(kept) == sorted(
            [
                (key_of, number + 1)
                for number, name in enumerate(names)
                for key_of in (event_key("default", name), call_key("default", "r", name))
            ]
        )
    for table, column in (("events", "id_hash"), ("audit", "audit_id"), ("approvals", "run_no")):
        assert not [index for index in store.peewee.get_indexes(table) if column in index.columns]
    assert {index.name for index in store.peewee.get_indexes("approvals")} & {
        *("by_time", "open", "approvals_expiring"),
    } == {"approvals_expiring"}
    assert store.rows("SELECT DISTINCT receipt FROM events")
    if store.is_sqlite:
        with store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            assert IdIndex(store).find(transaction, [*filed]) == filed
            assert IdIndex.flushed(transaction) == 25
    store.migrate()


def test_runs_of_before_have_no_labels(store: Database) -> None:
    with store.transaction():
        Run.create(
            organisation_id="default", run_id="r", agent_id="a", status="running", started_at="", key_id="k"
        )
        for column in ("parent_run_id", "labels", "steps", "flow"):
            store.rows_changed(f"ALTER TABLE runs DROP COLUMN {column}")
        store.rows_changed("DROP TABLE run_values")
        store.rows_changed("DELETE FROM schema_migration WHERE name >= ?", ("0011",))
    store.migrate()
    assert store.rows("SELECT parent_run_id, labels, steps, flow FROM runs") == [(None, "[]", None, 0)]
    assert store.rows("SELECT * FROM run_values") == []
    store.migrate()


def test_approvals_of_before_do_not_say_who_asked(store: Database) -> None:
    with store.transaction():
        store.rows_changed("DROP TABLE grants")
        store.rows_changed("DROP TABLE grant_uses")
        store.rows_changed("ALTER TABLE approvals DROP COLUMN asked_by")
        store.rows_changed("DELETE FROM schema_migration WHERE name >= ?", ("0014",))
    store.migrate()
    assert store.rows("SELECT asked_by FROM approvals") == []
    assert store.rows("SELECT grant_id FROM grants") == store.rows("SELECT grant_id FROM grant_uses") == []
    store.migrate()


def test_proposed_tools_of_before_are_none(store: Database) -> None:
    with store.transaction():
        store.rows_changed("DROP TABLE tool_proposals")
        store.rows_changed("DROP TABLE tool_definitions")
        store.rows_changed("DELETE FROM schema_migration WHERE name >= ?", ("0013",))
    store.migrate()
    assert store.rows("SELECT proposal_id FROM tool_proposals") == []
    assert store.rows("SELECT definition FROM tool_definitions") == []
    store.migrate()


def test_a_process_of_before_cannot_write(store: Database) -> None:
    with pytest.raises((DatabaseUnavailable, peewee.ProgrammingError)), store.transaction():
        store.insert_many("events", ("event_no", "event_hash"), [(1, 1)])


@pytest.mark.postgres
def test_a_start_that_waits_for_a_table_keeps_no_event_waiting(postgres_url: str) -> None:
    """Somebody rewrites a table that no event needs, as by `VACUUM FULL deliveries`, while a node starts."""
    store = opened(postgres_url)
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as threads:
        other.execute("LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")
        start = threads.submit(store.migrate)
        deadline = time.monotonic() + 20
        waiting = "SELECT 1 FROM pg_locks WHERE relation = 'deliveries'::regclass AND NOT granted"
        while other.execute(waiting).fetchone() is None:
            assert time.monotonic() < deadline and not start.done()
            time.sleep(0.01)
        found = other.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", (locks.EVENTS,)).fetchone()
        other.rollback()
        start.result()
    store.close()
    assert found == (True,)
