"""A PostgreSQL database that somebody empties, replaces or takes the rights from under a running service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import peewee
import psycopg
import pytest

from api import bootstrap
from api.audit.mark import AuditMark
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.settings import SettingsError, load
from tests.faults.database_faults import HOLD, intact, payment, post, refused, service, settled
from tests.harness.application import Service
from tests.harness.command_line import run_command
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres

GONE = "lacks the table `{}`: it was emptied, or another one was put in its place"


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as outside:
        for statement in statements:
            outside.execute(statement.encode())


@pytest.mark.parametrize("table", ["lanes", "rate_hits", "audit"])
async def test_a_table_that_is_gone_is_no_fault_of_the_service(
    tmp_path: Path, postgres_url: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, to callers and in the log, and over when it is back."""
    async with service(tmp_path, postgres_url) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await settled(running)
        caplog.clear()
        do(postgres_url, f"ALTER TABLE {table} RENAME TO elsewhere")
        for number in range(5):
            answer = await post(running, payment(number))
            refused(answer, 503)
            assert GONE.format(table) in answer.json()["detail"]
        answer = await running.call("nobody", "GET", "/health")
        assert answer.status_code == 503 and GONE.format(table) in answer.json()["reason"]
        errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert len(errors) == 1 and GONE.format(table) in errors[0].getMessage()
        assert not any(each.exc_info for each in caplog.records)
        do(postgres_url, f"ALTER TABLE elsewhere RENAME TO {table}")
        assert (await post(running, payment(0))).status_code == 200
        await intact(running)


def test_a_database_that_takes_no_writes_is_told_as_one(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A standby, or what a provider makes of one whose disk is full: it can be reached well enough."""
    with psycopg.connect(postgres_url) as outside:
        name = outside.info.dbname
    others = f"datname = '{name}' AND pid <> pg_backend_pid()"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"

    async def play() -> None:
        async with service(tmp_path, postgres_url) as running:
            assert (await post(running, payment("first"))).status_code == 200
            await settled(running)
            do(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on', end)
            async with asyncio.timeout(20):
                while "takes no writes" not in (answer := await post(running, payment(1))).text:
                    refused(answer, 503)
            assert "target_session_attrs=read-write" in answer.json()["detail"]
            answer = await running.call("nobody", "GET", "/health")
            assert answer.status_code == 503 and "takes no writes" in answer.json()["reason"]
            errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
            assert any("takes no writes" in each for each in errors)
            do(
                postgres_url,
                "SET default_transaction_read_only = off",
                f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
            )
            async with asyncio.timeout(20):
                while (await post(running, payment(1))).status_code != 200:
                    pass
            await intact(running)

    asyncio.run(play())


@pytest.mark.parametrize("table", ["lanes", "runs"])
async def test_nothing_is_recorded_in_a_database_that_is_being_restored(
    tmp_path: Path, postgres_url: str, table: str
) -> None:
    """Rows first, unique indexes last: what is written in between keeps those from being made."""
    async with service(tmp_path, postgres_url) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await settled(running)
        with psycopg.connect(postgres_url) as outside:
            asked = "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef LIKE %s"
            made = [row[0] for row in outside.execute(asked, (table, "CREATE UNIQUE%"))]
        taken = "lane_no" if table == "lanes" else "run_no"
        do(
            postgres_url,
            "UPDATE lanes SET epoch = epoch + 1",
            f"ALTER TABLE {table} ALTER {taken} DROP DEFAULT, DROP CONSTRAINT {table}_pkey",
        )
        for number in range(3):
            answer = await post(running, payment(number))
            refused(answer, 503)
            assert f"lacks the unique index of `{table}` on `{taken}`" in answer.json()["detail"]
        do(postgres_url, *(each for each in made if f"{table}_pkey" in each))
        assert (await post(running, payment(0))).status_code == 200
        await intact(running)


def test_a_column_or_a_right_that_is_gone_is_an_outage_too(store: Database) -> None:
    do(store.url, "ALTER TABLE audit RENAME COLUMN record TO elsewhere")
    with pytest.raises(DatabaseUnavailable, match="lacks the column `record`"), store.guarded():
        store.rows("SELECT record FROM audit")
    do(
        store.url,
        "DROP ROLE IF EXISTS weak",
        "CREATE ROLE weak LOGIN",
        "GRANT SELECT ON counters TO weak",
    )
    weak = Database(store.url.replace("postgres:@", "weak@"))
    with (
        pytest.raises(DatabaseUnavailable, match="permission denied for table audit") as caught,
        weak.guarded(),
    ):
        weak.rows("SELECT 1 FROM audit")
    assert "all rights" in str(caught.value) and "cannot be used" in caught.value.operator_message
    weak.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1 FROM auditt", "SELECT recordy FROM audit", "SELEC 1", "SELECT no_such()"],
)
def test_a_fault_in_a_statement_of_ours_stays_one(store: Database, statement: str) -> None:
    with pytest.raises(peewee.ProgrammingError), store.guarded():
        store.rows(statement)


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ("ALTER TABLE lanes DROP CONSTRAINT lanes_pkey", "`lanes` on `lane_no`"),
        ("DROP INDEX users_email", "`users` on `email`"),
        ("DROP INDEX runs_organisation_id_run_id", "`runs` on `organisation_id`, `run_id`"),
        ("ALTER TABLE audit_first DROP CONSTRAINT audit_pkey", "`audit_first` on `organisation_id`, `chain`"),
        ("DROP FUNCTION governance_guard", "the function `governance_guard`"),
    ],
)
def test_a_database_that_was_not_restored_to_its_end_is_refused(
    store: Database, taken: str, said: str
) -> None:
    """`pg_restore` goes on where it cannot make an index, and says so at the end."""
    store.migrate()
    do(store.url, taken)
    with pytest.raises(DatabaseUnavailable, match="restore it anew") as caught:
        store.migrate()
    assert said in str(caught.value)


def test_a_unique_index_that_holds_more_than_its_key_will_do(store: Database) -> None:
    do(store.url, "DROP INDEX users_email", "CREATE UNIQUE INDEX mine ON users (email) INCLUDE (role)")
    store.migrate()


def test_a_table_of_others_that_inherits_one_of_ours_needs_no_key(store: Database) -> None:
    do(store.url, "CREATE TABLE old_calls () INHERITS (tool_calls)")
    store.migrate()


def test_a_schema_may_have_any_name(postgres_url: str) -> None:
    do(postgres_url, 'CREATE SCHEMA "Our Agents"')
    url = f"{postgres_url}&options=-csearch_path%3D%22Our\\%20Agents%22"
    for _ in range(2):
        with contextlib.closing(Database(url)) as made:
            made.migrate()


def test_an_index_that_is_taken_away_is_told_in_words(store: Database) -> None:
    do(store.url, "ALTER TABLE counters DROP CONSTRAINT counters_pkey")
    with pytest.raises(DatabaseUnavailable, match="lacks a unique index"), store.guarded():
        store.rows("INSERT INTO counters VALUES ('mine', 1) ON CONFLICT (name) DO NOTHING RETURNING 1")


def test_what_a_sequence_numbers_goes_on_behind_what_is_there(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A logical replica, and a restore by tables, have the rows and not the sequences."""
    hit = "INSERT INTO rate_hits ({}bucket, at, expires_at) VALUES ({}'b', 0, 0) RETURNING hit_no"
    store.migrate()
    do(store.url, hit.format("hit_no, ", "7, "), "ALTER SEQUENCE schema_migration_id_seq RESTART")
    store.migrate()
    with psycopg.connect(store.url) as outside:
        assert outside.execute(hit.format("", "").encode()).fetchone() == (8,)
    assert [each.args and each.args[0] for each in caplog.records] == ["schema_migration", "rate_hits"]
    caplog.clear()
    store.migrate()
    assert not caplog.records


END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def test_nothing_is_recorded_in_the_database_of_another_installation(
    tmp_path: Path, postgres_url: str
) -> None:
    """Put in the place of ours under a service that runs: it would decide, sign and clean up there."""
    another = "UPDATE counters SET value = value {} 1 WHERE name = '#installation'"
    noted = "SELECT (SELECT COUNT(*) FROM audit), (SELECT MAX(number) FROM checkpoints)"
    async with Service(tmp_path, [HOLD], live=True, database=postgres_url) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await settled(running)
        do(postgres_url, another.format("+"), END)
        before = None
        for number in range(20):
            answer = await post(running, payment(number))
            refused(answer, 503)
            await asyncio.sleep(0.1)
            with psycopg.connect(postgres_url) as outside:
                found = outside.execute(noted.encode()).fetchone()
            before = before or found
            assert found == before
        answer = await running.call("nobody", "GET", "/health")
        assert answer.status_code == 503 and "that of another installation" in answer.json()["reason"]
        do(postgres_url, another.format("-"))
        async with asyncio.timeout(20):
            while (await post(running, payment(0))).status_code != 200:
                pass
        await intact(running)


@pytest.mark.parametrize("connections", ["old", "new"])
async def test_it_does_so_under_a_service_that_runs(
    tmp_path: Path, postgres_url: str, connections: str
) -> None:
    """As when a logical replica takes over."""
    async with service(tmp_path, postgres_url) as running:
        for number in range(20):
            assert (await post(running, payment(number))).status_code == 200
        await settled(running)
        do(postgres_url, "ALTER SEQUENCE rate_hits_hit_no_seq RESTART")
        if connections == "new":
            do(postgres_url, END)
        async with asyncio.timeout(20):
            while (answer := await post(running, payment("after"))).status_code != 200:
                refused(answer, 503)
        await intact(running)


def test_a_column_of_another_type_stops_nobody_for_long(store: Database) -> None:
    """What a connection has prepared is refused for as long as the connection lasts."""

    def read() -> None:
        with store.guarded():
            store.rows("SELECT value FROM counters")

    for _ in range(10):
        read()
    do(store.url, "ALTER TABLE counters ALTER COLUMN value TYPE numeric")
    with pytest.raises(DatabaseUnavailable, match="gave a column another type"):
        read()
    read()


def test_a_session_that_a_pooler_gives_to_others_is_told_in_words(store: Database) -> None:
    """Such as where PgBouncer is set otherwise while the service runs. What was prepared is missing then, and
    is never something else that another session has prepared under the same name."""

    def write(to: Database) -> None:
        with to.transaction():
            to.rows_changed("DELETE FROM counters WHERE name = ?", ("x",))
            to.insert_many("counters", ("name", "value"), [("x", 1)])

    def names(of: Database) -> set[str]:
        for _ in range(10):
            of.rows("SELECT value FROM counters WHERE name = ?", ("x",))
        write(of)
        return {name for (name,) in of.rows("SELECT name FROM pg_prepared_statements")}

    with contextlib.closing(Database(store.url)) as other:
        first, second = names(store), names(other)
    assert len(first) >= 2 and len(second) >= 2 and first.isdisjoint(second)
    store.peewee.connection().pgconn.exec_(b"DEALLOCATE ALL")
    with pytest.raises(DatabaseUnavailable) as told:
        write(store)
    assert "pool_mode = session" in told.value.operator_message
    write(store)


def test_an_address_with_an_unknown_parameter_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://somebody:secret@/g?hots=x"
    code, _, errors = run_command(capsys, "users", "list", "--database-url", url)
    assert code == 2 and "hots" in errors and "secret" not in errors


def test_a_user_without_rights_is_told_which_are_lacking(postgres: Postgres) -> None:
    """In an empty database, and in one that another owner restored."""
    for template, words in (("template1", "for schema public"), (postgres.migrated, "for table")):
        url = postgres.create(template)
        do(
            url,
            "REVOKE CREATE ON SCHEMA public FROM public",
            "DROP ROLE IF EXISTS weak",
            "CREATE ROLE weak LOGIN",
        )
        weak = url.replace("postgres:@", "weak@")
        with contextlib.closing(Database(weak)) as store, pytest.raises(DatabaseUnavailable) as caught:
            store.migrate()
        said = caught.value.operator_message
        assert words in said and "all rights" in said
        postgres.drop(url)


def test_a_database_of_another_program_is_refused_as_it_is(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    do(postgres_url, "CREATE TABLE spatial_ref_sys (id int)", "CREATE TABLE users (id int)")
    code, _, errors = run_command(capsys, "users", "list", "--database-url", postgres_url)
    assert code == 2 and "another program, which has a table `users`" in errors
    with psycopg.connect(postgres_url) as outside:
        found = outside.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert sorted(found) == [("spatial_ref_sys",), ("users",)]
    do(postgres_url, "DROP TABLE users")
    code, _, errors = run_command(capsys, "organisations", "list", "--database-url", postgres_url)
    assert code == 2 and "has no tables of the service; start the service on it once" in errors
    with contextlib.closing(Database(postgres_url)) as store:
        store.migrate()
    code, output, errors = run_command(capsys, "organisations", "list", "--database-url", postgres_url)
    assert code == 0 and "another program" not in output + errors


def test_no_tables_are_made_before_those_that_are_there(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schema that is called as the user is comes first: services that run would find what is made there."""
    settings = load({}, data_dir=str(tmp_path), database_url=postgres_url)
    bootstrap.prepare(settings)
    do(postgres_url, "CREATE SCHEMA postgres")
    (tmp_path / "audit-key").touch()
    for _ in range(2):  # with what says that there was a database, and without
        with pytest.raises(
            DatabaseUnavailable, match=r'with `ALTER ROLE "postgres" SET search_path = "public"`'
        ):
            bootstrap.prepare(settings)
        (tmp_path / "audit-key").unlink(missing_ok=True)
    code, _, errors = run_command(capsys, "users", "list", "--database-url", postgres_url)
    assert code == 2 and "are in the schema `public`" in errors
    assert made(postgres_url, "postgres") == 0
    do(postgres_url, "DROP SCHEMA postgres")
    assert run_command(capsys, "users", "list", "--database-url", postgres_url)[0] == 0


def test_an_empty_database_stays_empty_where_there_was_one(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "audit-key").touch()
    with pytest.raises(SettingsError, match="the PostgreSQL database is empty, but"):
        bootstrap.prepare(load({}, data_dir=str(tmp_path), database_url=postgres_url))
    assert made(postgres_url, "public") == 0


def test_how_far_a_lost_database_was_signed_says_that_there_was_one(
    tmp_path: Path, postgres_url: str
) -> None:
    """The key that a setting names may be there before a first start; the mark is not."""
    (tmp_path / "data").mkdir()
    settings = load(
        {"GOVERNANCE_AUDIT_KEY_FILE": str(tmp_path / "key")},
        data_dir=str(tmp_path / "data"),
        database_url=postgres_url,
    )
    mark = AuditMark(settings)
    mark.path.write_text('{"at": "2026-01-31T09:30:00Z", "chains": {}, "database": ""}')
    with pytest.raises(SettingsError, match=r"is empty, but `.*audit-mark` is there.* move `.*` away"):
        bootstrap.prepare(settings)
    assert made(postgres_url, "public") == 0
    mark.path.write_text('{"at": "2026-01-31T09:30:00Z", "chains": {}, "database": "governance.sqlite"}')
    assert bootstrap.prepare(settings).made_key


def made(url: str, schema: str) -> int:
    """How many tables are there."""
    with psycopg.connect(url) as outside:
        found = outside.execute("SELECT COUNT(*) FROM pg_tables WHERE schemaname = %s", (schema,)).fetchone()
    assert found is not None
    return int(found[0])
