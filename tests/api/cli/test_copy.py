"""`governance copy`: what it takes along, and what it refuses; see also `tests/system/test_copy.py`."""

from __future__ import annotations

import errno
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.models import OF_LANES, OF_SQLITE, TABLES, Id
from api.database.moving import source, target
from api.database.moving.streams import STREAMS, Stream
from api.database.moving.target import Target
from api.database.sqlite import copied, write_lock
from tests.harness.command_line import DataShell

NOWHERE = "postgresql://somebody:a-password@127.0.0.1:1/none"


def test_every_table_is_taken_along() -> None:
    copied = {stream.table for stream in STREAMS}
    left = {table._meta.table_name for table in TABLES} - copied
    # Made anew at the end, leased by whoever starts there, and what the ids take the place of.
    assert left == {"chains", "lanes", "directory"}
    assert left | {Id._meta.table_name} == {table._meta.table_name for table in OF_LANES + OF_SQLITE}
    for table in TABLES:
        columns = [tuple(stream.columns) for stream in STREAMS if stream.table == table._meta.table_name]
        names = {each.column_name for each in table._meta.sorted_fields}
        assert all(set(each) == names for each in columns)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("sqlite:///other.sqlite", "--to: write `postgresql://"),
        ("other", "--to: write `sqlite"),
        ("postgresql://a:b@host:port/name", "--to: write the port in digits"),
    ],
)
def test_another_target_is_refused(data_shell: DataShell, target: str, message: str) -> None:
    assert message in data_shell.refused("copy", "--to", target, code=2)


def test_a_target_out_of_reach_is_named_without_its_password(data_shell: DataShell) -> None:
    said = data_shell.refused("copy", "--to", NOWHERE)
    assert "127.0.0.1:1/none" in said and "run the same command again" in said
    assert "a-password" not in said


def test_a_source_that_is_none_is_refused(data_shell: DataShell, tmp_path: Path) -> None:
    shell = DataShell(tmp_path / "elsewhere", data_shell.capture)
    assert "there is no database" in shell.refused("copy", "--to", NOWHERE, code=2)
    said = data_shell.refused("copy", "--to", NOWHERE, "--database-url", NOWHERE, code=2)
    assert "pg_dump" in said


def test_it_takes_as_long_as_it_takes_whatever_the_database_is_set_to(postgres_url: str) -> None:
    """Else it would end at the same place each time, and at the last one neither database can be used."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET {name} = '5s'".encode())
    with target.opened(postgres_url) as opened:
        assert opened._rows("SHOW statement_timeout") == opened._rows("SHOW lock_timeout") == [("0",)]
        assert opened._rows("SHOW idle_in_transaction_session_timeout") == [("0",)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM schema_migration WHERE name LIKE '0008%'", "users list"),
        (
            "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2100-01-01')",
            "update this one",
        ),
        ("DROP TABLE schema_migration", "no database of this service"),
    ],
)
def test_another_version_of_the_source_is_refused(data_shell: DataShell, change: str, message: str) -> None:
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute(change)
    database.close()
    assert message in data_shell.refused("copy", "--to", NOWHERE)


def test_nobody_writes_while_it_copies(data_shell: DataShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_lock, "LOCK_SECONDS", 0.1)
    path = data_shell.data / "governance.sqlite"
    with source.opened(path):
        assert "another process holds" in data_shell.refused("keys", "add", "one", code=2)
        assert "another process holds" in data_shell.refused("copy", "--to", NOWHERE)
    assert data_shell.run("keys", "add", "one")[0] == 0


@pytest.mark.postgres
def test_a_target_with_anything_in_it_is_refused(data_shell: DataShell, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE somebodys (n int)")
        said = data_shell.refused("copy", "--to", postgres_url)
        assert "is not empty (it has the table `somebodys`)" in said
        connection.execute("DROP TABLE somebodys")
    assert data_shell.run("copy", "--to", postgres_url)[0] == 0


@pytest.mark.postgres
def test_a_full_disk_interrupts_and_the_copy_goes_on(
    data_shell: DataShell, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Target.put

    def full(self: Target, stream: Any, *rest: Any) -> None:
        if stream.name == "audit":
            raise psycopg.errors.DiskFull("could not extend file: No space left on device")
        put(self, stream, *rest)

    monkeypatch.setattr(Target, "put", full)
    said = data_shell.refused("copy", "--to", postgres_url)
    assert "No space left on device" in said and "it goes on where it was" in said
    monkeypatch.undo()
    code, output, error = data_shell.run("copy", "--to", postgres_url)
    assert code == 0 and "by the copy before" in output, error


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("users", lambda rows: rows[1:], "`users` has 1 rows in place of 2"),
        (
            "audit",
            lambda rows: [*rows[:-1], (*rows[-1][:-1], "0" * 64)],
            "audit log of `default` ends otherwise",
        ),
    ],
)
def test_a_copy_that_is_not_what_the_source_is_says_so_and_is_not_used(
    data_shell: DataShell,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    change: Callable[[Any], Any],
    message: str,
) -> None:
    put = Target.put

    def otherwise(self: Target, stream: Stream, rows: Any, last: int) -> None:
        put(self, stream, change(rows) if stream.name == table else rows, last)

    assert data_shell.run("users", "add", "r@example.com", "--role", "reviewer")[0] == 0
    monkeypatch.setattr(Target, "put", otherwise)
    said = data_shell.refused("copy", "--to", postgres_url)
    assert message in said and "drop the database of --to" in said
    said = data_shell.refused("users", "list", "--database-url", postgres_url, code=2)
    assert "run `governance copy` again" in said


@pytest.mark.postgres
def test_a_text_that_postgresql_does_not_take_is_named(data_shell: DataShell, postgres_url: str) -> None:
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("UPDATE api_keys SET name = 'a' || char(0) || 'b'")
    database.close()
    said = data_shell.refused("copy", "--to", postgres_url)
    assert "does not take a row of `api_keys`" in said


@pytest.mark.postgres
def test_a_bar_shows_how_far_it_is(
    data_shell: DataShell, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, int, int]] = []

    def update(bar: Any, task: Any, *, description: str, completed: int, total: int) -> None:
        shown.append((description, completed, total))

    monkeypatch.setattr("rich.progress.Progress.update", update)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, output, error = data_shell.run("copy", "--to", postgres_url)
    assert code == 0, error
    done = [completed for _, completed, _ in shown]
    assert done == sorted(done) and done[0] == 0 and len(set(done)) > 5
    assert {total for _, _, total in shown} == {done[-1]} and f"{done[-1]} rows" in output
    of_the_log = [completed for what, completed, _ in shown if what == "audit"]
    assert of_the_log[0] < of_the_log[-1] and shown[-1][0] == "verifying"


@pytest.mark.postgres
def test_two_copies_at_once_are_one(data_shell: DataShell, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (0xC09E,))
        assert "is under way" in data_shell.refused("copy", "--to", postgres_url)


@pytest.mark.postgres
def test_numbers_go_on_behind_those_that_were_copied(data_shell: DataShell, postgres_url: str) -> None:
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("INSERT INTO rate_hits (hit_no, bucket, at, expires_at) VALUES (41, 'b', 1, 2)")
    database.close()
    assert data_shell.run("copy", "--to", postgres_url)[0] == 0
    with psycopg.connect(postgres_url) as connection:
        made = connection.execute(
            "INSERT INTO rate_hits (bucket, at, expires_at) VALUES ('c', 1, 2) RETURNING hit_no"
        )
        assert made.fetchone() == (42,)


@pytest.mark.postgres
def test_a_backup_can_be_copied_too(data_shell: DataShell, postgres_url: str, tmp_path: Path) -> None:
    backup = tmp_path / "copy.sqlite"
    assert data_shell.run("backup", str(backup))[0] == 0
    words = "copy", "--to", postgres_url, "--database-url", f"sqlite:///{backup}"
    code, output, error = data_shell.run(*words)
    assert code == 0 and "copied and verified" in output, error


def test_the_old_database_is_not_used_by_mistake(data_shell: DataShell, postgres_url: str) -> None:
    data_shell.run("keys", "add", "one")
    assert data_shell.run("copy", "--to", postgres_url)[0] == 0
    note = data_shell.data / "governance.sqlite.copied"
    assert note.stat().st_mode & 0o077 == 0
    for words in (("keys", "list"), ("audit", "verify"), ("serve", "--port", "0")):
        said = data_shell.refused(*words, code=2)
        assert "was copied to the PostgreSQL database" in said and str(note) in said, words
    assert data_shell.run("keys", "list", "--database-url", postgres_url)[0] == 0
    note.unlink()
    assert data_shell.run("keys", "list")[0] == 0


@pytest.mark.postgres
def test_the_old_database_is_marked_before_anybody_may_write_there(
    data_shell: DataShell, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor may a kill at the end leave a whole copy beside an old database that is not marked."""
    data_shell.run("keys", "add", "one")
    place, finish, held = data_shell.data / "governance.sqlite", Target.finish, []

    def finished(target: Target, tips: Any) -> None:
        with pytest.raises(DatabaseUnavailable), write_lock.FileLock(place).held(wait=False):
            pass
        held.append(copied.note_of(place).exists())
        finish(target, tips)

    monkeypatch.setattr(Target, "finish", finished)
    assert data_shell.run("copy", "--to", postgres_url)[0] == 0
    assert held == [True]


def test_who_cannot_open_any_more_files_is_told_of_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    copied.refuse_copied(tmp_path / "governance.sqlite")


@pytest.mark.parametrize("waits", [True, False])
def test_nobody_writes_in_a_database_that_was_copied_since_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A key that is revoked in it then would still be good in the new one."""
    sleep, waiting = time.sleep, threading.Event()

    def slept(seconds: float) -> None:
        waiting.set()
        sleep(seconds)

    with closing(Database(f"sqlite:///{tmp_path / 'governance.sqlite'}")) as store:
        store.migrate()

        def write() -> None:
            with store.transaction():
                store.change("DELETE FROM counters")

        with ThreadPoolExecutor(1) as threads:
            with write_lock.FileLock(store.path).held():
                if waits:
                    monkeypatch.setattr(write_lock.time, "sleep", slept)
                    written = threads.submit(write)
                    assert waiting.wait(20)
                copied.note(store.path, "db.example.com", "today")
            with pytest.raises(DatabaseUnavailable, match="was copied to"):
                (written if waits else threads.submit(write)).result()
        copied.note_of(store.path).unlink()
        write()
