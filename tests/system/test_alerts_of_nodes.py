"""Two processes behind one database raise an alert once, and `kill -9` loses nothing of what it counts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.application import write_files
from tests.harness.nodes import Node, nodes
from tests.harness.policy_bodies import on_tool
from tests.harness.watching import DETECTORS

pytestmark = pytest.mark.slow

NO_WIRES = on_tool("No wires", "block", "wire")
REFUSALS = {"detectors/repeated-refusals.yaml": DETECTORS["detectors/repeated-refusals.yaml"]}
PATIENCE = 90.0
"""Seconds, among them the lease of one that died."""


def counted(node: Node, admin: dict[str, str], wanted: int) -> list[dict[str, Any]]:
    """The alerts, once they count so many, or after a long time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found: list[dict[str, Any]] = node.http.get("/v1/alerts", headers=admin).json()
        if sum(each["count"] for each in found) >= wanted or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def test_one_of_two_is_killed_again_and_again(tmp_path: Path, database_url: str) -> None:
    shared = database_url.startswith("sqlite")
    for place in ["policies"] if shared else ["policies-0", "policies-1"]:
        write_files(tmp_path / place, REFUSALS)
    with nodes(tmp_path, database_url, 2, [NO_WIRES], shared=shared) as (one, other):
        admin, number = one.admin(), 0
        for dying, staying in ((one, other), (other, one)):
            for node in (one, other) * 10:
                number += 1
                assert node.call(number, "wire").json()["toolCallStatus"] == "blocked"
            dying.kill()  # whoever reads: what the other one has not read yet is in the log
            for _ in range(5):
                number += 1
                assert staying.call(number, "wire").json()["toolCallStatus"] == "blocked"
            found = counted(staying, admin, number)
            assert [each["count"] for each in found] == [number], found
            dying.restart()
        (alert,) = counted(one, admin, number)
        raised = one.http.get("/v1/audit?type=alert.raised", headers=admin).json()
        assert [each["details"]["alertId"] for each in raised] == [alert["alertId"]]
        agent = other.http.get("/v1/agents/agent-1", headers=admin).json()
        assert (agent["calls"], agent["decisions"]["blocked"]) == (number, number), json.dumps(agent)
