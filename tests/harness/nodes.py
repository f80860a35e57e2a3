"""Real service processes - `governance serve` as people start it - that may share one database.

    with nodes(folder, database_url, 2) as (one, other):
        one.http.post("/v1/events", ...)

Each has a policies folder of its own, as machines have, unless `shared` says that they are processes of one
machine. `kill` is a `kill -9` of everything below the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.harness.places import ROOT

KEY = "agk_of_the_agent_that_tests_nodes"
SECRET = "a secret of tests that is as long as the longest digest of any algorithm needs it"
PASSWORD = "correct horse battery staple"


def write_policies(folder: Path, policies: Iterable[Mapping[str, Any]]) -> None:
    place = folder / "policies"
    place.mkdir(parents=True, exist_ok=True)
    for policy in policies:
        document = {"apiVersion": "governance/v1", "kind": "Policy", "enabled": True, **policy}
        (place / f"{policy['policyId']}.yaml").write_text(json.dumps(document), encoding="utf-8")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One `governance serve`, alone in its process group."""

    def __init__(
        self, folder: Path, database: str, policies: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GOVERNANCE_")},
            "PYTHONPATH": str(ROOT),
            "GOVERNANCE_PORT": str(self.port),
            "GOVERNANCE_DATA_DIR": str(folder / "data"),
            "GOVERNANCE_POLICIES_DIR": str(policies),
            "GOVERNANCE_DATABASE_URL": database,
            "GOVERNANCE_JWT_SECRET": SECRET,
            "GOVERNANCE_ADMIN_PASSWORD": PASSWORD,
            "GOVERNANCE_AUDIT_KEY_FILE": str(folder.parent / "audit-key"),
            "GOVERNANCE_API_KEY": KEY,
            **(environment or {}),
        }
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=30,
            trust_env=False,
            limits=httpx.Limits(max_connections=200),
        )
        self._log = folder / f"log-{self.port}"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "api.cli", "serve"],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ready(self, seconds: float = 60) -> Node:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if self.http.get("/health/ready").status_code == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"the node did not start:\n{self.log}")

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def below(self) -> list[int]:
        """The processes that it started."""
        found: list[int] = []
        fresh = [self.process.pid]
        while fresh:
            below = []
            for pid in fresh:
                for task in Path(f"/proc/{pid}/task").glob("*/children"):
                    with contextlib.suppress(OSError):
                        below += map(int, task.read_text().split())
            found += below
            fresh = below
        return found

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Every process of it stands still, and keeps its connections."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)

    def restart(self) -> Node:
        self.process = self._start()
        return self.ready()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    # What tests do with it -------------------------------------------------------------------------

    def admin(self) -> dict[str, str]:
        """The header of the first admin."""
        answer = self.http.post("/auth/login", json={"email": "admin@localhost", "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        return {"Authorization": f"Bearer {answer.json()['accessToken']}"}

    def call(self, number: int | str, tool: str = "pay", key: str = KEY, **changes: Any) -> httpx.Response:
        """Report a tool call."""
        return self.http.post("/v1/events", json=called(number, tool, **changes), headers={"X-API-Key": key})


def called(number: int | str, tool: str = "pay", run: str = "run-1", **payload: Any) -> dict[str, Any]:
    return {
        "eventId": f"event-{number}",
        "runId": run,
        "agentId": "agent-1",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": "tool.called",
        "metadata": {"toolCallId": f"call-{number}", "toolName": tool, "inputPayload": payload},
    }


@contextlib.contextmanager
def nodes(
    folder: Path,
    database: str | Sequence[str],
    count: int,
    policies: Sequence[Mapping[str, Any]] = (),
    *,
    shared: bool = False,
    **environment: str,
) -> Iterator[list[Node]]:
    """`database` is one address for all, or the way of each node to it."""
    ways = [database] * count if isinstance(database, str) else database
    made: list[Node] = []
    try:
        for number, way in zip(range(count), ways, strict=True):
            place = folder / "policies" if shared else folder / f"policies-{number}"
            if number == 0 or not shared:
                write_policies(place, policies)
            made.append(Node(folder / f"node-{number}", way, place, environment))
            if number == 0:
                made[0].ready()
        for node in made:
            node.ready()
        yield made
    finally:
        for node in made:
            node.http.close()
            node.stop()
