"""Rate limits are exact: of many calls at once, over processes, exactly as many pass as the limit says."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.policy_bodies import policy_body, where

LIMIT = 100
CLIENTS = 64
PROCESSES = 3
CALLS = 6
"""Of each client."""

BEYOND = policy_body(
    "Not too many",
    "block",
    where("toolName", "starts_with", "pay"),
    rateLimit={"limit": LIMIT, "windowSeconds": 3600, "per": ["toolName"]},
)
EXACTLY = Counter({"allowed": LIMIT, "blocked": CLIENTS * CALLS - LIMIT})

pytestmark = pytest.mark.slow


def test_exactly_the_limit_passes_over_three_processes(tmp_path: Path, database_url: str) -> None:
    with nodes(tmp_path, database_url, PROCESSES, [BEYOND], shared=True) as made:
        for tool in ("pay-1", "pay-2"):
            assert storm(made, tool) == EXACTLY
        # The counts outlive their processes.
        for node in made:
            node.kill()
        made[0].restart()
        assert made[0].call("later", "pay-1").json()["toolCallStatus"] == "blocked"
        assert made[0].call("other", "read").json()["toolCallStatus"] == "allowed"


def test_exactly_the_limit_passes_although_a_process_is_killed(tmp_path: Path, database_url: str) -> None:
    """Who got no answer sends the event to another process: no call counts twice, none is forgotten."""
    with nodes(tmp_path, database_url, PROCESSES, [BEYOND], shared=True) as made:
        answers = itertools.count()

        def kill_one() -> None:
            if next(answers) == LIMIT // 2:
                made[1].kill()

        assert storm(made, "pay-3", kill_one) == EXACTLY
        assert made[1].process.poll() is not None
        admin = made[0].admin()
        passed = 0
        for number in range(CLIENTS):
            run = made[0].http.get(f"/v1/runs/run-pay-3-{number}", headers=admin).json()
            passed += sum(call["status"] == "allowed" for call in run["toolCalls"])
        assert passed == LIMIT


def storm(made: list[Node], tool: str, answered: Callable[[], None] = lambda: None) -> Counter[str]:
    """All clients at once, each on a process of its own choice, each of another run."""
    statuses: Counter[str] = Counter()
    counting = threading.Lock()
    start = threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        ports = [node.port for node in made[number % len(made) :] + made]
        connections = [HTTPConnection("127.0.0.1", port, timeout=60) for port in ports]
        start.wait()
        for index in range(CALLS):
            status = _told(connections, called(f"{tool}-{number}-{index}", tool, run=f"run-{tool}-{number}"))
            with counting:
                statuses[status] += 1
            answered()
        for connection in connections:
            connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return statuses


def _told(connections: list[HTTPConnection], body: dict[str, Any]) -> str:
    """What the first of these processes that is there says."""
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    for connection in connections:
        try:
            connection.request("POST", "/v1/events", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
        except (OSError, HTTPException):
            connection.close()
            continue
        return str(answer.get("toolCallStatus", answer))
    return "no answer"
