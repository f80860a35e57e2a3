"""Drivers' errors in our words."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import tempfile
from pathlib import Path

import peewee
import psycopg
import pytest
from psycopg.pq import DiagnosticField as Field

from api.database.errors import DatabaseFull, translated
from api.database.lacking import lacking


def test_a_failed_write_is_told_with_what_sqlite_calls_it() -> None:
    """It says which of reading, writing and flushing has failed."""
    first = sqlite3.OperationalError("disk I/O error")
    first.sqlite_errorname = "SQLITE_IOERR_WRITE"
    for error in (first, peewee.OperationalError(first, *first.args)):
        told = translated(error, "sqlite:///g.sqlite").operator_message
        assert "cannot be used: disk I/O error (SQLITE_IOERR_WRITE)" in told


def test_a_lock_of_another_program_is_told_with_what_to_do() -> None:
    told = translated(sqlite3.OperationalError("database is locked"), "sqlite:///g.sqlite").operator_message
    assert "database is locked; another program writes to it" in told


def test_a_file_beside_the_database_that_others_own_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a command that was run as root; SQLite does not say which of its files it cannot open."""
    path, access = tmp_path / "g.sqlite", os.access
    for each in (path, path.with_name("g.sqlite-shm")):
        each.touch()

    def allowed(each: str, how: int) -> bool:
        return access(each, how) and (how == os.F_OK or each == str(path))

    monkeypatch.setattr(os, "access", allowed)
    for said in ("unable to open database file", "attempt to write a readonly database"):
        told = translated(sqlite3.OperationalError(said), f"sqlite:///{path}").operator_message
        assert told.endswith(f"read and write `{path}-shm`: give it to the user of the service, mode 0600")


def test_a_file_system_that_takes_no_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fault of the disk; whoever owns the files has nothing to do with it."""

    def no_file(**options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    monkeypatch.setattr(os, "access", lambda _, how: how == os.F_OK)
    error = sqlite3.OperationalError("attempt to write a readonly database")
    told = translated(error, f"sqlite:///{tmp_path / 'g.sqlite'}").operator_message
    assert "readonly database; its file system has become read-only" in told


def test_a_file_that_may_grow_no_larger_is_told_as_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls the limit of `ulimit -f` a fault of the disk, and does not say which file has met it."""
    path = tmp_path / "g.sqlite"
    path.touch()
    path.with_name("g.sqlite-wal").write_bytes(bytes(500_000))
    error = sqlite3.OperationalError("disk I/O error")
    assert not isinstance(translated(error, f"sqlite:///{path}"), DatabaseFull)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500_000, resource.RLIM_INFINITY))
    told = translated(error, f"sqlite:///{path}")
    assert isinstance(told, DatabaseFull)
    assert told.operator_message.startswith(
        f"`{path}-wal` is as large as this process may make a file, 500000"
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5_000_000, resource.RLIM_INFINITY))
    told = translated(error, f"sqlite:///{path}")
    assert not isinstance(told, DatabaseFull)
    assert told.operator_message.endswith(
        "whether 5000000 bytes are too few for a file (`LimitFSIZE=`, `ulimit -f`)"
    )


def test_a_quota_that_is_used_up_is_told_as_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it a fault of the disk, and `df` shows room."""
    error = sqlite3.OperationalError("disk I/O error")
    refused = OSError(errno.EIO, os.strerror(errno.EIO))

    def no_file(**options: object) -> None:
        raise refused

    monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    assert not isinstance(translated(error, f"sqlite:///{tmp_path}/g.sqlite"), DatabaseFull)
    refused = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    told = translated(error, f"sqlite:///{tmp_path}/g.sqlite")
    assert isinstance(told, DatabaseFull) and "quota" in str(told)
    assert "which `quota` shows and `df` does not" in told.operator_message


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("database or disk is full", True),
        ('could not extend file "base/1/2": No space left on device', True),
        ('could not extend file "base/1/2": Disk quota exceeded', True),
        ('could not translate host name "db-full-1" to address', False),
        ('password authentication failed for user "fulltime"', False),
    ],
)
def test_only_a_full_disk_is_told_as_one(text: str, full: bool) -> None:
    assert isinstance(translated(peewee.OperationalError(text)), DatabaseFull) == full


@pytest.mark.parametrize(
    "said",
    [
        'could not extend file "base/1/2": wrote only 4096 of 8192 bytes at block 2',
        "konnte Datei »base/1/2« nicht erweitern: Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    ],
)
def test_a_full_disk_is_told_by_what_postgresql_calls_it_in_any_language(said: str) -> None:
    """A page of which half has found room is told in other words, and `lc_messages` may be any."""
    error = psycopg.errors.DiskFull(said)
    assert isinstance(translated(error), DatabaseFull)
    wrapped = peewee.OperationalError(said)
    wrapped.orig = error
    assert isinstance(translated(wrapped), DatabaseFull)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (psycopg.errors.UndefinedColumn("Spalte t.labels existiert nicht"), "lacks the column `labels`"),
        (psycopg.errors.UndefinedColumn("la colonne « labels » n'existe pas"), "lacks the column `labels`"),
        (
            psycopg.errors.UndefinedColumn("Spalte »labels« von Relation »runs« existiert nicht"),
            "lacks the column `labels`",
        ),
        (psycopg.errors.UndefinedColumn('关系 "runs" 的 "labels" 字段不存在'), "lacks the column `labels`"),
        (psycopg.errors.UndefinedColumn('关系 "runs" 的 "labelz" 字段不存在'), None),
        (psycopg.errors.UndefinedColumn("no existe la columna «labelz»"), None),
        (
            psycopg.errors.NotNullViolation(
                "NULL-Wert in Spalte »wer« von Relation »runs« verletzt Not-Null-Constraint",
                info={Field.TABLE_NAME: b"runs", Field.COLUMN_NAME: b"wer"},
            ),
            "refuses what is written",
        ),
        (
            psycopg.errors.NotNullViolation(
                "NULL-Wert in Spalte »status«", info={Field.TABLE_NAME: b"runs", Field.COLUMN_NAME: b"status"}
            ),
            None,
        ),
        (
            psycopg.errors.CheckViolation(
                "keine Partition von Relation »events« für die Zeile gefunden",
                info={Field.TABLE_NAME: b"events"},
            ),
            "lacks the part of `events`",
        ),
        (
            psycopg.errors.CheckViolation(
                "neue Zeile für Relation »events« verletzt Check-Constraint »mine«",
                info={Field.TABLE_NAME: b"events", Field.CONSTRAINT_NAME: b"mine"},
            ),
            "refuses what is written",
        ),
        (
            psycopg.errors.FeatureNotSupported(
                "gecachter Plan darf den Ergebnistyp nicht ändern",
                info={Field.SOURCE_FUNCTION: b"RevalidateCachedQuery"},
            ),
            "gave a column another type",
        ),
        (psycopg.errors.FeatureNotSupported("nicht unterstützt"), None),
        (
            psycopg.errors.StringDataRightTruncation("Wert zu lang für Typ character varying(10)"),
            "gave a column another type",
        ),
        (psycopg.errors.NumericValueOutOfRange("bigint ist außerhalb des gültigen Bereichs"), None),
    ],
)
def test_what_a_database_lacks_or_refuses_is_told_whatever_language_it_speaks(
    error: psycopg.Error, told: str | None
) -> None:
    made = lacking(error, "postgresql://u@h/n")
    assert (told in str(made)) if told else made is None
