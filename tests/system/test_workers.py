"""Several worker processes behind one address, and databases that go away: no request is lost or misled."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.database.lanes.locks import LOCK_SECONDS, SILENT_SECONDS
from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.policy_bodies import on_tool
from tests.harness.postgres import Postgres
from tests.harness.waiting import until

pytestmark = pytest.mark.slow

HOLD = on_tool("Hold payments", "require_approval", "pay")


def python_children(node: Node) -> list[int]:
    """The worker processes: those below the supervisor that answer for the service."""
    found = []
    for pid in node.below():
        with contextlib.suppress(OSError):  # it has just ended
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def two_workers(node: Node) -> list[int]:
    """Those that the service has started, which may not serve yet."""
    return until(lambda: found if len(found := python_children(node)) >= 2 else [])


class Storm:
    """Clients that report calls until told to stop, each on fresh connections now and then."""

    def __init__(self, node: Node, clients: int = 8) -> None:
        self.statuses: Counter[int] = Counter()
        self.acknowledged: dict[str, bytes] = {}
        self.headers: list[Any] = []
        self._node = node
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _client(self, number: int) -> None:
        index = 0
        while not self._stop.is_set():
            with httpx.Client(base_url=self._node.http.base_url, timeout=30, verify=False) as http:
                for _ in range(20):
                    if self._stop.is_set():
                        return
                    index += 1
                    name = f"{number}-{index}"
                    body = called(name, "pay" if index % 10 == 0 else "read", run=f"run-{number}")
                    try:
                        answer = http.post("/v1/events", json=body, headers={"X-API-Key": KEY})
                    except httpx.HTTPError:
                        # The process died under it: whether it was recorded, a second try tells.
                        with self._lock:
                            self.statuses[0] += 1
                        break
                    with self._lock:
                        self.statuses[answer.status_code] += 1
                        if answer.status_code == 200:
                            self.acknowledged[name] = answer.content
                        else:
                            self.headers.append(answer.headers.get("retry-after"))
                    if answer.status_code == 503:
                        time.sleep(0.05)

    def more(self, count: int) -> None:
        """Until so many more were acknowledged."""
        enough, deadline = self.statuses[200] + count, time.monotonic() + 60
        while self.statuses[200] < enough:
            assert time.monotonic() < deadline, self.statuses
            time.sleep(0.05)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def check(self, node: Node) -> None:
        """Everything acknowledged is there: a repeated event gets the very same answer."""
        for name, content in self.acknowledged.items():
            number, _, index = name.partition("-")
            body = called(name, "pay" if int(index) % 10 == 0 else "read", run=f"run-{number}")
            answer = node.http.post("/v1/events", json=body, headers={"X-API-Key": KEY})
            assert answer.headers.get("idempotent-replay") == "true", (name, answer.text)
            assert answer.content == content


def valid(node: Node, admin: dict[str, str]) -> bool:
    return bool(node.http.get("/v1/audit/verify", headers=admin).json()["valid"])


def test_workers_share_one_database_and_a_killed_one_is_replaced(tmp_path: Path, database_url: str) -> None:
    with nodes(tmp_path, database_url, 1, [HOLD], GOVERNANCE_WORKERS="3") as (node,):
        deadline = time.monotonic() + 60
        while len(python_children(node)) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        admin = node.admin()
        storm = Storm(node)
        storm.more(150)
        before = python_children(node)
        assert len(before) == 3
        os.kill(before[1], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len(set(python_children(node)) - set(before)) < 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        storm.more(150)
        storm.stop()
        assert set(python_children(node)) - set(before), "the killed worker was not replaced"
        # Clients of the killed worker lost their connection; nobody was told of a busy database.
        assert set(storm.statuses) <= {0, 200} and storm.statuses[0] <= 8, storm.statuses
        assert storm.statuses[200] > 100
        storm.check(node)
        assert valid(node, admin)
        pending = node.http.get("/v1/approvals?status=pending&limit=1000", headers=admin).json()
        held = [name for name in storm.acknowledged if int(name.partition("-")[2]) % 10 == 0]
        assert {approval["toolCallId"] for approval in pending} >= {f"call-{name}" for name in held}
        assert "database is locked" not in node.log and "Traceback" not in node.log
        assert f"worker {before[1]} was killed with SIGKILL, as where memory runs out" in node.log


def test_a_worker_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'governance.sqlite'}"
    with nodes(tmp_path, database_url, 1, [HOLD], GOVERNANCE_WORKERS="2") as (node,):
        before = two_workers(node)
        admin = node.admin()

        def serving() -> set[int]:
            return {each["processId"] for each in node.http.get("/v1/nodes", headers=admin).json()}

        until(lambda: serving() >= {*before})  # they have begun, for which there is more time
        time.sleep(5)  # the supervisor asks twice a second
        os.kill(before[0], signal.SIGSTOP)
        until(lambda: f"worker {before[0]} did not answer for 5 seconds, and was killed" in node.log)
        until(lambda: len(set(python_children(node)) - {before[0]}) >= 2)


def test_a_worker_that_is_slow_to_start_is_waited_for(tmp_path: Path) -> None:
    """As where processor or disk are busy: whoever took its place would be as slow."""
    database_url = f"sqlite:///{tmp_path / 'governance.sqlite'}"
    with nodes(tmp_path, database_url, 1, [HOLD], GOVERNANCE_WORKERS="2") as (node,):
        before = two_workers(node)
        os.kill(before[0], signal.SIGKILL)
        (slow,) = until(lambda: set(python_children(node)) - set(before))
        os.kill(slow, signal.SIGSTOP)
        time.sleep(7)
        os.kill(slow, signal.SIGCONT)
        until(lambda: len(node.http.get("/v1/nodes", headers=node.admin()).json()) >= 2)
        assert slow in python_children(node) and "did not answer" not in node.log


def test_a_worker_of_newer_code_changes_no_tables_under_the_others(tmp_path: Path) -> None:
    """As after an update of the code below a service that runs; a step that the database has not had stands
    for one that only the newer code knows. The next start goes on from there."""
    database_url = f"sqlite:///{tmp_path / 'governance.sqlite'}"

    def rows(statement: str) -> list[Any]:
        file = database_url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(file, timeout=30)) as database, database:
            return [value for (value,) in database.execute(statement)]

    with nodes(tmp_path, database_url, 1, [HOLD], GOVERNANCE_WORKERS="2") as (node,):
        deadline = time.monotonic() + 60
        while len(rows("SELECT process_id FROM nodes")) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        last = max(rows("SELECT name FROM schema_migration"))
        rows(f"DELETE FROM schema_migration WHERE name = '{last}'")
        os.kill(python_children(node)[0], signal.SIGKILL)
        assert node.process.wait(timeout=60) == 2
        assert f"(`{last}`) under those of the older version" in node.log and "Traceback" not in node.log
        assert last not in rows("SELECT name FROM schema_migration")


def test_workers_whose_supervisor_was_killed_give_the_address_free(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'governance.sqlite'}"
    with nodes(tmp_path, database_url, 1, [HOLD], GOVERNANCE_WORKERS="2") as (node,):
        deadline = time.monotonic() + 60
        while len(workers := python_children(node)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(workers) == 2
        os.kill(node.process.pid, signal.SIGKILL)
        node.process.wait()
        while any(is_running(pid) for pid in workers):
            assert time.monotonic() < deadline + 60, "a worker goes on by itself"
            time.sleep(0.1)
        node.restart()
        answer = node.http.post("/v1/events", json=called("a", "pay"), headers={"X-API-Key": KEY})
        assert answer.json()["toolCallStatus"] == "awaiting_approval"


def is_running(pid: int) -> bool:
    """Of one that has ended, but which nobody has waited for, the command is empty."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def lock_is_held(database_url: str) -> bool:
    """Whether somebody holds the write lock of SQLite now."""
    handle = os.open(database_url.removeprefix("sqlite:///") + ".lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_a_sibling_that_stopped_while_it_held_the_lock_hangs_nobody(tmp_path: Path) -> None:
    database_url = f"sqlite:///{tmp_path / 'governance.sqlite'}"
    with nodes(tmp_path, database_url, 2, [HOLD], shared=True) as (one, other):
        admin = other.admin()
        storm = Storm(one)
        for _ in range(200):
            time.sleep(0.05)
            os.killpg(one.process.pid, signal.SIGSTOP)
            if lock_is_held(database_url):
                time.sleep(0.2)  # a server may still have been at its commit
                if lock_is_held(database_url):
                    break
            os.killpg(one.process.pid, signal.SIGCONT)
        else:
            raise AssertionError("it was never stopped with the lock")
        try:
            for number, patience in enumerate((LOCK_SECONDS + 5, LOCK_SECONDS + 5)):
                begun = time.monotonic()
                answer = other.call(f"meanwhile-{number}")
                assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
                assert answer.json()["code"] == "unavailable"
                assert time.monotonic() - begun < patience
            assert other.http.get("/v1/approvals", headers=admin).status_code == 200
            assert other.http.get("/health/live").status_code == 200
        finally:
            os.killpg(one.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 10
        while other.call("after").status_code != 200:
            assert time.monotonic() < deadline
        time.sleep(0.5)
        storm.stop()
        # What was in the transaction when it stopped went in late, or was refused; nobody was misled.
        assert set(storm.statuses) <= {200, 503} and all(storm.headers), storm.statuses
        storm.check(other)
        assert valid(other, admin)
        assert "Traceback" not in one.log + other.log


@pytest.mark.postgres
def test_a_node_that_stopped_under_load_hangs_nobody(tmp_path: Path, postgres_url: str) -> None:
    """Events share a lock and hold it over no way to the server: the others go on, and so do changes."""
    with nodes(tmp_path, postgres_url, 2, [HOLD]) as (one, other):
        admin = other.admin()
        storm = Storm(one)
        for number in range(8):
            time.sleep(0.1)
            os.killpg(one.process.pid, signal.SIGSTOP)
            try:
                begun = time.monotonic()
                deadline = begun + SILENT_SECONDS + LOCK_SECONDS
                while other.call(f"meanwhile-{number}").status_code != 200:
                    assert time.monotonic() < deadline
                halted = other.http.post("/v1/halt", json={"agentId": "nobody"}, headers=admin)
                assert halted.status_code in (200, 201, 503)
            finally:
                os.killpg(one.process.pid, signal.SIGCONT)
        time.sleep(0.5)
        storm.stop()
        assert set(storm.statuses) <= {200, 503} and all(storm.headers), storm.statuses
        storm.check(other)
        assert valid(other, admin)
        assert "Traceback" not in one.log + other.log


@pytest.mark.postgres
def test_a_database_that_goes_away_is_a_503_and_comes_back(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    with nodes(tmp_path, postgres_url, 1, [HOLD]) as (node,):
        admin = node.admin()
        storm = Storm(node, 4)
        time.sleep(1)
        postgres.crash()
        try:
            time.sleep(1.5)
            answer = node.call("while it is away")
            assert answer.status_code == 503 and answer.headers["retry-after"]
            assert answer.json()["code"] == "unavailable"
            health = node.http.get("/health")
            assert health.status_code == 503 and health.json()["database"] == "disconnected"
            assert node.http.get("/health/live").status_code == 200
            assert node.http.get("/v1/approvals", headers=admin).status_code == 503
        finally:
            postgres.start()
        deadline = time.monotonic() + 20
        while node.http.get("/health").status_code != 200:
            assert time.monotonic() < deadline, "it did not recover"
            time.sleep(0.1)
        came_back = storm.statuses[200]
        time.sleep(1)
        storm.stop()
        assert storm.statuses[200] > came_back, "events are not taken again"
        assert set(storm.statuses) == {200, 503} and all(storm.headers)
        storm.check(node)
        assert valid(node, admin)
        # Waiting works again, too.
        approval_id = node.call("afterwards").json()["approvalId"]
        assert node.http.post(f"/v1/approvals/{approval_id}/approve", headers=admin).status_code == 200
