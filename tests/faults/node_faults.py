"""A cluster under load while something of it breaks, and what must be true afterwards.

Agents and reviewers go from node to node, as behind a balancer. The ledger keeps what they were told; after
each round it asks a node for all of it.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.faults.ledger import POLICIES, Ledger, called, completed
from tests.faults.load import Load
from tests.harness import forked
from tests.harness.application import SECRET
from tests.harness.cluster import DEADLINE, Cluster, cluster
from tests.harness.effort import LONG
from tests.harness.nodes import CLEAN, KEY, Node
from tests.harness.postgres import Postgres

LEASE = 8.0
"""Seconds; what a node holds is free for the others well before they are over, save lanes (`lapse`)."""
IN_TIME = 15.0
"""Seconds: a request is answered within 12, and a busy machine adds some."""
_MOVED = "SELECT split_part(owner, ':', 1), SUM(version)::bigint FROM lanes GROUP BY 1"
_OWNERS = "SELECT DISTINCT owner FROM lanes WHERE split_part(owner, ':', 1) = ANY (%s)"
_LAPSE = "UPDATE lanes SET expires_at = 1 WHERE owner = ANY (%s)"
_TAKEN = "SELECT SUM(epoch) FROM lanes"
"""Moves with each lane that is taken, also by the process that had it before, which prefers its own."""
GOES_ON = 20
"""Events that the other nodes acknowledge while one is away."""


class Scene:
    """One cluster through several rounds."""

    def __init__(self, made: Cluster) -> None:
        self.cluster = made
        self.ledger = Ledger(most_repeated=1_000_000 if LONG else 100)
        self.chance = random.Random()

    @contextlib.contextmanager
    def under_load(self) -> Iterator[Load]:
        """Load on all nodes; it goes on as soon as what is broken is whole, and then all of it is true."""
        ledger = self.ledger
        ledger.round += 1
        now = time.gmtime(time.time() - 1)
        ledger.starts[ledger.round] = time.strftime("%Y-%m-%dT%H:%M:%SZ", now)
        ports = (node.port for node in self.cluster.nodes)
        load = Load(*ports, admin=self.cluster.admin, ledger=ledger, unavailable=True)
        try:
            load.wait_for(40)
            yield load
            for node in self.cluster.nodes:
                node.ready(DEADLINE)
            load.must_go_on(40, DEADLINE)
        finally:
            load.stop()
        for node in self.cluster.nodes:
            self.serves(node)
        ledger.check(self.chance.choice(self.cluster.nodes), self.cluster.admin, self.chance)

    def serves(self, node: Node) -> None:
        """It decides again, by itself."""
        deadline = time.monotonic() + DEADLINE
        while (answer := self.asked(node)) != 200:
            assert time.monotonic() < deadline, f"the node still answers {answer}"
            time.sleep(0.2)

    def asked(self, node: Node, seconds: float = DEADLINE) -> int:
        """The status of an answer to a new event, of which the ledger knows nothing; 0 where none comes."""
        event = called(0, f"asked-{time.monotonic_ns()}", "read")
        return self._status(node, "POST", "/v1/events", {"X-API-Key": KEY}, event, seconds)

    def asked_of_all(self, node: Node) -> set[int]:
        """The statuses of requests of every kind, all at once: calls, outcomes, lists, changes."""
        admin = self.cluster.admin
        call = called(0, f"asked-{time.monotonic_ns()}", "read")
        requests: list[tuple[str, str, dict[str, str], Any]] = [
            ("POST", "/v1/events", {"X-API-Key": KEY}, completed(call)),
            ("GET", "/v1/runs", admin, None),
            ("GET", "/v1/audit", admin, None),
            ("POST", "/v1/halt", admin, {"reason": "asked", "agentId": "nobody"}),
        ]
        with ThreadPoolExecutor() as threads:
            asked = [threads.submit(self.asked, node, IN_TIME) for _ in range(3)]
            asked += [threads.submit(self._status, node, *each, IN_TIME) for each in requests]
            return {each.result() for each in asked}

    def _status(
        self, node: Node, method: str, path: str, headers: dict[str, str], body: Any, seconds: float
    ) -> int:
        address = f"http://127.0.0.1:{node.port}{path}"
        try:
            return httpx.request(method, address, json=body, headers=headers, timeout=seconds).status_code
        except httpx.TimeoutException:
            raise AssertionError(f"{method} {path} hangs for more than {seconds} seconds") from None
        except httpx.HTTPError:
            return 0

    def written(self) -> dict[str, int]:
        """Process to how often its lanes have moved."""
        with psycopg.connect(self.cluster.database, autocommit=True) as connection:
            return dict(connection.execute(_MOVED).fetchall())

    def lapse(self, before: dict[str, int], other: int) -> None:
        """The leases of processes that have written nothing since end, and this node, which loses the lanes
        that it has, takes some of them. All processes may be among those: they wait for what the one that
        stands still has locked, and their lanes change hands as well."""
        still = [process for process, moved in self.written().items() if before.get(process) == moved]
        with psycopg.connect(self.cluster.database, autocommit=True) as connection:
            owners = [owner for (owner,) in connection.execute(_OWNERS, (still,))]
            taken = connection.execute(_TAKEN).fetchone()
            self.cluster.networks[other].close_all()
            deadline = time.monotonic() + DEADLINE
            while connection.execute(_TAKEN).fetchone() == taken:
                assert time.monotonic() < deadline, "nobody takes lanes that are free"
                connection.execute(_LAPSE, (owners,))
                time.sleep(0.1)

    def connections(self) -> int:
        """End every connection to the database, as an administrator may; returns how many there were."""
        with psycopg.connect(self.cluster.server.url(), autocommit=True) as connection:
            found = connection.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
                (self.cluster.database.partition("@/")[2].partition("?")[0],),
            ).fetchone()
        assert found is not None
        return int(found[0])


@contextlib.contextmanager
def scene(folder: Path, server: Postgres, database: str, count: int, **how: Any) -> Iterator[Scene]:
    with cluster(folder, server, database, count, POLICIES, **how) as made:
        yield Scene(made)


def audit_verify(node: Node, database: str, *words: str) -> tuple[bool, list[dict[str, Any]]]:
    """Whether `governance audit verify` found all well, and what it said."""
    key_file = str(node.folder.parent / "audit-key")
    told = CLEAN | {"GOVERNANCE_JWT_SECRET": SECRET, "GOVERNANCE_AUDIT_KEY_FILE": key_file}
    command = ["audit", "verify", "--format", "json", *words]
    where = ["--database-url", database, "--data-dir", str(node.folder / "data")]
    done = forked.run([*command, *where], node.folder, told)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0, json.loads(done.stdout)


NUMBERS = {
    "events": "event_no",
    "tool_calls": "call_no",
    "runs": "run_no",
    "audit": "audit_id",
    "approvals": "approval_id",
}


def unique_numbers(database: str) -> None:
    """No number is given to two things, though its column may have no index that says so."""
    with psycopg.connect(database) as connection:
        for table, column in NUMBERS.items():
            count, different = connection.execute(
                f"SELECT count(*), count(DISTINCT {column}) FROM {table}"  # type: ignore[arg-type]
            ).fetchone() or (0, 0)
            assert count == different, f"{table}.{column}: {count} rows, {different} numbers"
