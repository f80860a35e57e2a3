"""One service for the tests of hooks, and a hook that is run in this process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.hosts.hook import answered
from tests.harness.agent_host import Consequence, Ended, consequence, told
from tests.harness.policy_bodies import on_command, where
from tests.harness.running_service import Served

HELD, REFUSED, BRIEF = "git push", "rm -rf /", "npm publish"
_sessions = itertools.count(1)


def impatient(now: float) -> Callable[[], float]:
    """A clock by which the host's time is over after the first answer."""
    times = itertools.chain([now], itertools.repeat(now + 10_000))
    return lambda: next(times)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    policies = [
        on_command("No deletions", "block", REFUSED),
        on_command("Hold pushes", "require_approval", HELD),
        on_command("Hold releases", "require_approval", BRIEF, approval={"expiresAfterSeconds": 1}),
        on_command("Label what was read", "allow", "curl", on="tool.completed", labels={"add": ["read"]}),
        on_command("No sending after reading", "block", "scp"),
    ]
    policies[-1]["matchConditions"] += [where("run.labels", "equals", "read")]
    with Served(tmp_path_factory.mktemp("service"), policies) as served:
        yield served


@dataclass
class Agent:
    """An agent host with its hook, in a session of its own."""

    service: Served
    host: str
    folder: Path
    url: str = ""
    key: str = ""
    fail_mode: str = "closed"
    timeout: float = 90.0
    session: str = field(default_factory=lambda: f"session-{next(_sessions)}")
    calls: int = 0

    def hook(self, raw: bytes, **how: Any) -> Ended:
        words = ["--url", self.url or f"http://127.0.0.1:{self.service.port}"]
        words += ["--agent-id", f"agent-{self.session}", "--fail-mode", self.fail_mode]
        words += ["--timeout", str(self.timeout)]
        environment = {
            "GOVERNANCE_API_KEY": self.key or self.service.api_key,
            "GOVERNANCE_JOURNAL": str(self.folder / "journal"),
        }
        if how.pop("impatient", False):
            how["clock"] = impatient(time.monotonic())
        said = answered(self.host, words, environment, raw, time.monotonic(), **how)
        return Ended(said.output.decode(), said.code, said.error)

    def call(self, command: str = "ls", **how: Any) -> Consequence:
        """The model calls a tool; each time the host gives it a new name."""
        self.calls += 1
        raw = told(self.host, "call", session=self.session, call=f"c-{self.calls}", command=command)
        return consequence(self.host, self.hook(raw, **how))

    def tell(self, kind: str, command: str = "ls") -> Ended:
        name = f"c-{self.calls}"
        return self.hook(told(self.host, kind, session=self.session, call=name, command=command))

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service.call("agent", "GET", f"/v1/runs/{self.session}").json()
        return found

    def approval(self, number: int = -1) -> str:
        held = [call["approvalId"] for call in self.run["toolCalls"] if call.get("approvalId")]
        return str(held[number])

    def resolve(self, how: str, approval_id: str) -> None:
        self.service.answered("reviewer", "POST", f"/v1/approvals/{approval_id}/{how}")

    def meanwhile(self, job: Callable[[], None]) -> threading.Thread:
        """Do it as soon as the run waits for a person."""

        def wait_and_do() -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                answer = self.service.call("agent", "GET", f"/v1/runs/{self.session}")
                if answer.status_code == 200 and "awaiting_approval" in answer.text:
                    break
                time.sleep(0.02)
            job()

        thread = threading.Thread(target=wait_and_do)
        thread.start()
        return thread


@pytest.fixture
def agent(service: Served, tmp_path: Path) -> Callable[..., Agent]:
    return lambda host, **how: Agent(service, host, tmp_path, **how)
