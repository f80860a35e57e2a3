"""Files that somebody takes away, overwrites or damages under a running service."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from tests.harness import forked
from tests.harness.application import event
from tests.harness.nodes import CLEAN, KEY, Process, serve

AGENT = {"X-API-Key": KEY}
TIME = len("2026-01-31 09:30:00,000 ")
"""Characters of the time at the start of a log line."""


def send(http: httpx.Client, number: int) -> int:
    note = event(number, "custom.note", "2026-01-31T09:30:00Z", {"runId": f"run-{number}"})
    return http.post("/v1/events", headers=AGENT, json=note).status_code


def governance(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return forked.run(words, folder, CLEAN, text)


def events_of(database: Path) -> set[int]:
    with sqlite3.connect(database) as outside:
        found = {
            int(name.removeprefix("event-")) for (name,) in outside.execute("SELECT event_id FROM events")
        }
        assert outside.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    outside.close()
    return found


def without_log(database: Path) -> None:
    """As somebody tidies up, or restores a database while nothing runs."""
    for path in database.parent.glob("governance.sqlite-*"):
        path.unlink()


def until_signed(mark: Path, records: int) -> None:
    """As many, and said in the file."""
    deadline = time.monotonic() + 60
    while not mark.exists() or json.loads(mark.read_bytes())["chains"]["default"]["0"][0] < records:
        assert time.monotonic() < deadline, "they are not signed"
        time.sleep(0.05)


def until_told(service: Process, what: str) -> None:
    """The log is written beside, and a killed service does not finish."""
    deadline = time.monotonic() + 60
    while what not in service.errors and time.monotonic() < deadline:
        time.sleep(0.05)


def until_ill(http: httpx.Client) -> str:
    """The reason that `/health` comes to give."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = http.get("/health")
        if answer.status_code == 503:
            return str(answer.json()["reason"])
        time.sleep(0.1)
    raise AssertionError("it is well all the same")


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_when_the_log_is_taken_away(tmp_path: Path, replaced: bool, workers: int) -> None:
    database = tmp_path / "data" / "governance.sqlite"
    wal = Path(f"{database}-wal")
    with serve(tmp_path, "--workers", str(workers), GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(20)] == [200] * 20
        if replaced:
            shutil.copy(database, tmp_path / "copy")
            (tmp_path / "copy").replace(wal)
        else:
            wal.unlink()
        known = set(range(20)) | {number for number in range(20, 40) if send(http, number) == 200}
        assert "the log of the database was taken away" in until_ill(http)
        assert send(http, 40) == 503
        until_told(service, "was removed or replaced")
        service.kill()
        errors = service.errors
        assert "was removed or replaced while the service ran" in errors and "Traceback" not in errors
    without_log(database)
    assert events_of(database) >= known


@pytest.mark.parametrize("workers", [1, 2])
def test_a_backup_moved_over_a_running_database_takes_nothing(tmp_path: Path, workers: int) -> None:
    """The log of before lies there: what is acknowledged would go into neither."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, "--workers", str(workers), GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        until_serving(database, workers)
        assert [send(http, number) for number in range(10)] == [200] * 10
        assert governance(tmp_path, "backup", "copy.sqlite").returncode == 0
        assert [send(http, number) for number in range(10, 15)] == [200] * 5
        until_signed(tmp_path / "data" / "audit-mark", 15)
        (tmp_path / "data").joinpath("aside").hardlink_to(database)
        (tmp_path / "copy.sqlite").replace(database)
        assert [send(http, number) for number in range(15, 25)] == [503] * 10
        assert until_ill(http) == "the database file was replaced; start the service again"
        done = governance(tmp_path, "users", "list")
        assert done.returncode != 0 and "belong to the file that lay there before" in done.stderr
        assert service.stop() == 0
        errors = service.errors
        assert "was replaced while the service ran" in errors and "Traceback" not in errors, errors
        refused = governance(tmp_path, "serve", "--port", "0")
        assert refused.returncode == 2 and f"delete `{database.relative_to(tmp_path)}-wal`" in refused.stderr
        without_log(database)
        assert events_of(tmp_path / "data" / "aside") >= set(range(15)), "its log was not copied into it"
        assert events_of(database) == set(range(10))


def test_an_older_database_in_place_of_a_running_one_is_not_used(tmp_path: Path) -> None:
    """All its files at once, between two looks: what was halted since would go on, and the record be
    invalid for good."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(5)] == [200] * 5
        assert governance(tmp_path, "backup", "older.sqlite").returncode == 0
        assert [send(http, number) for number in range(5, 10)] == [200] * 5
        until_signed(tmp_path / "data" / "audit-mark", 10)
        without_log(database)
        (tmp_path / "older.sqlite").replace(database)
        assert [send(http, number) for number in range(10, 15)] == [503] * 5
        assert until_ill(http) == "the database that lies there now is not whole"
        done = governance(tmp_path, "audit", "accept-restored")
        assert done.returncode == 1 and "a service runs on this database; stop it" in done.stderr
        assert service.stop() == 0
        assert "is behind" in service.errors and "accept-restored" in service.errors
    assert governance(tmp_path, "audit", "accept-restored").returncode == 0
    with serve(tmp_path) as service:
        assert send(service.ready().http, 10) == 200
        assert service.stop() == 0
    assert governance(tmp_path, "audit", "verify").returncode == 0
    assert events_of(database) == {*range(5), 10}


def test_a_database_whose_time_is_set_loses_nothing(tmp_path: Path) -> None:
    """That it was written over cannot be ruled out; what to do is said for both."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(10)] == [200] * 10
        os.utime(database)
        assert send(http, 10) == 503
        assert service.stop() == 0
        assert "Was only its time set, leave `data/governance.sqlite-wal` where it is" in service.errors
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        assert send(service.ready().http, 11) == 200
        service.kill()
    assert events_of(database) == {*range(10), 11}


@pytest.mark.parametrize(("what", "workers"), [("a backup", 1), ("a backup", 2), ("an old copy", 1)])
def test_a_copy_over_a_running_database_is_noticed(tmp_path: Path, workers: int, what: str) -> None:
    """The file stays the same to the system, and the log of before lies beside what is in it now."""
    database = tmp_path / "data" / "governance.sqlite"
    wal = Path(f"{database}-wal")
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        service.ready()
        service.stop()
    shutil.copy(database, tmp_path / "copy.sqlite")
    with serve(tmp_path, "--workers", str(workers), GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        until_serving(database, workers)
        assert [send(http, number) for number in range(10)] == [200] * 10
        if what == "a backup":
            (tmp_path / "copy.sqlite").unlink()
            assert governance(tmp_path, "backup", "copy.sqlite").returncode == 0
        else:
            with contextlib.closing(sqlite3.connect(database)) as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)")
        before = database.stat().st_ino
        assert send(http, 10) == 200
        shutil.copyfile(tmp_path / "copy.sqlite", database)
        assert database.stat().st_ino == before
        assert [send(http, number) for number in range(11, 20)] == [503] * 9
        assert until_ill(http) == "the database file was written over; start the service again"
        assert service.stop() == 0
        errors = service.errors
        assert "was written over while the service ran, such as by `cp`" in errors, errors
        told = Counter(line[TIME:] for line in errors.splitlines() if "was written over" in line)
        assert max(told.values()) <= workers, "a task of a process says it once"
        assert "Traceback" not in errors
        assert wal.exists(), "it was copied into what is another database now"
    if what == "a backup":
        refused = governance(tmp_path, "serve", "--port", "0")
        assert refused.returncode == 2 and "delete `" in refused.stderr
    without_log(database)
    shutil.copyfile(tmp_path / "copy.sqlite", database)
    assert governance(tmp_path, "audit", "accept-restored").returncode == 0
    assert events_of(database) == (set(range(10)) if what == "a backup" else set())


def test_a_copy_over_a_running_database_stays_whole_where_its_log_is_deleted_at_once(tmp_path: Path) -> None:
    """As one restores while nothing runs. What the log held is of the database of before."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(10)] == [200] * 10
        assert governance(tmp_path, "backup", "copy.sqlite").returncode == 0
        assert [send(http, number) for number in range(10, 40)] == [200] * 30
        shutil.copyfile(tmp_path / "copy.sqlite", database)
        without_log(database)
        assert [send(http, number) for number in range(40, 50)] == [503] * 10
        assert until_ill(http) == "the database file was written over; start the service again"
        assert service.stop() == 0
    assert database.read_bytes() == (tmp_path / "copy.sqlite").read_bytes()


def test_nothing_is_lost_when_the_index_of_the_log_is_taken_away(tmp_path: Path) -> None:
    """A command makes another one, and writes by it; the service must not go by its own any more."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(20)] == [200] * 20
        Path(f"{database}-shm").unlink()
        for number in range(3):
            words = ("users", "add", f"u{number}@example.com", "--role", "viewer", "--password-stdin")
            done = governance(tmp_path, *words, text="a passphrase of many words")
            assert done.returncode == 0, done.stderr
            assert send(http, 20) == 503
        assert until_ill(http) == "the index of the database's log was taken away; start the service again"
        assert service.stop() == 0
        errors = service.errors
        assert "leave `" in errors and "Traceback" not in errors, errors
    assert events_of(database) >= set(range(20))
    listed = governance(tmp_path, "users", "list").stdout
    assert all(f"u{number}@example.com" in listed for number in range(3)), listed
    assert governance(tmp_path, "audit", "verify").returncode == 0


def test_the_log_of_a_database_that_is_a_link_is_watched(tmp_path: Path) -> None:
    """It lies beside the file, not beside the link."""
    real = tmp_path / "disk" / "x.sqlite"
    real.parent.mkdir()
    (tmp_path / "data").mkdir(mode=0o700)
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        assert service.ready().stop() == 0
    (tmp_path / "data" / "governance.sqlite").rename(real)
    (tmp_path / "data" / "governance.sqlite").symlink_to(real)
    with serve(tmp_path) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(5)] == [200] * 5
        done = governance(tmp_path, "backup", "disk/x.sqlite-wal", "--force")
        assert done.returncode == 2 and "is a file of the service itself" in done.stderr
        Path(f"{real}-wal").unlink()
        assert send(http, 5) == 503
        assert until_ill(http) == "the log of the database was taken away; start the service again"
        service.kill()
    assert events_of(real) >= set(range(5))


def until_serving(database: Path, workers: int) -> None:
    """One that is still starting would refuse to."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as outside:
            if outside.execute("SELECT COUNT(*) FROM nodes").fetchone() == (workers,):
                return
        assert time.monotonic() < deadline, "the workers did not start"
        time.sleep(0.05)


def ruin(database: Path, table: str, how: bytes) -> None:
    """Overwrite the root page of a table in place; to the file system nobody has, as where a disk is bad."""
    before = database.stat()
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as outside:
        (page,) = outside.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = outside.execute("PRAGMA page_size").fetchone()
    outside.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(how * size)
    os.utime(database, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_damage_is_told_once_and_never_as_a_fault_of_ours(tmp_path: Path) -> None:
    """Also where it shows only while rows are fetched."""
    database = tmp_path / "data" / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert send(http, 1) == 200
        assert service.stop() == 0
    shutil.copy(database, tmp_path / "whole")
    with serve(tmp_path) as service:
        http = service.ready().http
        service.freeze()
        for table in ("audit", "events", "tool_calls", "runs"):
            ruin(database, table, b"\xff")
        service.thaw()
        statuses = {send(http, number) for number in range(2, 12)}
        assert until_ill(http) == "the database is damaged"
        assert statuses <= {200, 503} and send(http, 20) == 503
        service.kill()
        errors = service.errors
        assert "Traceback" not in errors, errors
        assert errors.count("a copy that `governance backup FILE` made") <= 3, errors
    Path(f"{database}-wal").unlink(missing_ok=True)
    Path(f"{database}-shm").unlink(missing_ok=True)
    for words in (("audit", "verify"), ("serve",)):
        shutil.copy(tmp_path / "whole", database)
        ruin(database, "audit", b"\xff")
        done = governance(tmp_path, *words)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
        assert "is no database or is damaged" in done.stderr


def test_a_database_that_comes_back_in_parts_is_not_used_before_it_is_whole(tmp_path: Path) -> None:
    """As `git stash` takes it away and brings it back: other files, one after the other."""
    data, away = tmp_path / "data", tmp_path / "away"
    database = data / "governance.sqlite"
    with serve(tmp_path, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert [send(http, number) for number in range(10)] == [200] * 10
        until_signed(data / "audit-mark", 10)
        away.mkdir()
        parts = [database, Path(f"{database}-shm"), Path(f"{database}-wal")]
        for part in parts:
            shutil.copy(part, away)
        for part in parts:
            part.unlink()
        assert send(http, 10) == 503
        for part in parts:
            assert send(http, 10) == 503
            (away / part.name).replace(part)
        assert send(http, 10) == 200
        assert service.stop() == 0
        assert "is behind" in service.errors
    assert events_of(database) >= set(range(11))


def test_a_database_without_a_unique_index_is_refused(tmp_path: Path) -> None:
    """As `.recover` leaves one that it could not make."""
    path = tmp_path / "governance.sqlite"
    with contextlib.closing(Database(f"sqlite:///{path}")) as store:
        store.migrate()
        store.migrate()
    with contextlib.closing(sqlite3.connect(path)) as outside:
        outside.execute("DROP INDEX users_email")
    with (
        contextlib.closing(Database(f"sqlite:///{path}")) as store,
        pytest.raises(DatabaseUnavailable, match="lacks the unique index of `users` on `email`"),
    ):
        store.migrate()


def test_a_database_of_before_there_were_chains_is_whole(tmp_path: Path) -> None:
    """SQLite cannot change a key: that of the record stays what it was, without the chain."""
    path = tmp_path / "governance.sqlite"
    with contextlib.closing(Database(f"sqlite:///{path}")) as store:
        store.migrate()
    with contextlib.closing(sqlite3.connect(path)) as outside:
        made = outside.execute("SELECT sql FROM sqlite_master WHERE name = 'audit'").fetchone()[0]
        of_before = made.replace(
            '("organisation_id", "chain", "sequence")', '("organisation_id", "sequence")'
        )
        assert of_before != made
        outside.execute("DROP TABLE audit")
        outside.execute(of_before)
    with contextlib.closing(Database(f"sqlite:///{path}")) as store:
        store.migrate()
