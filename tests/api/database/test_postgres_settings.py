"""Settings of a PostgreSQL database or of its user, by which the service would keep less than it promises."""

from __future__ import annotations

from pathlib import Path

import peewee
import psycopg
import pytest

from api.bootstrap import prepare
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.lacking import lacking
from api.database.lanes.lease import lease
from api.database.postgres import on_this_machine
from api.settings import load
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres


def test_a_commit_is_on_disk_and_sees_the_last_whatever_the_database_is_set_to(postgres_url: str) -> None:
    wrong = {
        "synchronous_commit": "off",
        "default_transaction_isolation": "serializable",
        "extra_float_digits": "-10",
    }
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name, value in wrong.items():
            admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET {name} = '{value}'".encode())
    made = Database(postgres_url)
    try:
        assert made.rows("SHOW synchronous_commit") == [("on",)]
        assert made.rows("SHOW default_transaction_isolation") == [("read committed",)]
        assert made.rows("SELECT 4102444800.123456::double precision") == [(4102444800.123456,)]
    finally:
        made.close()


def test_rows_that_a_policy_of_the_database_hides_are_an_error_and_not_missing(postgres: Postgres) -> None:
    """`FORCE ROW LEVEL SECURITY` shows the owner of a table that has no policy an empty one: no halt."""
    url = postgres.create()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS hardened")
        admin.execute("CREATE ROLE hardened LOGIN")
        admin.execute("GRANT ALL ON SCHEMA public TO hardened")
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET row_security = on'.encode())
    made = Database(url.replace("postgres:@", "hardened@"))
    try:
        made.migrate()
        made.change("ALTER TABLE halts ENABLE ROW LEVEL SECURITY")
        assert made.rows("SELECT * FROM halts") == []  # of the owner all are shown
        made.change("ALTER TABLE halts FORCE ROW LEVEL SECURITY")
        with pytest.raises(peewee.ProgrammingError) as refusal:
            made.rows("SELECT * FROM halts")
        told = lacking(refusal.value, made.url)
        assert told is not None and "hides rows from the service" in told.operator_message
        assert "`ALTER TABLE ... DISABLE ROW LEVEL SECURITY`" in told.operator_message
    finally:
        made.close()
        postgres.drop(url)


def test_a_stricter_commit_is_left_as_it_is(postgres_url: str) -> None:
    made = Database(
        f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-csynchronous_commit%3Dlocal"
    )
    try:
        assert made.rows("SHOW synchronous_commit") == [("local",)]
    finally:
        made.close()


def test_a_search_path_to_no_schema_is_told_in_words(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET search_path = nowhere'.encode())
    made = Database(postgres_url)
    try:
        with pytest.raises(DatabaseUnavailable, match="has no schema for the tables") as refusal:
            made.migrate()
        assert "`search_path`" in refusal.value.operator_message
    finally:
        made.close()


def test_a_search_path_that_leads_elsewhere_is_not_told_as_a_restore_in_part(postgres_url: str) -> None:
    """Whoever believes that restores an older copy over a database that is whole."""
    made = Database(postgres_url)
    try:
        made.migrate()
        made.change("CREATE SCHEMA elsewhere")
        made.change("SET search_path = elsewhere")
        with pytest.raises(DatabaseUnavailable, match="no tables where the `search_path`"):
            lease(made.rows, "node")
        made.change("RESET search_path")
        assert lease(made.rows, "node").number > 0
    finally:
        made.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_script_is_refused(postgres: Postgres, encoding: str) -> None:
    url = postgres.create("template0", f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
    made = Database(url)
    try:
        with pytest.raises(DatabaseUnavailable, match=f"encoding {encoding}.*createdb --encoding UTF8"):
            made.migrate()
        assert made.peewee.get_tables() == []
    finally:
        made.close()
        postgres.drop(url)


def test_what_the_environment_says_of_the_encoding_counts_for_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    made = Database(postgres_url)
    try:
        assert made.rows("SELECT ?::text", ("日本",)) == [("日本",)]
    finally:
        made.close()


def test_a_node_with_too_few_connections_is_told_at_its_start(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.create()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS few")
        admin.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 29")
        admin.execute("GRANT ALL ON SCHEMA public TO few")
    few = url.replace("postgres:@", "few@")
    environment = {
        "GOVERNANCE_DATABASE_URL": few,
        "GOVERNANCE_ADMIN_PASSWORD": "correct horse battery staple",
    }
    settings = load(environment, data_dir=str(tmp_path / "data"))
    (note,) = prepare(settings).notes
    assert "allows 29 connections here" in note and "up to 30" in note and "GOVERNANCE_LANES" in note
    assert prepare(load(environment | {"GOVERNANCE_LANES": "7"}, data_dir=str(tmp_path / "data"))).notes == ()
    postgres.drop(url)


def test_a_connection_in_plain_text_is_told_of_at_the_start(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notes(url: str) -> list[str]:
        made = prepare(load({"GOVERNANCE_DATABASE_URL": url}, data_dir=str(tmp_path / "data")))
        return [note for note in made.notes if "is not encrypted" in note]

    assert notes(postgres_url) == []  # by a socket
    monkeypatch.setattr("api.database.postgres.on_this_machine", lambda host, address: False)
    (note,) = notes(postgres_url)
    assert "sslmode=verify-full" in note
    assert notes(f"{postgres_url}{'&' if '?' in postgres_url else '?'}sslmode=disable") == []


@pytest.mark.parametrize(
    ("host", "address", "stays"),
    [
        ("/var/run/postgresql", "", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "::1", True),
        ("db.example.com", "10.0.0.7", False),
        ("db.example.com", "", False),
    ],
)
def test_what_stays_on_the_machine(host: str, address: str, stays: bool) -> None:
    assert on_this_machine(host, address) is stays
