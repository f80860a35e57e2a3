"""What is told of work on the database that cannot be done."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.outage import Outage


def test_of_several_connections_one_that_goes_on_ends_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    outage = Outage("reading", settles=3600)
    for _ in range(3):
        outage.met(DatabaseUnavailable("no way in"))
        outage.over()
    assert caplog.messages == ["reading waits: no way in"]
    outage._settles = 0
    outage.over()
    assert caplog.messages[1:] == ["reading goes on"]


@pytest.mark.postgres
def test_a_server_that_lets_nobody_in_anew_is_told_by_whoever_reads(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A password that was changed, a certificate that has expired: the connections that are there go on, so
    that events are decided, and nothing else told why people got 503."""
    store = Database(postgres_url)
    assert store.read_here(store.rows, "SELECT 1") == [(1,)]
    name = conninfo_to_dict(postgres_url)["dbname"]
    closing, opening = (
        sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(sql.Identifier(str(name)), sql.SQL(each))
        for each in ("false", "true")
    )
    with psycopg.connect(make_conninfo(postgres_url, dbname="postgres"), autocommit=True) as admin:
        admin.execute(closing)
        try:
            with pytest.raises(DatabaseUnavailable):
                asyncio.run(store.read_first(store.rows, "SELECT 1"))
        finally:
            admin.execute(opening)
    assert any(
        each.startswith("reading from the database waits: ")
        and "is not currently accepting connections" in each
        for each in caplog.messages
    )
    assert asyncio.run(store.read_first(store.rows, "SELECT 1")) == [(1,)]
    store.close()
