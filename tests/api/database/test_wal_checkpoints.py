"""The log of SQLite is copied by a thread of its own while commits go on, and never without bound."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from api.clock import random_ids, system_clock
from api.database.connection import Database
from api.database.sqlite import wal_checkpoints
from api.database.sqlite.wal_checkpoints import FileGrowth
from api.database.transaction import Transaction
from api.database.writer import Writer
from tests.harness.sql_archive import opened


def size_of_the_log(store: Database) -> int:
    """Bytes. INVARIANT: without opening the file: to close it again would take SQLite's locks away."""
    return Path(f"{store.path}-wal").stat().st_size


def write(store: Database, rows: int) -> None:
    with store.transaction():
        store.insert_many(
            "rate_hits", ("bucket", "at", "expires_at"), [("b" * 500, 0.0, 0.0) for _ in range(rows)]
        )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(wal_checkpoints, "PAGES", 100)
    return opened(f"sqlite:///{tmp_path}/governance.db")


def test_the_log_is_copied_and_begun_anew_while_commits_go_on(store: Database) -> None:
    """Left to SQLite it would hold all that is written, up to 16 MB."""
    size = 0
    while size < 16 * 10**6:
        write(store, 200)
        time.sleep(0.01)
        size = store.path.stat().st_size
        if size > 5 * 10**6 and size_of_the_log(store) < size / 2:
            break
    else:
        pytest.fail("the log was never begun anew")
    store.close()


def test_a_reader_that_does_not_end_is_told_of(
    store: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a shell in which somebody left a transaction open: the log would fill the disk unseen."""
    monkeypatch.setattr(wal_checkpoints, "PAGES", 10**9)
    monkeypatch.setattr(wal_checkpoints, "LONG", 2**20)
    for _ in range(2):
        with contextlib.closing(sqlite3.connect(store.path)) as reader:
            caplog.clear()
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM rate_hits").fetchone()
            for _ in range(3):
                write(store, 2_000)
                store.checkpoints._copy()
            assert caplog.text.count("does not end its transaction: end that program") == 1
        store.checkpoints._copy()
    caplog.clear()
    for _ in range(3):
        write(store, 2_000)
        store.checkpoints._copy()
    assert caplog.text == ""
    store.close()


def test_nothing_is_copied_for_a_commit_now_and_then(store: Database) -> None:
    for _ in range(3):
        write(store, 1)
    assert store.checkpoints._thread is None
    store.close()


def test_the_system_need_not_keep_what_the_file_has_grown_by(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_checkpoints, "PAGES", 10**9)
    dropped: list[tuple[int, int]] = []

    def advised(file: int, start: int, length: int, advice: int) -> None:
        assert os.path.samestat(os.fstat(file), store.path.stat())
        assert advice == os.POSIX_FADV_DONTNEED
        dropped.append((start, start + length))

    monkeypatch.setattr(os, "posix_fadvise", advised)
    sizes = []
    for _ in range(3):
        write(store, 1000)
        store.checkpoints._copy()
        sizes.append(store.path.stat().st_size)
    store.checkpoints._copy()
    assert sizes == sorted(set(sizes))
    assert dropped == [(sizes[0], sizes[1]), (sizes[1], sizes[2])]  # what was there before stays
    store.close()


def test_the_locks_stay_while_the_file_is_looked_at(store: Database) -> None:
    """Whoever could switch the log off would have the file for himself."""
    code = """if True:
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], timeout=0)
        try:
            print(connection.execute("PRAGMA journal_mode = delete").fetchone()[0])
        except sqlite3.OperationalError as error:
            print(error)
    """

    def taken_over() -> str:
        done = subprocess.run([sys.executable, "-c", code, store.path], capture_output=True, text=True)
        return done.stdout.strip()

    write(store, 200)
    store.checkpoints._copy()
    assert taken_over() == "database is locked"
    store.close()
    assert taken_over() == "delete"


def test_another_file_in_the_same_place_is_another_one(store: Database, tmp_path: Path) -> None:
    growth = FileGrowth(store.path)
    write(store, 1)
    growth.drop_page_cache()
    before = growth._file or 0
    aside = tmp_path / "aside"
    store.close()
    store.path.rename(aside)
    with pytest.raises(FileNotFoundError):
        growth.drop_page_cache()
    store.path.write_bytes(bytes(100_000))
    growth.drop_page_cache()
    first = os.fstat(growth._file or 0)
    assert os.path.samestat(first, store.path.stat()) and not os.path.samestat(first, aside.stat())
    assert os.path.samestat(os.fstat(before), aside.stat())  # to close it could take locks away


def test_a_copy_that_fails_is_tried_again(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[int] = []
    copy = store.checkpoints._copy

    def once() -> None:
        if not failed:
            failed.append(1)
            raise sqlite3.OperationalError("disk I/O error")
        copy()

    monkeypatch.setattr(store.checkpoints, "_copy", once)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        write(store, 200)
        if failed and store.path.stat().st_size > 2_000_000:
            break
    else:
        pytest.fail("the log was never copied")
    store.close()


def test_a_commit_stands_when_no_thread_can_be_started(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_checkpoints, "PAGES", 1)
    writer = Writer(store, system_clock, random_ids)
    writer.start()
    start, refused = threading.Thread.start, [1, 2]

    def starting(thread: threading.Thread) -> None:
        if thread.name == "store-checkpoints" and refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)

    def job(transaction: Transaction) -> int:
        return transaction.bump("policies")

    assert [writer.write_here(job) for _ in range(2)] == [1, 2]
    assert store.checkpoints._thread is None
    assert writer.write_here(job) == 3
    assert store.checkpoints._thread is not None
    writer.close()
    store.close()


def test_a_database_that_is_gone_is_not_made_anew(store: Database) -> None:
    write(store, 1)
    store.leave()
    for path in store.path.parent.iterdir():
        path.unlink()
    with pytest.raises(sqlite3.OperationalError):
        store.checkpoints._copy()
    assert not store.path.exists()
    store.close()


def test_what_others_write_while_no_connection_is_open_is_no_copy_over_it(store: Database) -> None:
    """As after a fault of the disk, for which each thread has given up its own. Whoever closes the last one
    takes the log away."""
    write(store, 1)
    store.leave()
    with store.guarded():
        assert not Path(f"{store.path}-wal").exists()
    for number in (1, 2):
        with contextlib.closing(sqlite3.connect(store.path)) as other, other:
            other.execute("INSERT INTO rate_hits (bucket, at, expires_at) VALUES ('o', 0, 0)")
        with store.guarded():
            assert store.rows("SELECT COUNT(*) FROM rate_hits WHERE bucket = 'o'") == [(number,)]
        store.leave()
