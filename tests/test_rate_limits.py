"""Rate limits are exact: of many calls at once, over processes, exactly as many pass as the limit says."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.support_nodes import KEY, Node, called, nodes

LIMIT = 100
CLIENTS = 64
CALLS = 6
"""Of each client."""

BEYOND = {
    "policyId": "not-too-many",
    "name": "Not too many",
    "action": "block",
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "pay"}],
    "rateLimit": {"limit": LIMIT, "windowSeconds": 3600, "per": ["toolName"]},
}


@pytest.mark.slow
def test_exactly_the_limit_passes_over_three_processes(tmp_path: Path, database_url: str) -> None:
    with nodes(tmp_path, database_url, 3, [BEYOND], shared=True) as made:
        statuses = storm(made, "first")
        assert statuses == Counter({"allowed": LIMIT, "blocked": CLIENTS * CALLS - LIMIT})
        # The counts outlive their processes.
        for node in made:
            node.kill()
        made[0].restart()
        assert made[0].call("later", "pay").json()["toolCallStatus"] == "blocked"
        assert made[0].call("other", "read").json()["toolCallStatus"] == "allowed"


def storm(made: list[Node], name: str) -> Counter[str]:
    """All clients at once, each on a process of its own choice, each call of another run."""
    statuses: Counter[str] = Counter()
    counting = threading.Lock()
    start = threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        with httpx.Client(
            base_url=made[number % len(made)].http.base_url, timeout=60, trust_env=False
        ) as http:
            start.wait()
            for index in range(CALLS):
                body = called(f"{name}-{number}-{index}", "pay", run=f"run-{number}")
                answer = http.post("/v1/events", json=body, headers={"X-API-Key": KEY})
                with counting:
                    statuses[answer.json().get("toolCallStatus", str(answer.status_code))] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return statuses
