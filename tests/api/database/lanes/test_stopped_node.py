"""A node that stands still inside a transaction: the server takes the lock of events away from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.lanes import locks, loop_lane
from api.database.lanes.lease import LEASE_SECONDS
from tests.harness.places import ROOT
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres

STOPS = """
import os, select, signal, sys
from api.database.connection import Database
from api.database.lanes import locks, loop_lane
from api.database.lanes.guards import LOCK_TIMEOUT

locks.SILENT_SECONDS = loop_lane.SECONDS = 1
url, how = sys.argv[1:]
store = Database(url)
if how == "lane":
    lane = loop_lane.opened(store.peewee, "stopped")
    lane._session.push([(locks.SHARED, (LOCK_TIMEOUT, str(locks.EVENTS)))])
    lane._session.connection.pgconn.send_flush_request()
    lane._session.connection.pgconn.flush()
    select.select([lane._fd], [], [])  # it has it
    os.kill(os.getpid(), signal.SIGSTOP)
with store.transaction(shared=how != "job"):
    if how == "job":
        store.rows("SELECT 1")
    if how == "pipeline":
        store.change("SELECT 1")
        store.push()
    os.kill(os.getpid(), signal.SIGSTOP)
"""
_HOLDERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = %s"


@pytest.fixture(scope="module")
def before_17() -> Iterator[Postgres]:
    """A server that ends no transaction in the midst of a pipeline."""
    server = Postgres(version=16)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("how", ["between two pipelines", "pipeline", "lane"])
def test_a_stopped_node_does_not_keep_the_lock(postgres: Postgres, how: str) -> None:
    """The times are shortened, since a test must not take thirty seconds."""
    with stopped(postgres, how) as url:
        free(url)


@pytest.mark.parametrize("how", ["pipeline", "lane"])
def test_before_postgresql_17_whoever_waits_ends_it(
    before_17: Postgres, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_SECONDS", 1)
    monkeypatch.setattr(locks, "SILENT_SECONDS", 1)
    with stopped(before_17, how) as url, closing(Database(url)) as waiting:
        for _ in range(30):
            with suppress(DatabaseUnavailable), waiting.transaction():
                waiting.exclude_events()
                waiting.rows("SELECT 1")
                break
        free(url)


@contextmanager
def stopped(server: Postgres, how: str) -> Iterator[str]:
    """A database that a stopped node is at; its address."""
    url = server.create()
    with closing(Database(url)) as store:
        store.migrate()
    node = subprocess.Popen([sys.executable, "-c", STOPS, url, how], cwd=ROOT)
    try:
        os.waitpid(node.pid, os.WUNTRACED)
        yield url
    finally:
        node.kill()
        node.send_signal(signal.SIGCONT)
        node.wait()
    server.drop(url)


def free(url: str) -> None:
    """Nobody holds the lock of events, before long."""
    with psycopg.connect(url, autocommit=True) as connection:
        deadline = time.monotonic() + 60
        while connection.execute(_HOLDERS, (locks.EVENTS,)).fetchone() != (0,):
            assert time.monotonic() < deadline, "the stopped node still holds the lock"
            time.sleep(0.05)


def test_whoever_waits_in_vain_for_a_change_of_a_stopped_node_ends_it(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No deadline of the server ends it before five minutes, since changes may take long."""
    monkeypatch.setattr(locks, "LOCK_SECONDS", 1)
    monkeypatch.setattr(locks, "SILENT_SECONDS", 1)
    refused = 0
    with stopped(postgres, "job") as url, closing(Database(url)) as waiting:
        while refused < 30:
            try:
                with waiting.transaction():
                    assert waiting.rows("SELECT 1") == [(1,)]
                break
            except DatabaseUnavailable:
                refused += 1
    assert 0 < refused < 30


def test_the_times_are_within_a_lease(postgres_url: str) -> None:
    assert locks.SILENT_SECONDS < LEASE_SECONDS and loop_lane.SECONDS < LEASE_SECONDS
    store = Database(postgres_url)
    store.migrate()
    with store.transaction(shared=True):
        assert store.rows("SHOW idle_in_transaction_session_timeout") == [(f"{locks.SILENT_SECONDS}s",)]
        if store.peewee.connection().info.server_version >= 170_000:
            assert store.rows("SHOW transaction_timeout") == [(f"{locks.SILENT_SECONDS}s",)]
    assert store.rows("SHOW statement_timeout") == [("1min",)]
    assert store.rows("SHOW idle_in_transaction_session_timeout") == [("5min",)]
    store.close()
