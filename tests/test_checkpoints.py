"""The log of SQLite is copied by a thread of its own while commits go on, and never without bound."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from api.clock import random_ids, system_clock
from api.store import checkpoints
from api.store.database import Database
from api.store.writer import Transaction, Writer
from tests.support_sql_archive import opened


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
    monkeypatch.setattr(checkpoints, "PAGES", 100)
    return opened(f"sqlite:///{tmp_path}/governance.db")


def test_the_log_is_copied_and_begun_anew_while_commits_go_on(store: Database) -> None:
    """Left to SQLite it would hold all that is written, up to 64 MB."""
    size = 0
    while size < 50 * 10**6:
        write(store, 200)
        time.sleep(0.01)
        size = store.path.stat().st_size
        if size > 5 * 10**6 and size_of_the_log(store) < size / 2:
            break
    else:
        pytest.fail("the log was never begun anew")
    store.close()


def test_nothing_is_copied_for_a_commit_now_and_then(store: Database) -> None:
    for _ in range(3):
        write(store, 1)
    assert store.checkpoints._thread is None
    store.close()


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
    monkeypatch.setattr(checkpoints, "PAGES", 1)
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
        return transaction.bump("halts")

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
