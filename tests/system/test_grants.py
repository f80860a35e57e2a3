"""Grants are exact: of many calls at once, over processes, exactly as many pass as were granted, and none
once they are revoked."""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.nodes import KEY, Node, called, nodes
from tests.harness.policy_bodies import policy_body, where

CLIENTS = 24
GRANTED = 40
CALLS = 96
PROCESSES = 3

HOLD = policy_body("Ask first", "require_approval", where("toolName", "starts_with", "mail"), policyId="ask")
EXACTLY = Counter({"allowed": GRANTED, "awaiting_approval": CALLS - GRANTED})

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("killed", [False, True])
def test_exactly_what_was_granted_passes(tmp_path: Path, database_url: str, killed: bool) -> None:
    """Who got no answer, since a process was killed, sends the event to another one: no call counts twice,
    and none is forgotten."""
    with nodes(tmp_path, database_url, PROCESSES, [HOLD], shared=True) as made:
        admin = made[0].admin()
        grant = granted(made[0], admin, "mail", GRANTED)
        answers = itertools.count()

        def one(number: int) -> str:
            if killed and next(answers) == GRANTED // 2:
                made[1].kill()
            return told(made[number % PROCESSES :] + made, number)

        with ThreadPoolExecutor(CLIENTS) as clients:
            assert Counter(clients.map(one, range(CALLS))) == EXACTLY
        found = made[0].http.get(f"/v1/grants/{grant}", headers=admin).json()
        assert (found["status"], found["used"]) == ("used_up", GRANTED)
        runs = [made[0].http.get(f"/v1/runs/run-{number}", headers=admin).json() for number in range(CALLS)]
        calls = [call for run in runs for call in run["toolCalls"]]
        assert Counter(call["status"] for call in calls) == EXACTLY
        assert all((call.get("grantIds") == [grant]) is (call["status"] == "allowed") for call in calls)
        # What is revoked is revoked everywhere at once.
        grant = granted(made[0], admin, "mail-2", 100)
        alive = [node for node in made if node.process.poll() is None]
        assert {told([node], f"before-{node.port}", "mail-2") for node in alive} == {"allowed"}
        assert made[0].http.post(f"/v1/grants/{grant}/revoke", headers=admin).status_code == 200
        assert {told([node], f"after-{node.port}", "mail-2") for node in alive} == {"awaiting_approval"}
        verified = made[0].http.get("/v1/audit/verify", headers=admin, timeout=60).json()
        assert verified["valid"], verified["problems"]


def granted(node: Node, admin: dict[str, str], tool: str, calls: int) -> str:
    """The id of a grant for such calls of the agent."""
    held: dict[str, Any] = node.call(f"first-{tool}", tool, run="first").json()
    body = {"grant": {"scope": "agent", "calls": calls, "minutes": 60}}
    path = f"/v1/approvals/{held['approvalId']}/approve"
    answer = node.http.post(path, json=body, headers=admin)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["grant"]["grantId"])


def told(some: list[Node], number: int | str, tool: str = "mail") -> str:
    """What the first of these processes that is there says to the call."""
    body = called(number, tool, run=f"run-{number}")
    for node in some:
        try:
            answer = node.http.post("/v1/events", json=body, headers={"X-API-Key": KEY}, timeout=60)
        except httpx.TransportError:
            continue
        return str(answer.json().get("toolCallStatus", answer.text))
    return "no answer"
