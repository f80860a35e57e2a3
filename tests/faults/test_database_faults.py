"""A database that fails, is full, locked, damaged or gone: nothing is decided that is not recorded.

Every refusal is a problem document with `Retry-After`, leaves no trace, and is over as soon as the database
is well again, without a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import peewee
import pytest

from api.database.errors import translated
from api.ingestion import turns
from tests.faults.database_faults import (
    ERRORS,
    Faults,
    _is_writer,
    intact,
    payment,
    post,
    refused,
    rows,
    service,
    settled,
)
from tests.harness.application import Service
from tests.harness.conversation import check_shape
from tests.harness.postgres import Postgres


@pytest.mark.parametrize("kind", ERRORS)
async def test_a_fault_at_every_step_leaves_nothing(
    kind: str, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(tmp_path, database_url) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await settled(running)
        faults = Faults(running)
        faults.error, status = ERRORS[kind]
        with faults.installed(monkeypatch):
            for step in range(200):
                before = await rows(running)
                faults.at, faults.reached = step, False
                answer = await post(running, payment(step))
                if not faults.reached:
                    assert answer.status_code == 200
                    break
                refused(answer, status)
                assert await rows(running) == before, f"step {step} left something"
                faults.at = None
                answer = await post(running, payment(step))
                assert answer.status_code == 200 and "idempotent-replay" not in answer.headers
            else:
                raise AssertionError("there is no end to the steps")
            assert step >= 5
        await intact(running)


async def test_what_fails_on_the_event_loop_is_written_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(tmp_path) as running:
        await settled(running)
        faults = Faults(running)
        faults.on = {"MainThread"}
        with faults.installed(monkeypatch):
            step = 0
            for number in range(200):
                faults.error, _ = list(ERRORS.values())[step % len(ERRORS)]
                before = await rows(running)
                faults.at, faults.reached = step, False
                answer = await post(running, payment(number))
                faults.at = None
                assert answer.json()["toolCallStatus"] == "awaiting_approval"
                after = await rows(running)
                assert all(after[table] == before[table] + 1 for table in ("events", "tool_calls", "audit"))
                if faults.reached:
                    step += 1
                elif "MainThread" in faults.wrote:  # else a busy writer had the event from the beginning
                    break
            assert step >= 5 and not faults.reached
        await intact(running)


async def test_events_that_share_a_failing_commit_all_fail(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each is recorded when it comes again; none is half there."""
    async with service(tmp_path, database_url) as running:
        commit = running.context.store.peewee.commit
        failing = True

        def committing(*arguments: Any) -> Any:
            if failing and _is_writer():
                raise peewee.OperationalError("disk I/O error")
            return commit(*arguments)

        monkeypatch.setattr(running.context.store.peewee, "commit", committing)
        answers = await asyncio.gather(*(post(running, payment(number)) for number in range(40)))
        for answer in answers:
            refused(answer, 503)
        assert (await rows(running))["events"] == 0
        answer = await running.call("agent", "POST", "/v1/events/batch", {"events": [payment("b"), {}]})
        results = answer.json()["results"]
        assert [result["status"] for result in results] == [503, 422]
        answer = await running.call("admin", "POST", "/v1/halt", {"scope": "all", "reason": "test"})
        refused(answer, 503)
        failing = False
        answers = await asyncio.gather(*(post(running, payment(number)) for number in range(40)))
        assert all(answer.json()["toolCallStatus"] == "awaiting_approval" for answer in answers)
        await intact(running)


async def test_a_full_database_is_507_until_there_is_room(tmp_path: Path) -> None:
    """SQLite itself says that there is no more room."""
    async with service(tmp_path) as running:
        database = running.context.store.peewee
        for number in range(3):
            assert (await post(running, payment(number))).status_code == 200
        store = running.context.store
        pages = (await store.read(store.rows, "PRAGMA page_count"))[0][0]
        database._pragmas = [*database._pragmas, ("max_page_count", pages + 20)]
        await _reconnect(running)
        accepted, full = (await rows(running))["events"], None
        for number in range(3, 400):
            answer = await post(running, payment(number, size=5_000))
            if answer.status_code != 200:
                full = answer
                break
            accepted += 1
        assert full is not None
        refused(full, 507)
        refused(await post(running, payment("again", size=5_000)), 507)
        assert (await rows(running))["events"] == accepted
        await intact(running)
        # Known events and reading go on meanwhile.
        assert (await post(running, payment(0))).headers["idempotent-replay"] == "true"
        assert (await running.call("viewer", "GET", "/v1/runs")).status_code == 200
        database._pragmas = [pragma for pragma in database._pragmas if pragma[0] != "max_page_count"]
        await _reconnect(running)
        assert (await post(running, payment("again", size=5_000))).status_code == 200
        await intact(running)


async def _reconnect(running: Service) -> None:
    """Let those who write drop their connections, as after any fault."""
    running.context.store.leave()
    answer = await running.call("agent", "POST", "/v1/events", payment("reconnect"))
    assert answer.status_code in (200, 507)

    def drop(_transaction: Any) -> None:
        raise peewee.OperationalError("drop the connection")

    with contextlib.suppress(Exception):
        await running.context.writer.write(drop)


async def test_a_locked_database_is_503_until_it_is_free(tmp_path: Path) -> None:
    """Somebody else's program holds the write lock of the file."""
    async with service(tmp_path) as running:
        database = running.context.store.peewee
        assert (await post(running, payment(1))).status_code == 200
        database._pragmas = [*database._pragmas, ("busy_timeout", 100)]
        await _reconnect(running)
        other = sqlite3.connect(running.context.store.path, isolation_level=None)
        try:
            before = await rows(running)
            other.execute("BEGIN IMMEDIATE")
            refused(await post(running, payment(2)), 503)
            assert await rows(running) == before
            # It can still be read, so the process is there to answer.
            assert (await running.call("nobody", "GET", "/health/live")).status_code == 200
        finally:
            other.execute("ROLLBACK")
            other.close()
        assert (await post(running, payment(2))).status_code == 200
        await intact(running)


async def test_a_read_only_database_is_503(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        database = running.context.store.peewee
        assert (await post(running, payment(1))).status_code == 200
        before = await rows(running)
        database._pragmas = [*database._pragmas, ("query_only", 1)]
        await _reconnect(running)
        for number in range(2, 5):
            refused(await post(running, payment(number)), 503)
        database._pragmas = [pragma for pragma in database._pragmas if pragma[0] != "query_only"]
        assert (await rows(running))["events"] == before["events"] + 1
        await _reconnect(running)
        assert (await post(running, payment(2))).status_code == 200
        await intact(running)


async def test_a_file_taken_away_is_noticed(tmp_path: Path) -> None:
    """Deleted files can be written to for ever; nothing is, and all goes on when the file is back."""
    async with service(tmp_path) as running:
        path = running.context.store.path
        assert (await post(running, payment(1))).status_code == 200
        away = path.with_name("away.sqlite")
        path.rename(away)
        for number in range(2, 4):
            refused(await post(running, payment(number)), 503)
        health = await running.call("nobody", "GET", "/health")
        assert health.status_code == 503 and health.json()["database"] == "disconnected"
        check_shape("GET", "/health", health)
        assert (await running.call("nobody", "GET", "/health/ready")).status_code == 503
        assert (await running.call("nobody", "GET", "/health/live")).status_code == 200
        assert (await running.call("nobody", "GET", "/metrics")).status_code == 200
        assert (await running.call("viewer", "GET", "/v1/runs")).status_code == 503
        assert not path.exists(), "an empty database was made in its place"
        away.rename(path)
        assert (await post(running, payment(1))).headers["idempotent-replay"] == "true"
        assert (await post(running, payment(2))).status_code == 200
        assert (await running.call("nobody", "GET", "/health")).json()["database"] == "connected"
        await intact(running)


async def test_a_file_put_in_its_place_is_the_database(tmp_path: Path) -> None:
    """A copy is put back while the service runs; what comes next is written there and nowhere else."""
    async with service(tmp_path) as running:
        path = running.context.store.path
        assert (await post(running, payment(1))).status_code == 200
        copy = _copied(path)
        assert (await post(running, payment(2))).status_code == 200
        _replace(path, copy)
        assert (await post(running, payment(3))).status_code == 200
        found = sqlite3.connect(path)
        known = {row[0] for row in found.execute("SELECT event_id FROM events")}
        found.close()
        assert known == {"event-1", "event-3"}
        assert "idempotent-replay" not in (await post(running, payment(2))).headers
        await intact(running)


async def test_a_damaged_file_is_503(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        path = running.context.store.path
        assert (await post(running, payment(1))).status_code == 200
        good = _copied(path)
        bad = path.with_name("bad.sqlite")
        bad.write_bytes(os.urandom(100_000))
        _replace(path, bad)
        for number in range(2, 4):
            refused(await post(running, payment(number)), 503)
        health = await running.call("nobody", "GET", "/health")
        assert health.json()["database"] == "disconnected"
        _replace(path, good)
        assert (await post(running, payment(2))).status_code == 200
        assert (await post(running, payment(1))).headers["idempotent-replay"] == "true"
        await intact(running)


def _copied(path: Path) -> Path:
    copy = path.with_name("copy.sqlite")
    with (
        contextlib.closing(sqlite3.connect(path)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    return copy


def _replace(path: Path, by: Path) -> None:
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").unlink()
    shutil.move(by, path)


@pytest.mark.postgres
@pytest.mark.slow
async def test_a_server_that_crashes_is_503_until_it_is_back(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    async with service(tmp_path, postgres_url) as running:
        accepted = {}
        for number in range(5):
            answer = await post(running, payment(number))
            accepted[number] = answer.content
        await asyncio.to_thread(postgres.crash)
        try:
            for number in range(5, 8):
                refused(await post(running, payment(number)), 503)
            health = await running.call("nobody", "GET", "/health")
            assert health.status_code == 503 and health.json()["database"] == "disconnected"
            answer = await running.call("admin", "GET", "/v1/me")
            refused(answer, 503)
            answer = await running.call("nobody", "POST", "/auth/login", {"email": "a", "password": "b"})
            refused(answer, 503)
        finally:
            await asyncio.to_thread(postgres.start)
        for number, content in accepted.items():
            answer = await post(running, payment(number))
            assert answer.headers["idempotent-replay"] == "true" and answer.content == content
        assert (await post(running, payment(5))).status_code == 200
        assert (await running.call("nobody", "GET", "/health")).json()["database"] == "connected"
        await intact(running)


async def test_a_queue_that_only_grows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk stands still, so many may wait; the others are told to come back."""
    from api.database import writer as module

    monkeypatch.setattr(module, "MOST_WAITING", 50)
    monkeypatch.setattr(module, "MOST_BYTES_WAITING", 2_000_000)
    monkeypatch.setattr(turns, "MOST_OF_A_KEY", 1_000)  # a busy machine would refuse by that before
    async with service(tmp_path) as running:
        for size, some in ((0, 200), (300_000, 40)):
            store = running.context.store
            blocker = sqlite3.connect(store.path, isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")
            sent = [
                asyncio.create_task(post(running, payment(f"{size}-{number}", size)))
                for number in range(some)
            ]
            done: list[httpx.Response] = []
            for _ in range(10):  # until no more are refused; a busy machine takes its time to read them
                before = len(done)
                await asyncio.sleep(0.5)
                done = [task.result() for task in sent if task.done()]
                if done and len(done) == before:
                    break
            assert done and len(done) < some
            for answer in done:
                refused(answer, 503)
            blocker.execute("ROLLBACK")
            blocker.close()
            answers = await asyncio.gather(*sent)
            accepted = [answer for answer in answers if answer.status_code == 200]
            assert len(accepted) == some - len(done)
        await running.context.writer.write(lambda _transaction: None)  # what was counted is forgotten
        assert running.context.writer._bytes_waiting == 0
        again = [await post(running, payment(f"0-{number}")) for number in range(200)]
        assert all(answer.status_code == 200 for answer in again)
        await intact(running)


def test_what_was_wrong_at_first_is_told() -> None:
    """SQLite has rolled back by itself already, so the roll-back fails as well."""
    try:
        try:
            raise peewee.OperationalError("disk I/O error")
        except peewee.OperationalError:
            raise peewee.OperationalError("cannot rollback - no transaction is active")  # noqa: B904
    except peewee.OperationalError as error:
        told = translated(error, "sqlite:///data/governance.sqlite").operator_message
    assert "disk I/O error" in told and "cannot rollback" not in told


def test_locks_that_a_server_has_no_room_for_are_told_with_their_remedy() -> None:
    error = peewee.OperationalError("out of shared memory\nHINT: You might need to increase something")
    told = translated(error, "postgresql://postgres@db.example/governance").operator_message
    assert "out of shared memory; each rate limit" in told and "`max_locks_per_transaction`" in told
