"""A disk that fails, is full or writes short at any single step: a clear refusal, and nothing half done.

The service is a real `governance serve` whose calls of the system fail where the test says (`disk_faults.c`):
the lock file, the write-ahead log and its fsync, the policy files and their rename, everything that a request
changes on disk. Each story is told once for each step and each kind of fault; after each the disk is well
again, and the same process must go on as if nothing had been. `EVERY_STEP=1` leaves out none.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.database_faults import refused
from tests.faults.disk_faults import DiskFaults
from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.policy_bodies import on_tool

pytestmark = pytest.mark.slow

HOLD = on_tool("Hold payments", "require_approval", "pay")
WIRES = on_tool("Block wires", "block", "wire")
LIMIT = on_tool("Limit payments", "block", "pay", rateLimit={"limit": 100_000, "windowSeconds": 3600})
EVENTS = ["approval.requested", "approval.resolved", "tool.blocked", "run.completed", "policy.changed"]
AGENT = {"X-API-Key": KEY}
SOON = 60.0
"""Seconds in which a policy file is put right after a write that failed."""
EVERY_STEP = bool(os.environ.get("EVERY_STEP"))
"""Otherwise some of the steps of each story, since all take ten minutes."""


ASIDE = {"checkpoints", "nodes", "agents", "alerts", "detector_tallies", "log_positions", "log_readers"}
"""Written aside, by time, whatever a request does: signatures, heartbeats, and what detectors have read."""
COLUMNS = {"api_keys": "key_id, organisation_id, digest, agent_id, user_id, scopes, revoked_at, expires_at"}
"""All but when a key was last used, which is written down once a minute."""


class World:
    """A service on a failing disk, and a look at its database from outside."""

    def __init__(self, node: Node, faults: DiskFaults | None, database: Path) -> None:
        self.node, self.database = node, database
        self._faults = faults
        self.policies = node.folder.parent / "policies-0"
        self.admin = node.admin()
        self._outside = sqlite3.connect(database, isolation_level=None)
        self.tables = [
            name
            for (name,) in self._outside.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_") and name not in ASIDE
        ]
        # Nothing is sent during the test: the first attempt is an hour away.
        hook = {"url": "https://hooks.example/here", "events": EVENTS}
        assert self.post("/v1/webhooks", hook).status_code == 201
        self.numbers = iter(range(1, 1_000_000))
        self.accepted = 0

    @property
    def faults(self) -> DiskFaults:
        assert self._faults is not None
        return self._faults

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.node.http.post(path, json={} if body is None else body, headers=self.admin)

    def delete(self, path: str) -> httpx.Response:
        return self.node.http.delete(path, headers=self.admin)

    def get(self, path: str) -> Any:
        return self.node.http.get(path, headers=self.admin).json()

    def event(self, name: str, tool: str, **changes: Any) -> httpx.Response:
        body = {**called(name, tool, run=f"run-{name}"), **changes}
        return self.node.http.post("/v1/events", json=body, headers=AGENT)

    def approval(self, name: str) -> str:
        return str(self.event(name, "pay").json()["approvalId"])

    def state(self) -> dict[str, Any]:
        """Every row of the database and every byte of the policies: what a refusal must leave as it was."""
        self._outside.execute("BEGIN")
        rows: dict[str, Any] = {
            name: sorted(map(repr, self._outside.execute(f'SELECT {COLUMNS.get(name, "*")} FROM "{name}"')))
            for name in self.tables
        }
        self._outside.execute("COMMIT")
        files = {}
        for path in self.policies.rglob("*.yaml"):
            with contextlib.suppress(FileNotFoundError):  # one that is being put back
                files[path.name] = path.read_bytes()
        return rows | {"files": files}

    def decided(self) -> list[Any]:
        """How the process itself would decide now, whatever its disk says."""
        found: list[Any] = []
        for tool in ("pay", "wire", "read", "new"):
            call = {"toolName": tool, "inputPayload": {}, "agentId": "agent-1"}
            answer = self.post("/v1/policies/simulate", call).json()
            found.append((tool, answer["toolCallStatus"], [m["policyId"] for m in answer["matchedPolicies"]]))
        found.append(sorted(halt["haltId"] for halt in self.get("/v1/halts")))
        return found

    def close(self) -> None:
        self._outside.close()


@contextlib.contextmanager
def world(folder: Path, faults: type[DiskFaults] | None = DiskFaults) -> Iterator[World]:
    place, work = folder / "shim", folder / "work"
    place.mkdir()
    work.mkdir()
    disk = faults(place, work) if faults else None
    database = work / "governance.sqlite"
    environment = {**(disk.environment if disk else {}), "GOVERNANCE_WEBHOOK_RETRY": "3600"}
    with nodes(work, f"sqlite:///{database}", 1, [HOLD, WIRES, LIMIT], **environment) as (node,):
        made = World(node, disk, database)
        yield made
        made.close()
        verified = node.http.get("/v1/audit/verify", headers=made.admin).json()
        assert verified["valid"], verified
        assert "Traceback" not in node.log


Prepare = Callable[[World, str], Any]
Act = Callable[[World, str, Any], httpx.Response]


@dataclass(frozen=True)
class Story:
    """One request. `prepare` makes what it needs while the disk is well; `name` is another each time."""

    title: str
    act: Act
    prepare: Prepare = lambda _world, _name: None
    loosens: bool = False
    """Half of it might decide something else."""
    twice: bool = False
    """Events: what fails on the event loop is done again by the writer's thread."""


def event_of(kind: str) -> Callable[[str], dict[str, Any]]:
    return lambda name: {**called(name, "read", run=f"run-{name}"), "eventId": f"e-{name}", "eventType": kind}


def finish_run(w: World, name: str, _: Any) -> httpx.Response:
    body = event_of("run.completed")(name)
    del body["metadata"]
    return w.node.http.post("/v1/events", json=body, headers=AGENT)


def finish_call(w: World, name: str, _: Any) -> httpx.Response:
    body = event_of("tool.completed")(name)
    return w.node.http.post("/v1/events", json=body, headers=AGENT)


def batch(w: World, name: str, _: Any) -> httpx.Response:
    """A batch is answered 200 with a status for each event, since its events may go in by several commits:
    then `w.accepted` of them stand, and the answer is that of the others."""
    tools = ("read", "pay", "wire", "pay")
    events = [called(f"{name}-{number}", tool, run=f"run-{name}") for number, tool in enumerate(tools)]
    answer = w.node.http.post("/v1/events/batch", json={"events": events}, headers=AGENT)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    refusals = [result for result in results if result["status"] != 200]
    w.accepted = len(results) - len(refusals)
    if not refusals:
        return answer
    problem = {"content-type": "application/problem+json", "retry-after": "1"}
    return httpx.Response(refusals[0]["status"], json=refusals[0]["error"], headers=problem)


def change(w: World, policy_id: str, **changes: Any) -> httpx.Response:
    return w.node.http.patch(f"/v1/policies/{policy_id}", json=changes, headers=w.admin)


def new_policy(w: World, name: str, _: Any = None) -> httpx.Response:
    conditions = [{"field": "toolName", "operator": "equals", "value": "new"}]
    body = {"policyId": f"p-{name}", "name": name, "action": "block", "enabled": True}
    body |= {"matchConditions": conditions}
    return w.post("/v1/policies", body)


def halted(w: World, name: str) -> str:
    w.post("/v1/halt", {"scope": "agent", "agentId": name, "reason": "odd"})
    return name


def made(path: str, body: dict[str, Any], identifier: str) -> Prepare:
    def prepare(w: World, name: str) -> str:
        unique = {key: value.replace("NAME", name) for key, value in body.items() if isinstance(value, str)}
        answer = w.post(path, {**body, **unique})
        assert answer.status_code == 201, answer.text
        return str(answer.json()[identifier])

    return prepare


HOOK = {"url": "https://hooks.example/NAME", "events": ["tool.blocked"]}
STORIES = (
    Story("a held call", lambda w, name, _: w.event(name, "pay"), twice=True),
    Story("a blocked call", lambda w, name, _: w.event(name, "wire"), twice=True),
    Story("a batch", batch, twice=True),
    Story("a completion", finish_call, lambda w, name: w.event(name, "read"), twice=True),
    Story("the end of a run", finish_run, lambda w, name: w.approval(name), twice=True),
    Story("an approval", lambda w, _, apr: w.post(f"/v1/approvals/{apr}/approve"), World.approval),
    Story("a rejection", lambda w, _, apr: w.post(f"/v1/approvals/{apr}/reject"), World.approval),
    Story(
        "a looser policy",
        lambda w, name, _: change(w, "block-wires", action="warn", description=name),
        lambda w, _: settled(lambda: change(w, "block-wires", action="block")),
        loosens=True,
    ),
    Story(
        "a stricter policy",
        lambda w, name, _: change(w, "block-wires", action="block", description=name),
        lambda w, _: settled(lambda: change(w, "block-wires", action="warn")),
        loosens=True,
    ),
    Story("a new policy", new_policy, loosens=True),
    Story(
        "a deleted policy", lambda w, name, _: w.delete(f"/v1/policies/p-{name}"), new_policy, loosens=True
    ),
    Story("a halt", lambda w, name, _: halt(w, name), loosens=True),
    Story("the end of a halt", lambda w, name, _: resume(w, name), halted, loosens=True),
    Story("a new webhook", lambda w, name, _: w.post("/v1/webhooks", {**HOOK, "description": name})),
    Story(
        "a new secret of a webhook",
        lambda w, _, hook: w.post(f"/v1/webhooks/{hook}/rotate"),
        made("/v1/webhooks", HOOK, "webhookId"),
    ),
    Story("a new key", lambda w, name, _: w.post("/v1/api-keys", {"name": name})),
    Story(
        "a revoked key",
        lambda w, _, key: w.delete(f"/v1/api-keys/{key}"),
        made("/v1/api-keys", {"name": "NAME"}, "keyId"),
    ),
)


def halt(w: World, name: str) -> httpx.Response:
    return w.post("/v1/halt", {"scope": "agent", "agentId": name, "reason": "odd"})


def resume(w: World, name: str) -> httpx.Response:
    return w.post("/v1/resume", {"scope": "agent", "agentId": name})


def settled(act: Callable[[], httpx.Response]) -> httpx.Response:
    """The answer once a policy file that a failed write left behind is put right."""
    deadline = time.monotonic() + SOON
    while True:
        answer = act()
        if "not yet put right" not in answer.text:
            assert answer.is_success, answer.text
            return answer
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Rows that were added; a counter has a row since its first use."""
    return {name: len(after[name]) - len(before[name]) for name in before if name != "counters"}


@pytest.mark.parametrize(
    ("kind", "stays"),
    [("fails", False), ("full", True), ("short", True), ("short", False), ("late", False)],
)
def test_a_fault_at_every_step_of_every_request(kind: str, stays: bool, tmp_path: Path) -> None:
    with world(tmp_path) as w:
        for story in STORIES:
            tell(w, story, kind, stays)


def steps_to_fail(count: int) -> Sequence[int]:
    """All of them, or the ends and some between."""
    if EVERY_STEP:
        return range(count + 3)
    return sorted({0, 1, count - 2, count - 1, random.randrange(count), random.randrange(count)})


def tell(w: World, story: Story, kind: str, stays: bool) -> None:
    """The story again and again, with a fault at another step each time."""
    steps = []
    for _ in range(2):  # now and then the log is copied meanwhile, which takes steps of its own
        name = f"n{next(w.numbers)}"
        prepared = story.prepare(w, name)
        before = w.state()
        w.faults.count()
        assert story.act(w, name, prepared).is_success
        w.faults.clear()
        steps.append(w.faults.steps)
        whole = grown(before, w.state())
    least = 2 if stays or kind != "short" else 1
    if story.twice and not stays:
        least = 0
    refusals = 0
    chosen = steps_to_fail(min(steps))
    # What runs aside may take the step that should fail; then others are tried.
    further = random.sample(range(min(steps)), min(12, *steps))
    for number, step in enumerate([*chosen, *further]):
        if number >= len(chosen) and refusals >= least:
            break
        name = f"n{next(w.numbers)}"
        prepared = story.prepare(w, name)
        before, decided = w.state(), w.decided() if story.loosens else []
        w.accepted = 0
        w.faults.arm(step, kind, stays=stays)
        answer = story.act(w, name, prepared)
        w.faults.clear()
        where = f"{story.title}, {kind}, step {step}: {w.faults.what}"
        if answer.is_success:
            # The story took fewer steps this time, or what failed could be done without.
            assert grown(before, w.state()) == whole, where
            continue
        assert w.faults.reached, where
        refused(answer)
        refusals += 1
        if kind == "full" and "-wal" in w.faults.what and "sync" not in w.faults.what:
            assert answer.status_code == 507, where
        after = w.state()
        if stays:
            # A file that could not be put back is so as soon as the disk lets us; till then it counts not.
            after["files"] = before["files"]
        if w.accepted:
            assert grown(before, after)["events"] == w.accepted, where
        else:
            assert after == before, where
        assert (w.decided() if story.loosens else []) == decided, where
        again = settled(lambda: story.act(w, name, prepared))  # noqa: B023 - called at once
        assert "idempotent-replay" not in again.headers, where
        assert grown(before, w.state()) == whole, where
    assert refusals >= least, f"{story.title}: {refusals} refusals"
