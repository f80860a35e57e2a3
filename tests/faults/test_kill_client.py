"""`kill -9` of the service, and of agents: nothing is let through in `closed`, nothing is lost in `open`.

Real agents ask a real `governance serve` that dies under them at random moments, again and again. At the end
each line of their ledgers is held against what the service has recorded.

`make test-faults` runs 50 rounds of each kind; `KILL_ROUNDS` sets any other number.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from governance_client import ClientSettings, Governance

from tests.faults.ledger import POLICIES
from tests.harness.nodes import CLEAN, KEY, Node, nodes
from tests.harness.waiting import until

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
PATIENCE = 120.0


class Agents:
    """Agent processes, one ledger, one journal."""

    def __init__(self, folder: Path, node: Node, fail_mode: str) -> None:
        self.folder, self.journal, self.path = folder, folder / "journal", folder / "ledger"
        self.settings = {
            "GOVERNANCE_URL": f"http://127.0.0.1:{node.port}",
            "GOVERNANCE_API_KEY": KEY,
            "GOVERNANCE_AGENT_ID": "agent-1",
            "GOVERNANCE_FAIL_MODE": fail_mode,
            "GOVERNANCE_JOURNAL": str(self.journal),
        }
        self.path.touch()
        self.living: list[subprocess.Popen[bytes]] = []
        self.begun = 0

    def start(self) -> None:
        self.begun += 1
        command = [sys.executable, "-m", "tests.faults.client_agent", f"run-{self.begun}", str(self.path)]
        with (self.folder / "errors").open("ab") as errors:
            self.living.append(subprocess.Popen(command, env=CLEAN | self.settings, stderr=errors))

    def kill_one(self) -> None:
        self._kill(self.living.pop(0))

    def kill_all(self) -> None:
        while self.living:
            self.kill_one()

    def _kill(self, agent: subprocess.Popen[bytes]) -> None:
        assert agent.poll() is None, (self.folder / "errors").read_text()
        agent.send_signal(signal.SIGKILL)
        agent.wait(60)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def wait_for(self, count: int, **wanted: Any) -> None:
        """So many more lines with these values."""

        def matching() -> int:
            return sum(all(line[name] == value for name, value in wanted.items()) for line in self.lines)

        enough, deadline = matching() + count, time.monotonic() + PATIENCE
        while matching() < enough:
            said = f"{self.lines[-5:]}\n{(self.folder / 'errors').read_text()[-5_000:]}"
            assert time.monotonic() < deadline, f"no {count} lines of {wanted} in time:\n{said}"
            time.sleep(0.05)


@contextlib.contextmanager
def scene(folder: Path, fail_mode: str) -> Iterator[tuple[Node, Agents]]:
    with nodes(folder, "", 1, POLICIES) as (node,):
        agents = Agents(folder, node, fail_mode)
        try:
            agents.start()
            agents.start()
            yield node, agents
        finally:
            for agent in agents.living:
                agent.kill()
                agent.wait(60)


def recorded(node: Node) -> tuple[dict[tuple[str, str], str], Counter[str]]:
    """The status of each recorded call, and how often each was reported as made while nobody was there."""
    with contextlib.closing(sqlite3.connect(node.folder / "data" / "governance.sqlite")) as database:
        rows = database.execute(
            "SELECT runs.run_id, tool_call_id, tool_calls.status FROM tool_calls JOIN runs USING (run_no)"
        ).fetchall()
        bodies = [json.loads(row[0]) for row in database.execute("SELECT body FROM events")]
    offline = Counter(
        body["metadata"]["toolCallId"]
        for body in bodies
        if body["eventType"] == "tool.called" and body["metadata"].get("decidedOffline") is True
    )
    return {(run_id, call_id): status for run_id, call_id, status in rows}, offline


def test_a_closed_agent_runs_nothing_that_was_not_allowed(tmp_path: Path) -> None:
    chance = random.Random()
    with scene(tmp_path, "closed") as (node, agents):
        for _ in range(ROUNDS):
            agents.wait_for(20, status="allowed")
            time.sleep(chance.uniform(0, 0.3))
            node.kill()
            time.sleep(chance.uniform(0, 0.3))
            node.restart()
        agents.wait_for(20, status="allowed")
        agents.kill_all()
        statuses, offline = recorded(node)
        lines = agents.lines
    assert {line["status"] for line in lines} <= {"allowed", "blocked", "awaiting_approval", "unavailable"}
    ran = [line for line in lines if line["status"] == "allowed"]
    assert not {line["tool"] for line in ran} & {"wire", "pay"}
    assert [line for line in ran if statuses.get((line["run"], line["call"])) != "allowed"] == []
    assert not offline
    assert not any(line["offline"] for line in lines)
    print(f"\n{ROUNDS} kills: {len(lines)} calls, {len(ran)} of them ran")


def test_an_open_agent_loses_nothing_that_ran(tmp_path: Path) -> None:
    chance = random.Random()
    with scene(tmp_path, "open") as (node, agents):
        for _ in range(ROUNDS):
            agents.wait_for(20, status="allowed", offline=False)
            time.sleep(chance.uniform(0, 0.3))
            node.kill()
            agents.wait_for(chance.randint(1, 30), offline=True)
            if chance.random() < 0.7:
                agents.kill_one()
                agents.start()
            node.restart()
            if chance.random() < 0.3:
                agents.kill_one()
                agents.start()
        agents.kill_all()
        with Governance(ClientSettings.from_env(agents.settings)) as last:
            last.core.journal("agent-1")
            until(lambda: not list(agents.journal.glob("*.jsonl")), PATIENCE, "journals stay")
        statuses, offline = recorded(node)
        lines = agents.lines
    ran = [line for line in lines if line["status"] == "allowed"]
    assert [line for line in ran if (line["run"], line["call"]) not in statuses] == []
    asked = [line for line in ran if not line["offline"]]
    assert [line for line in asked if statuses[line["run"], line["call"]] != "allowed"] == []
    assert not {line["tool"] for line in asked} & {"wire", "pay"}
    left = [line["call"] for line in ran if line["offline"]]
    assert left
    assert [call for call in left if offline[call] != 1] == []
    assert max(offline.values()) == 1
    assert not wired_after_refusal(lines)
    print(f"\n{ROUNDS} kills: {len(lines)} calls, {len(left)} ran while the service was away")


def wired_after_refusal(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What ran although the same agent had been told before that it must not."""
    refused: set[str] = set()
    found = []
    for line in lines:
        if line["tool"] == "wire" and line["status"] == "blocked":
            refused.add(line["run"])
        elif line["tool"] == "wire" and line["status"] == "allowed" and line["run"] in refused:
            found.append(line)
    return found
