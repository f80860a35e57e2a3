"""`/health` is green only while calls can be decided and recorded, also when nobody sends any."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.audit import checkpointer
from api.clock import system_clock
from api.database import outage
from api.database.connection import Database
from api.database.errors import DatabaseDamaged
from api.health import readiness
from engine.errors import NewerDocuments
from tests.faults.database_faults import payment, post, refused, service
from tests.faults.disk_faults import DiskFaults
from tests.faults.test_disk_faults import World, world
from tests.harness.application import Service
from tests.harness.conversation import check_shape


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.05)
    monkeypatch.setattr(readiness, "HELD_SECONDS", 0.3)
    monkeypatch.setattr(readiness, "STUCK_SECONDS", 0.5)


def _reason(answer: httpx.Response) -> str | None:
    reason: str | None = answer.json().get("reason")
    return reason


async def _becomes(running: Service, status: int) -> dict[str, Any]:
    """The body of /health as soon as it has this status; /health/ready says the same while it stays so."""
    for _ in range(200):
        health = await running.call("nobody", "GET", "/health")
        ready = await running.call("nobody", "GET", "/health/ready")
        later = await running.call("nobody", "GET", "/health")
        if health.status_code == status and _reason(health) == _reason(later):
            break
        await asyncio.sleep(0.05)
    assert health.status_code == status, health.text
    check_shape("GET", "/health", health)
    check_shape("GET", "/health/ready", ready)
    assert (ready.status_code, _reason(ready)) == (status, _reason(health))
    assert (health.json()["database"] == "connected") == (status == 200)
    found: dict[str, Any] = health.json()
    return found


@asynccontextmanager
async def serving(folder: Path, database: str = "") -> AsyncIterator[Service]:
    async with service(folder, database) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await _becomes(running, 200)
        yield running


async def test_a_probe_leaves_nothing(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as running:
        store = running.context.store

        def everything() -> list[Any]:
            return [
                store.rows(f"SELECT * FROM {table} ORDER BY 1") for table in ("counters", "audit", "events")
            ]

        before = await store.read(everything)
        await asyncio.sleep(0.3)
        assert await store.read(everything) == before


async def test_a_commit_that_fails_is_noticed_without_events(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, database_url) as running:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(running.context.store.peewee, "commit", full)
            found = await _becomes(running, 503)
            assert found["reason"] == "the database has no room left; free disk space and try again"
        await _becomes(running, 200)


async def test_the_log_tells_of_a_full_disk_once_and_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpointer, "EVERY_SECONDS", 0.02)
    waiting = "signing of the audit log waits: there is no room left for the database"
    over = "signing of the audit log goes on"

    def lines(word: str) -> list[str]:
        return [each.getMessage() for each in caplog.records if word in each.getMessage()]

    async def found(word: str) -> list[str]:
        for _ in range(1_000):
            if lines(word):
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # for more of them, which would be too many
        return lines(word)

    async with serving(tmp_path) as running:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        await post(running, payment("second"))
        running.clock.advance(2)
        with monkeypatch.context() as patched:
            patched.setattr(running.context.store.peewee, "commit", full)
            told = await found("waits")
            assert len(told) == 1 and told[0].startswith(waiting)
            assert str(running.context.store.path) in told[0]
            monkeypatch.setattr(outage, "AGAIN_SECONDS", 0.1)
            since = time.monotonic()
            again = await found("still waits")
            assert 1 <= len(again) <= 1 + (time.monotonic() - since) / 0.1
        await _becomes(running, 200)
        assert await found(over) == [over]


async def test_what_only_events_meet_outweighs_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the probe, not for an event."""
    async with serving(tmp_path) as running:

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(running.context.store, "insert_many", full)
            refused(await post(running, payment("second")), 507)
            await _becomes(running, 503)
        refused_at = asyncio.get_running_loop().time()
        await _becomes(running, 200)
        assert asyncio.get_running_loop().time() - refused_at >= 0.1


async def test_a_writer_that_is_stuck_is_noticed(tmp_path: Path) -> None:
    """Another process holds the write lock and does not go on."""
    async with serving(tmp_path) as running:
        with Path(f"{running.context.store.path}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = await _becomes(running, 503)
            assert found["reason"].startswith("nothing could be recorded for ")
        await _becomes(running, 200)


async def test_damaged_pages_are_noticed_and_refuse_the_next_start(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        path = running.context.store.path
        _overwrite(path)
        assert (await post(running, payment("second"))).status_code >= 500
        found = await _becomes(running, 503)
        assert found["reason"] == "the database is damaged"
        await asyncio.sleep(0.5)
        await _becomes(running, 503)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseDamaged) as refusal:
        database.migrate()
        database.check_pages()
    assert "governance backup" in refusal.value.operator_message
    database.close()


def _overwrite(path: Path) -> None:
    """Garbage over every page but the first, where the tables are named."""
    outside = sqlite3.connect(path)
    outside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = int(outside.execute("PRAGMA page_size").fetchone()[0])
    outside.close()
    with path.open("r+b") as file:
        pages = path.stat().st_size // size
        file.seek(size)
        file.write(b"\xa5" * size * (pages - 1))


async def test_events_that_fail_by_a_fault_of_ours_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as running:

        def failing(*_: Any, **__: Any) -> None:
            raise ValueError("a fault")

        with monkeypatch.context() as patched:
            patched.setattr(running.context.writer.ingest, "apply", failing)
            for number in range(3):
                assert (await post(running, payment(number))).status_code == 500
            found = await _becomes(running, 503)
            assert "by a fault of the service" in found["reason"]
        assert (await post(running, payment("last"))).status_code == 200
        await _becomes(running, 200)


def _newer_tables(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version has taken the database along, while this one ran on."""
    store = running.context.store
    store.read_here(store.change, "INSERT INTO schema_migration (name, applied) VALUES (?, ?)", _STEP)

    def failing(*_: Any, **__: Any) -> None:
        raise ValueError("a column that is new")

    monkeypatch.setattr(running.context.writer.ingest, "apply", failing)


def _newer_documents(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise NewerDocuments("revision 7 has a document that this version of the service cannot load: ...")

    monkeypatch.setattr(running.context.writer.ingest, "apply", failing)


_STEP = ("9999_of_a_newer_version", "2026-01-31 09:30:00")


@pytest.mark.parametrize("happens", [_newer_tables, _newer_documents])
async def test_an_older_node_beside_a_newer_one_says_that_it_is(
    happens: Callable[[Service, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(tmp_path) as running:
        with monkeypatch.context() as patched:
            happens(running, patched)
            for number in range(3):
                status = (await post(running, payment(number))).status_code
                assert status == (500 if happens is _newer_tables else 503)
            for _ in range(1_200):
                found = await _becomes(running, 503)
                if "by a fault" not in found["reason"]:
                    break
                await asyncio.sleep(0.05)
            assert found["reason"].endswith("; upgrade this node"), found
            assert found["reason"] in caplog.text
            assert (_STEP[0] in found["reason"]) == (happens is _newer_tables)


@pytest.mark.slow
def test_a_full_disk_is_noticed_without_events(tmp_path: Path) -> None:
    """A real service whose write-ahead log finds no room."""

    def status(w: World) -> tuple[int, str]:
        answer = w.node.http.get("/health")
        return answer.status_code, answer.json().get("reason", "")

    def becomes(w: World, wanted: int) -> str:
        for _ in range(100):
            found, why = status(w)
            if found == wanted:
                return why
            time.sleep(0.1)
        raise AssertionError(f"/health does not become {wanted}")

    with world(tmp_path) as w:
        assert isinstance(w.faults, DiskFaults)
        becomes(w, 200)
        # What is there can be opened on a full disk, however many probes have been made before we look.
        w.faults.arm(0, "full", stays=True, call="pwrite64", only="-wal$")
        assert "no room left" in becomes(w, 503)
        w.faults.clear()
        assert becomes(w, 200) == ""


async def test_uptime_goes_on_whatever_the_clock_is_set_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, right = Service(tmp_path), time.time
    made.clock = system_clock  # type: ignore[assignment]
    async with made as running:
        for leap in (1e7, -1e7):
            monkeypatch.setattr(time, "time", lambda leap=leap: right() + leap)
            health = await running.call("nobody", "GET", "/health")
            monkeypatch.undo()
            assert 0 < health.json()["uptime"] < 1e6
