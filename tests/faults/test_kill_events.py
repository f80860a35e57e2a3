"""`kill -9` of the service in the middle of events and resolutions: whatever it acknowledged is there.

Agents and reviewers work against a real `governance serve` until it dies under them, again and again. After
each restart every answer that they had got must still be true, word for word.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support_nodes import KEY, Node, nodes

pytestmark = pytest.mark.slow

ROUNDS = 10 if os.environ.get("CI_REQUIRE_ALL") else 3
AGENTS = 5
LIMIT = 60
AGENT = {"X-API-Key": KEY}
POLICIES = [
    {
        "policyId": "hold-payments",
        "name": "Hold payments",
        "action": "require_approval",
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "pay"}],
    },
    {
        "policyId": "block-wires",
        "name": "Block wires",
        "action": "block",
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "wire"}],
    },
    {
        "policyId": "limit-mails",
        "name": "Limit mails",
        "action": "block",
        "matchConditions": [{"field": "toolName", "operator": "equals", "value": "mail"}],
        "rateLimit": {"limit": LIMIT, "windowSeconds": 86_400, "per": ["toolName"]},
    },
]


@dataclass
class Load:
    """Agents and reviewers, and what they were told."""

    node: Node
    admin: dict[str, str]
    events: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    """eventId -> what was sent, and the answer to it."""
    unanswered: dict[str, dict[str, Any]] = field(default_factory=dict)
    resolutions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """approvalId -> the approval as answered."""
    pending: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)
    killed: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float) -> None:
        """Work until the service is killed, so many seconds after work has begun."""
        self.killed.clear()
        work = [self._agent] * AGENTS + [self._reviewer] * 2
        threads = [threading.Thread(target=self._until_killed, args=(each,)) for each in work]
        for thread in threads:
            thread.start()
        enough, deadline = len(self.events) + 20, time.monotonic() + 30
        while len(self.events) < enough and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(seconds)
        self.node.kill()
        self.killed.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert self.problems == []

    def _until_killed(self, work: Any) -> None:
        base = f"http://127.0.0.1:{self.node.port}"
        with httpx.Client(base_url=base, timeout=20, trust_env=False) as client:
            try:
                # A reviewer who has nothing to do would not notice the end by a broken connection.
                while not self.killed.is_set():
                    work(client)
            except httpx.TransportError:
                return
            except Exception as error:
                self.problems.append(repr(error))

    def _agent(self, client: httpx.Client) -> None:
        number = next(self.numbers)
        tool = random.choice(["read", "read", "wire", "mail", "pay", "pay"])
        for kind in ("tool.called", "tool.completed") if tool == "read" else ("tool.called",):
            event = {
                "eventId": f"{kind}-{number}",
                "runId": f"run-{number % 7}",
                "agentId": f"agent-{number % 7}",
                "timestamp": "2026-01-31T09:30:00Z",
                "eventType": kind,
                "metadata": {"toolCallId": f"call-{number}", "toolName": tool, "inputPayload": {"n": number}},
            }
            self.unanswered[event["eventId"]] = event
            answer = client.post("/v1/events", json=event, headers=AGENT)
            self._note(event, answer)
            if kind == "tool.called" and "approvalId" in answer.json():
                self.pending.append(answer.json()["approvalId"])

    def _note(self, event: dict[str, Any], answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        self.events[event["eventId"]] = (event, answer.content)
        self.unanswered.pop(event["eventId"], None)

    def _reviewer(self, client: httpx.Client) -> None:
        try:
            approval_id = self.pending.pop(0)
        except IndexError:
            time.sleep(0.01)
            return
        way = random.choice(["approve", "reject"])
        answer = client.post(f"/v1/approvals/{approval_id}/{way}", headers=self.admin, json={"reason": way})
        if answer.status_code == 200:
            self.resolutions[approval_id] = answer.json()
        else:
            # Resolved just before a kill, and tried again after it.
            assert answer.json()["code"] == "approval_not_pending", answer.text

    # After a restart --------------------------------------------------------------------------------

    def check(self) -> None:
        http = self.node.http
        known = list(self.events.values())
        for event, content in known[-50:]:
            again = http.post("/v1/events", json=event, headers=AGENT)
            assert again.status_code == 200 and again.headers["idempotent-replay"] == "true", again.text
            assert again.content == content
        for start in range(0, len(known), 500):
            part = known[start : start + 500]
            batch = {"events": [event for event, _ in part]}
            results = http.post("/v1/events/batch", json=batch, headers=AGENT).json()["results"]
            for (_, content), result in zip(part, results, strict=True):
                assert result == {"status": 200, "answer": json.loads(content), "replayed": True}
        for approval_id, approval in self.resolutions.items():
            found = http.get(f"/v1/approvals/{approval_id}", headers=self.admin).json()
            assert {name: found[name] for name in approval} == approval
        self._check_calls()
        self._check_record()
        # What was on its way when it died was recorded wholly or not at all; now it is.
        for event in list(self.unanswered.values()):
            self._note(event, http.post("/v1/events", json=event, headers=AGENT))

    def _check_calls(self) -> None:
        """The runs tell the same as the answers did."""
        calls: dict[str, dict[str, Any]] = {}
        for run in self.node.http.get("/v1/runs", headers=self.admin).json():
            whole = self.node.http.get(f"/v1/runs/{run['runId']}", headers=self.admin).json()
            calls |= {call["toolCallId"]: call for call in whole["toolCalls"]}
        for event, content in self.events.values():
            call = calls[event["metadata"]["toolCallId"]]
            if event["eventType"] == "tool.completed":
                assert call["completedAt"]
                continue
            told = json.loads(content)
            resolved = self.resolutions.get(told.get("approvalId"))
            if resolved is not None:
                assert call["status"] == {"approved": "allowed", "rejected": "blocked"}[resolved["status"]]
            elif told["toolCallStatus"] != "awaiting_approval":
                assert call["status"] == told["toolCallStatus"]
        mails = [
            call for call in calls.values() if call["toolName"] == "mail" and call["status"] == "allowed"
        ]
        assert len(mails) <= LIMIT

    def _check_record(self) -> None:
        verified = self.node.http.get("/v1/audit/verify", headers=self.admin).json()
        assert verified["valid"] and verified["firstBroken"] is None, verified
        exported = self.node.http.get("/v1/audit?format=jsonl", headers=self.admin).text
        records = {record["auditId"]: record for record in map(json.loads, exported.splitlines())}
        assert [record["sequence"] for record in records.values()] == list(range(1, len(records) + 1))
        for event, content in self.events.values():
            told = json.loads(content)
            record = records[told["auditId"]]
            assert record["runId"] == event["runId"]
            if event["eventType"] == "tool.called":
                assert record["decision"] == told["toolCallStatus"]
        resolved = {
            r["details"].get("approvalId") for r in records.values() if r["type"].startswith("approval.")
        }
        assert self.resolutions.keys() <= resolved


def test_everything_acknowledged_survives_kills(tmp_path: Path, database_url: str) -> None:
    random.seed(20_260_131)
    with nodes(tmp_path, database_url, 1, POLICIES) as (node,):
        load = Load(node, node.admin())
        for _ in range(ROUNDS):
            before = len(load.events)
            load.run(random.uniform(0, 1.2))
            assert len(load.events) > before
            node.restart()
            load.check()
        assert load.resolutions
        # Exactly so many mails pass, as if nothing had happened.
        for number in range(LIMIT + 5):
            answer = node.call(f"mail-{number}", "mail", run="run-mails")
            assert answer.status_code == 200
        runs = [run["runId"] for run in node.http.get("/v1/runs", headers=load.admin).json()]
        calls = [
            call
            for run in runs
            for call in node.http.get(f"/v1/runs/{run}", headers=load.admin).json()["toolCalls"]
        ]
        allowed = [call for call in calls if call["toolName"] == "mail" and call["status"] == "allowed"]
        assert len(allowed) == LIMIT
        assert "Traceback" not in node.log
