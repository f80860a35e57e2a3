"""A failing disk beyond a single request: checkpoints, death in the middle of a write, the system's own limit
of a file's size, and the disk of PostgreSQL.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.database_faults import refused
from tests.faults.disk_faults import DiskFaults
from tests.faults.test_disk_faults import (
    AGENT,
    EVERY_STEP,
    HOLD,
    LIMIT,
    STORIES,
    WIRES,
    World,
    grown,
    settled,
    world,
)
from tests.harness.nodes import called, nodes
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.slow

BIG = 900_000


def big(number: int) -> dict[str, Any]:
    """An event of nearly the largest size; `random` keeps databases from pressing it."""
    return called(
        f"big-{number}", "read", run="run-big", note=random.Random(number).randbytes(BIG // 2).hex()
    )


def post(w: World, body: dict[str, Any]) -> httpx.Response:
    return w.node.http.post("/v1/events", json=body, headers=AGENT)


@pytest.mark.parametrize(("kind", "stays"), [("fails", False), ("full", True), ("short", True)])
def test_a_checkpoint_that_fails_is_made_up_for(kind: str, stays: bool, tmp_path: Path) -> None:
    """Moving the log into the database may fail at any step: what was committed is read from the log, also by
    the next process, until a later checkpoint succeeds. Nobody is refused meanwhile."""
    with world(tmp_path) as w:
        numbers = iter(range(10_000))
        known: dict[int, bytes] = {}

        def fill(until: int) -> None:
            for number in numbers:
                answer = post(w, big(number))
                assert answer.status_code == 200, answer.text
                known[number] = answer.content
                if w.faults.reached or len(known) >= until:
                    return

        # After 16 MB of log its content goes into the database file, and only then is that file written.
        for step, call in ((0, ""), (1, ""), (random.randrange(2, 2_000), ""), (0, "fdatasync")):
            w.faults.arm(step, kind, stays=stays, call=call, only="governance.sqlite$")
            fill(len(known) + 60)
            assert w.faults.reached, "there was no checkpoint"
            fill(len(known) + 1)
            w.faults.clear()
        w.node.kill()
        w.node.restart()
        for number, content in known.items():
            again = post(w, big(number))
            assert again.headers["idempotent-replay"] == "true" and again.content == content
        w.faults.count()
        w.faults.clear()
        size = w.database.stat().st_size
        fill(len(known) + 45)
        assert w.database.stat().st_size > size + 10 * BIG, "no checkpoint has succeeded since"
        w.close()
        outside = sqlite3.connect(w.database)
        assert outside.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        outside.close()


def test_death_in_the_middle_of_a_write_leaves_all_or_nothing(tmp_path: Path) -> None:
    """`kill -9` at a step of the disk, half of a write done: after the restart the request never was, or it
    was wholly, and is not done twice."""
    with world(tmp_path) as w:
        stories = STORIES if EVERY_STEP else [STORIES[0], *random.sample(STORIES[1:], 5)]
        for story in stories:
            name = f"d{next(w.numbers)}"
            prepared = story.prepare(w, name)
            before = w.state()
            w.faults.count()
            assert story.act(w, name, prepared).is_success
            w.faults.clear()
            whole = grown(before, w.state())
            count = w.faults.steps
            for step in range(0, count, 4) if EVERY_STEP else random.sample(range(count), 2):
                name = f"d{next(w.numbers)}"
                prepared = story.prepare(w, name)
                before = w.state()
                w.faults.arm(step, "dies")
                try:
                    answer = story.act(w, name, prepared)
                except httpx.TransportError:
                    answer = None
                if answer is not None:
                    # It died after its answer, or not at all: then what it said is true.
                    assert answer.is_success
                    if not w.faults.reached:
                        w.faults.clear()
                        continue
                w.node.process.wait(10)
                w.faults.clear()
                where = f"{story.title}, step {step}: {w.faults.what}"
                w.node.restart()
                after = w.state()
                assert grown(before, after) == whole or after == before, where
                done = after != before
                assert done or answer is None, f"{where}: it was acknowledged"
                if not done:
                    assert settled(lambda: story.act(w, name, prepared)).is_success, where  # noqa: B023
                    assert grown(before, w.state()) == whole, where
                verified = w.get("/v1/audit/verify")
                assert verified["valid"], where


def test_a_limit_of_the_system_cuts_writes_short(tmp_path: Path) -> None:
    """The system itself writes only up to a size and refuses the rest: real short writes, no tricks."""
    with world(tmp_path, None) as w:
        pid, log = w.node.process.pid, Path(f"{w.database}-wal")
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        # Somebody who reads all the time keeps the log from beginning anew, so that its size is its end.
        reader = sqlite3.connect(w.database, isolation_level=None)
        reader.execute("BEGIN")
        frame = 24 + int(reader.execute("PRAGMA page_size").fetchone()[0])
        assert reader.execute("SELECT COUNT(*) FROM counters").fetchone()
        for room in (0, 1, 24, 100, frame, frame + 100, 5 * frame - 1):
            refusals = 0
            for story in STORIES:
                name = f"r{next(w.numbers)}"
                prepared = story.prepare(w, name)
                before, decided = w.state(), w.decided() if story.loosens else []
                w.accepted = 0
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size + room if room else 0, hard))
                answer = story.act(w, name, prepared)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
                where = f"{story.title}, room for {room}"
                if answer.is_success:
                    assert room > frame, where
                    continue
                refused(answer)
                refusals += 1
                after = w.state()
                assert w.accepted or {**after, "files": 0} == {**before, "files": 0}, where
                assert (w.decided() if story.loosens else []) == decided, where
                settled(lambda: story.act(w, name, prepared))  # noqa: B023 - called at once
            assert refusals, f"room for {room} was enough"
        reader.close()


@pytest.fixture
def failing_postgres() -> Iterator[tuple[Postgres, DiskFaults]]:
    """A server of its own whose disk fails when told to."""
    server = Postgres()
    try:
        faults = DiskFaults(server.folder, server.data)
        server.environment = faults.environment
        server.start()
        yield server, faults
    finally:
        server.close()


PARTS = (("base/", ""), ("pg_wal/", ""), ("pg_wal/", "fdatasync"))
"""Of the server's disk: tables, the log, and the log's fsync."""


@pytest.mark.postgres
@pytest.mark.parametrize(("kind", "stays"), [("fails", False), ("full", True), ("short", False)])
def test_a_failing_disk_of_postgresql(
    kind: str, stays: bool, tmp_path: Path, failing_postgres: tuple[Postgres, DiskFaults]
) -> None:
    """It refuses a statement, or falls down and gets up again; we refuse, and go on when it does. Where it
    met the full disk when it got up, or hangs then, it is started again."""
    server, faults = failing_postgres
    numbers = iter(range(10_000))
    with nodes(tmp_path, server.create(), 1, [HOLD, WIRES, LIMIT]) as (node,):
        admin = node.admin()
        known: list[tuple[dict[str, Any], bytes]] = []
        refusals = 0
        for only, call in PARTS:
            for step in (0, 1, 2, random.randrange(3, 40)):
                body = big(next(numbers)) | {"eventId": f"pg-{next(numbers)}"}
                body["metadata"]["toolName"] = random.choice(("pay", "wire", "read"))
                faults.arm(step, kind, stays=stays, call=call, only=only)
                answer = node.http.post("/v1/events", json=body, headers=AGENT)
                faults.clear()
                where = f"{kind}, {only}, {step}: {faults.what}"
                if answer.status_code == 200:
                    known.append((body, answer.content))
                    continue
                # After a fall, each connection that the node keeps finds out for itself.
                assert faults.reached or refusals, where
                refused(answer)
                refusals += 1
                if faults.reached and kind == "full" and only == "base/":
                    assert answer.status_code == 507, where
                hangs, deadline = time.monotonic() + 20, time.monotonic() + 120
                while (answer := node.http.post("/v1/events", json=body, headers=AGENT)).status_code != 200:
                    refused(answer)
                    assert time.monotonic() < deadline, f"{where}: it does not recover"
                    if time.monotonic() > hangs:
                        hangs = deadline
                        server.crash()
                    server.restart_if_down()
                    time.sleep(0.2)
                # A server that fell down may have kept what it could not confirm any more.
                known.append((body, answer.content))
            for body, content in known:
                deadline = time.monotonic() + 60
                while (again := node.http.post("/v1/events", json=body, headers=AGENT)).status_code == 503:
                    assert refusals and time.monotonic() < deadline
                assert again.headers.get("idempotent-replay") == "true" and again.content == content
        assert refusals >= 2
        run = node.http.get("/v1/runs/run-big", headers=admin).json()
        assert len(run["toolCalls"]) == len(known)
        verified = node.http.get("/v1/audit/verify", headers=admin).json()
        assert verified["valid"], verified
