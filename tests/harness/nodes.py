"""Real service processes - `governance serve` as people start it - that may share one database.

    with nodes(folder, database_url, 2) as (one, other):
        one.http.post("/v1/events", ...)

Each has a policies folder of its own, as machines have, unless `shared` says that they are processes of one
machine. `kill` is a `kill -9` of everything below the process. `serve` starts one that is told nothing. All
but those that begin `Anew` are forked from a process that has loaded all modules.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import httpx

from tests.harness import forked
from tests.harness.application import NO_LAUNCHES, PASSWORD, environment, event, write_policies
from tests.harness.places import ROOT

KEY = "agk_of_the_agent_that_tests_nodes"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GOVERNANCE_")} | {
    "PYTHONPATH": str(ROOT)
}
"""The environment of whoever runs the tests, without settings of a service."""
Running = subprocess.Popen[bytes] | forked.Forked


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The processes that a process started."""
    found: list[int] = []
    fresh = [pid]
    while fresh:
        below = []
        for each in fresh:
            for task in Path(f"/proc/{each}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    below += map(int, task.read_text().split())
        found += below
        fresh = below
    return found


class Process:
    """One `governance serve`, alone in its process group and told nothing but this."""

    def __init__(self, folder: Path, *words: str, **settings: str) -> None:
        self.folder = folder
        limits = httpx.Limits(max_connections=200)
        self.http = httpx.Client(timeout=30, trust_env=False, verify=False, limits=limits)
        self._words, self._settings = words, settings
        for said in ("output", "errors"):
            (folder / said).unlink(missing_ok=True)
        self.process = self._start()

    def _start(self) -> Running:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output").open("ab") as output, (self.folder / "errors").open("ab") as errors:
            return self._run(output, errors)

    def _run(self, output: IO[bytes], errors: IO[bytes]) -> Running:
        if "LD_PRELOAD" in self._settings:  # which is looked at before any instruction
            return Anew._run(self, output, errors)  # type: ignore[arg-type]
        return forked.start(["serve", *self._words], self.folder, self.environment, output, errors)

    @property
    def environment(self) -> dict[str, str]:
        """Of the process."""
        return CLEAN | self._settings

    def ready(self, seconds: float = 60) -> Self:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r'service(?: +|":")(http[^"\s]+)', self.output):
                self.http.base_url = httpx.URL(found[1])
                with contextlib.suppress(httpx.HTTPError):
                    if self.http.get("/health/ready").status_code == 200:
                        return self
            time.sleep(0.05)
        raise AssertionError(f"it did not start:\n{self.output}{self.errors}")

    def url(self) -> str:
        """Where it serves, once it does."""
        return str(self.ready().http.base_url).rstrip("/")

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text(encoding="utf-8", errors="replace")

    def below(self) -> list[int]:
        """The processes that it started."""
        return descendants(self.process.pid)

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

    def restart(self) -> Self:
        self.process = self._start()
        return self.ready()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode


class Anew(Process):
    """One that begins as a person's does, with its first instruction."""

    def _run(self, output: IO[bytes], errors: IO[bytes]) -> Running:
        return subprocess.Popen(
            [sys.executable, "-m", "api.cli", "serve", *self._words],
            cwd=self.folder,
            env=self.environment,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )


class Node(Process):
    """One at an address that it keeps, with an admin and a key."""

    def __init__(
        self, folder: Path, database: str, policies: Path, changes: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        told = {
            "GOVERNANCE_PORT": str(self.port),
            "GOVERNANCE_POLICIES_DIR": str(policies),
            "GOVERNANCE_DATABASE_URL": database,
            "GOVERNANCE_ADMIN_PASSWORD": PASSWORD,
            "GOVERNANCE_AUDIT_KEY_FILE": str(folder.parent / "audit-key"),
            "GOVERNANCE_API_KEY": KEY,
            "GOVERNANCE_KEY_PENDING_APPROVALS": "0",  # loads hold thousands
            **(changes or {}),
        }
        super().__init__(folder, **environment(folder, **told))
        self.http.base_url = httpx.URL(f"http://127.0.0.1:{self.port}")

    @property
    def log(self) -> str:
        return self.output + self.errors

    def admin(self) -> dict[str, str]:
        """The header of the first admin."""
        answer = self.http.post("/auth/login", json={"email": "admin@localhost", "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        return {"Authorization": f"Bearer {answer.json()['accessToken']}"}

    def call(self, number: int | str, tool: str = "pay", key: str = KEY, **changes: Any) -> httpx.Response:
        """Report a tool call."""
        return self.http.post("/v1/events", json=called(number, tool, **changes), headers={"X-API-Key": key})


def wait_for(met: Callable[[], bool], node: Node) -> None:
    deadline = time.monotonic() + 90  # cleaning is tried again after a minute
    while not met():
        assert time.monotonic() < deadline and node.process.poll() is None, node.log
        time.sleep(0.02)


def called(number: int | str, tool: str = "pay", run: str = "run-1", **payload: Any) -> dict[str, Any]:
    call = {"toolCallId": f"call-{number}", "toolName": tool, "inputPayload": payload}
    fields = {"runId": run, "agentId": "agent-1", **call}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", fields)


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
            node.stop()
            node.http.close()


@contextlib.contextmanager
def serve(folder: Path, *words: str, kind: type[Process] = Process, **settings: str) -> Iterator[Process]:
    """One with the least of policies, as a person's first start is."""
    write_policies(folder / "policies.d", [NO_LAUNCHES])
    process = kind(folder, *("--port", "0", *words), **settings)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.kill()
        process.http.close()


def printed(process: Process, name: str) -> str:
    """What the start printed under a name."""
    found = re.search(rf"^ +{name} +(\S+)$", process.output, re.MULTILINE)
    assert found, process.output
    return found[1]
