"""A database that is written over while several processes have it open."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.database.sqlite import written_over
from api.database.sqlite.files import SqliteFile, beside_database, identity
from api.database.sqlite.written_over import Files, WrittenOver


def files_of(path: Path) -> Files:
    database, index = identity(path), identity(beside_database(path)[1])
    assert database is not None and index is not None
    return *database, *index


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A database, of which a copy was made, and its log."""
    path = tmp_path / "x.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("CREATE TABLE numbers (number)")
        shutil.copyfile(path, tmp_path / "copy.sqlite")
        yield path


def write_over(path: Path) -> bool:
    """Just after the log began anew; whether a process that writes has noticed."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        watches = WrittenOver(path, beside_database(path)[1])
        assert not watches(files_of(path))
        writer.execute("PRAGMA wal_checkpoint(RESTART)")
        writer.execute("INSERT INTO numbers VALUES (1)")  # which begins the log anew
        watches.committed()
        shutil.copyfile(path.with_name("copy.sqlite"), path)
        return watches(files_of(path))


def test_who_has_not_looked_since_the_log_began_anew_is_told(path: Path) -> None:
    """To it the copy of the log and what lies there now look alike; another process knows better."""
    unaware = WrittenOver(path, beside_database(path)[1])
    assert not unaware(files_of(path))
    assert write_over(path)
    assert unaware(files_of(path))


def test_another_service_finds_it_out_though_it_was_told_already(path: Path) -> None:
    """As a command that has the database open."""
    command, service = (WrittenOver(path, beside_database(path)[1]) for _ in range(2))
    command._service = b"else"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)):
        assert not command(files_of(path)) and not service(files_of(path))
        shutil.copyfile(path.with_name("copy.sqlite"), path)
        assert service(files_of(path)) and command(files_of(path))


def test_another_start_looks_for_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time of the file may have been set. In a container it has the number of the one before."""
    assert write_over(path)
    monkeypatch.setattr(multiprocessing.current_process(), "authkey", b"of another start")
    assert not WrittenOver(path, beside_database(path)[1])(files_of(path))


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_who_begins_goes_on_without_the_index(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Which the last process took away just now, or which is another user's, as SQLite tells in its way."""
    beginning = WrittenOver(path, beside_database(path)[1])
    files = files_of(path)

    def refuse(*_: object) -> int:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        assert not beginning(files)
    assert not beginning(files)


def test_the_processes_of_a_service_are_one() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.apply(written_over._service) == written_over._service()


def test_a_connection_that_was_not_used_since_is_not_closed(path: Path) -> None:
    """To close the last one would copy the log into what lies there now."""
    file = SqliteFile(path, lambda: None)
    file.made = True
    file.connect()
    connection = file.connection()
    file.check()
    assert write_over(path)
    file.close()
    assert connection.kept
    connection.execute("SELECT 1")


@pytest.mark.parametrize("made", [True, False])
def test_a_connection_of_a_thread_that_ends_is_not_closed(tmp_path: Path, made: bool) -> None:
    """Also not in a process that is only about to begin: it may be the last one that has the log open."""
    path = tmp_path / "x.sqlite"
    file = SqliteFile(path, lambda: None)
    file.made = made
    opened, ended = threading.Event(), threading.Event()

    def read() -> None:
        file.execute_sql("SELECT COUNT(*) FROM sqlite_master").fetchone()
        opened.set()
        ended.wait()

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("CREATE TABLE numbers (number)")
        shutil.copyfile(path, tmp_path / "copy.sqlite")
        thread = threading.Thread(target=read)
        thread.start()
        opened.wait()
        assert write_over(path)
    ended.set()
    thread.join()
    gc.collect()
    assert beside_database(path)[0].exists(), "the log was copied into what is another database now"
    assert path.read_bytes() == (tmp_path / "copy.sqlite").read_bytes()
