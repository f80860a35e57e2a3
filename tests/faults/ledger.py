"""What a service acknowledged, and whether all of it is still true: the accountant of the kill tests.

Whoever loads the service writes down here each answer it got; `check` then asks the service itself. A
receiver that outlives every kill takes the webhooks, and `wait_for_owed` says whether all owed ones arrived.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import standardwebhooks

from tests.harness.nodes import KEY, Node
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.receiver import Answer, Received, Receiver

AGENT = {"X-API-Key": KEY}
MAILS = 30
"""Mails that may pass in each round; the limit is per tool, and each round has a mail tool of its own."""
HOOKED = ("approval.requested", "approval.resolved", "tool.blocked", "run.completed")
POLICIES = [
    on_tool("Hold payments", "require_approval", "pay"),
    on_tool("Block wires", "block", "wire"),
    policy_body(
        "Limit mails",
        "block",
        where("toolName", "starts_with", "mail-"),
        rateLimit={"limit": MAILS, "windowSeconds": 86_400, "per": ["toolName"]},
    ),
]
RESOLVED = {"approved": "allowed", "rejected": "blocked"}


class Inbox:
    """The receiver of webhooks: refuses some at random, checks every signature, keeps what it accepted."""

    def __init__(self) -> None:
        self.receiver = Receiver(self._answer)
        self.secret = ""
        self.problems: list[str] = []
        self.ids: dict[tuple[str, str], set[str]] = {}
        """What an event is about -> the ids it came under."""
        self.bodies: dict[str, bytes] = {}
        self.accepted: set[tuple[str, str]] = set()
        self.posts = 0
        self._chance = random.Random(11)
        self._lock = threading.Lock()

    def _answer(self, request: Received) -> Answer:
        about = _about(request.json)
        with self._lock:
            self.receiver.requests.clear()
            self.posts += 1
            self.ids.setdefault(about, set()).add(request.id)
            if self.bodies.setdefault(request.id, request.body) != request.body:
                self.problems.append(f"{request.id} came with two bodies")
            refuse = self._chance.random() < 0.1
            if not refuse:
                self.accepted.add(about)
        try:
            standardwebhooks.Webhook(self.secret).verify(request.body, request.headers)
        except standardwebhooks.WebhookVerificationError as error:
            self.problems.append(f"{request.id}: {error}")
        return Answer(500 if refuse else 200)


def _about(body: dict[str, Any]) -> tuple[str, str]:
    data = body["data"]
    name = {"tool.blocked": "toolCallId", "run.completed": "runId"}.get(body["event"], "approvalId")
    return body["event"], data[name]


@dataclass
class Ledger:
    """See the module. All but `round` may be written to by several threads."""

    round: int = 0
    most_repeated: int = 1_000_000
    """Of so many answers, drawn by chance, a check asks whether they still are what they were."""
    went_back: bool = False
    """The database has lost its last commits: a node that saw them leaves a gap between the checkpoints."""
    events: dict[str, tuple[dict[str, Any], dict[str, Any], bytes | None]] = field(default_factory=dict)
    """eventId -> what was sent, the answer, and its bytes where it was answered alone."""
    unanswered: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Sent, but the answer never came or said 503."""
    resolutions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """approvalId -> the approval as answered."""
    undecided: dict[str, None] = field(default_factory=dict)
    """Approvals somebody tried to resolve without getting an answer."""
    starts: dict[int, str] = field(default_factory=dict)
    """Round -> the first event acknowledged in it."""
    latest: dict[str, Any] | None = None
    """The event that was acknowledged last."""

    def send(self, events: Iterable[dict[str, Any]]) -> None:
        self.unanswered.update({event["eventId"]: event for event in events})

    def note(self, event: dict[str, Any], answer: dict[str, Any], content: bytes | None = None) -> bool:
        """True when it is the first answer to this event; each further one must be the same."""
        told = (event, answer, content)
        first = self.events.setdefault(event["eventId"], told)
        assert first[1] == answer, "two answers to one event"
        self.unanswered.pop(event["eventId"], None)
        self.latest = event
        return first is told

    def due(self) -> list[dict[str, Any]]:
        """What agents would send again now: an outcome, or the end of a run, only once its call is
        acknowledged. One that came before its call would be on record as a gap, and the call stay open."""
        unanswered = list(self.unanswered.values())
        return [event for event in unanswered if (call := follows(event)) is None or call in self.events]

    def of_round(self) -> list[tuple[dict[str, Any], dict[str, Any], bytes | None]]:
        return [each for each in self.events.values() if round_of(each[0]) == self.round]

    def owed(self) -> set[tuple[str, str]]:
        """Every webhook event that must arrive: what it is called, and what about."""
        owed = {("approval.resolved", approval_id) for approval_id in self.resolutions}
        for event, answer, _ in self.events.values():
            if event["eventType"] == "run.completed":
                owed.add(("run.completed", event["runId"]))
            elif answer.get("toolCallStatus") == "blocked":
                owed.add(("tool.blocked", event["metadata"]["toolCallId"]))
            elif "approvalId" in answer:
                owed.add(("approval.requested", answer["approvalId"]))
        return owed

    def lose(self, number: int) -> list[dict[str, Any]]:
        """What was acknowledged in a round is gone, with its database; all of it will come again."""
        lost = {event_id: told for event_id, told in self.events.items() if round_of(told[0]) == number}
        for event_id, (_, answer, _) in lost.items():
            del self.events[event_id]
            self.resolutions.pop(answer.get("approvalId", ""), None)
        events = [event for event, _, _ in lost.values()]
        self.latest = None
        self.send(events)
        self.went_back = True
        return events

    # After a restart --------------------------------------------------------------------------------

    def check(self, node: Node, admin: dict[str, str], chance: random.Random) -> None:
        """This round's promises, and some of the earlier ones."""
        mine = self.of_round()
        assert mine, "nothing was acknowledged in this round"
        earlier = [each for each in self.events.values() if round_of(each[0]) != self.round]
        known = mine + chance.sample(earlier, min(200, len(earlier)))
        self._check_answers(node, chance.sample(known, min(self.most_repeated, len(known))))
        self._finish(node, admin)
        self._check_approvals(node, admin, list(self.resolutions)[-200:])
        self._fill_up(node)
        self._check_calls(node, admin, self.round)
        self._check_record(node, admin, self.of_round(), since=True)

    def check_all(self, node: Node, admin: dict[str, str]) -> None:
        """Everything of all rounds."""
        self._check_answers(node, list(self.events.values())[: self.most_repeated])
        self._check_approvals(node, admin, list(self.resolutions))
        for number in range(1, self.round + 1):
            self._check_calls(node, admin, number)
        self._check_record(node, admin, list(self.events.values()), since=False)

    def _check_answers(self, node: Node, known: list[Any]) -> None:
        """A repeated event gets the stored answer: word for word."""
        for event, _, content in [each for each in known if each[2] is not None][-20:]:
            again = node.http.post("/v1/events", json=event, headers=AGENT)
            assert again.status_code == 200 and again.headers["idempotent-replay"] == "true", again.text
            assert again.content == content
        for start in range(0, len(known), 100):
            part = known[start : start + 100]
            batch = {"events": [event for event, _, _ in part]}
            results = node.http.post("/v1/events/batch", json=batch, headers=AGENT).json()["results"]
            for (event, answer, _), result in zip(part, results, strict=True):
                assert result == {"status": 200, "answer": answer, "replayed": True}, (event, result)

    def _finish(self, node: Node, admin: dict[str, str]) -> None:
        """What was on its way was recorded wholly or not at all; now it is."""
        left = list(self.unanswered.values())
        for event in left[:20]:
            answer = node.http.post("/v1/events", json=event, headers=AGENT)
            assert answer.status_code == 200, answer.text
            self.note(event, answer.json(), answer.content)
        self._send_all(node, left[20:])
        for approval_id in list(self.undecided):
            answer = node.http.post(f"/v1/approvals/{approval_id}/reject", headers=admin, json={})
            if answer.status_code != 200:
                assert answer.json()["code"] == "approval_not_pending", answer.text
                answer = node.http.get(f"/v1/approvals/{approval_id}", headers=admin)
            assert answer.json()["status"] in RESOLVED, answer.text
            self.resolutions.setdefault(approval_id, answer.json())
            del self.undecided[approval_id]

    def _check_approvals(self, node: Node, admin: dict[str, str], ids: Iterable[str]) -> None:
        for approval_id in ids:
            told = self.resolutions[approval_id]
            found = node.http.get(f"/v1/approvals/{approval_id}", headers=admin).json()
            assert {name: found[name] for name in told} == told
        asked = {answer["approvalId"] for _, answer, _ in self.of_round() if "approvalId" in answer}
        pending = node.http.get("/v1/approvals?status=pending&limit=1000", headers=admin)
        if "next" not in pending.links:
            waiting = {approval["approvalId"] for approval in pending.json()}
            assert asked <= waiting | self.resolutions.keys(), "an approval is missing"

    def _fill_up(self, node: Node) -> None:
        """Send more mails than may pass; `_check_calls` counts who passed."""
        mails = [
            called(self.round, f"fill-{self.round}-{number}", f"mail-{self.round}")
            for number in range(MAILS + 5)
        ]
        self._send_all(node, mails)

    def _send_all(self, node: Node, events: list[dict[str, Any]]) -> None:
        self.send(events)
        for start in range(0, len(events), 500):
            part = events[start : start + 500]
            answer = node.http.post("/v1/events/batch", json={"events": part}, headers=AGENT)
            for event, result in zip(part, answer.json()["results"], strict=True):
                assert result["status"] == 200, result
                self.note(event, result["answer"])

    def _check_calls(self, node: Node, admin: dict[str, str], number: int) -> None:
        """The runs of a round tell the same as the answers did; exactly the limit passed."""
        told = {e["eventId"]: (e, a) for e, a, _ in self.events.values() if round_of(e) == number}
        calls: dict[str, dict[str, Any]] = {}
        for run_id in {event["runId"] for event, _ in told.values()}:
            run = node.http.get(f"/v1/runs/{run_id}", headers=admin).json()
            calls |= {call["toolCallId"]: call for call in run["toolCalls"]}
            if f"completed-{run_id}" in told:
                assert run["status"] == "completed"
        expected = {
            event["metadata"]["toolCallId"]
            for event, _ in told.values()
            if event["eventType"] == "tool.called"
        }
        assert calls.keys() == expected, "a call is missing, or one is there that nobody made"
        for event, answer in told.values():
            if event["eventType"] == "run.completed":
                continue
            call = calls[event["metadata"]["toolCallId"]]
            if event["eventType"] == "tool.completed":
                assert call["completedAt"]
                continue
            resolved = self.resolutions.get(answer.get("approvalId", ""))
            status = RESOLVED[resolved["status"]] if resolved else answer["toolCallStatus"]
            assert call["status"] == status, (call, answer)
        passed = [c for c in calls.values() if c["toolName"].startswith("mail-") and c["status"] == "allowed"]
        assert len(passed) == MAILS, f"{len(passed)} mails passed"

    def _check_record(self, node: Node, admin: dict[str, str], known: list[Any], *, since: bool) -> None:
        verified = node.http.get("/v1/audit/verify", headers=admin).json()
        assert verified["firstBroken"] is None, verified
        assert self.went_back or verified["valid"], verified
        assert all(names_a_gap(problem) for problem in verified["problems"]), verified
        query = f"&since={self.starts[self.round]}" if since and self.round in self.starts else ""
        exported = node.http.get(f"/v1/audit?format=jsonl{query}", headers=admin).text
        rows = [json.loads(line) for line in exported.splitlines()]
        chains: dict[int, list[int]] = {}
        for row in rows:
            chains.setdefault(row.get("chain", 0), []).append(row["sequence"])
        for numbers in chains.values():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert since or numbers[0] == 1
        records = {row["auditId"]: row for row in rows}
        decided: set[str] = set()
        for event, answer, _ in known:
            record = records[answer["auditId"]]
            assert record["runId"] == event["runId"]
            if event["eventType"] == "tool.called":
                assert record["decision"] == answer["toolCallStatus"]
                decided.add(answer["auditId"])
        rounds = {self.round} if since else set(range(1, self.round + 1))
        mine = {row["auditId"] for row in rows if row["type"] == "decision" and round_of(row) in rounds}
        assert mine == decided, "a decision on record that nobody got, or the other way round"
        if not since:
            resolved = {r["details"]["approvalId"] for r in rows if r["type"] == "approval.resolved"}
            assert resolved == self.resolutions.keys()

    # At the end -------------------------------------------------------------------------------------

    def wait_for_owed(self, inbox: Inbox, seconds: float) -> int:
        """All that is owed was accepted by the receiver, each under one id; how many that were."""
        owed = self.owed()
        deadline = time.monotonic() + seconds
        while missing := owed - inbox.accepted:
            assert time.monotonic() < deadline, f"{len(missing)} never arrived: {sorted(missing)[:5]}"
            time.sleep(0.2)
        time.sleep(0.5)
        assert inbox.problems == []
        assert inbox.ids.keys() == owed, "something came that is not so"
        twice = {about: ids for about, ids in inbox.ids.items() if len(ids) != 1}
        assert not twice, "an event came under two ids"
        return len(owed)


def names_a_gap(problem: str) -> bool:
    """Of signed checkpoints that are gone, while every chain is whole as far as it goes."""
    return re.match(r"checkpoints? \d+ (is|to \d+ are) missing", problem) is not None


def called(number: int, name: str, tool: str, run: str = "0") -> dict[str, Any]:
    return _event(number, f"called-{name}", run, "tool.called") | {
        "metadata": {"toolCallId": f"call-{name}", "toolName": tool, "inputPayload": {"name": name}}
    }


def completed(call: dict[str, Any]) -> dict[str, Any]:
    name = call["eventId"].removeprefix("called-")
    return {**call, "eventId": f"done-{name}", "eventType": "tool.completed"}


def follows(event: dict[str, Any]) -> str | None:
    """The id of the event of the call that this one comes after."""
    if event["eventType"] == "tool.called":
        return None
    return event["eventId"].replace("done-", "called-").replace("completed-run-", "called-")


def run_completed(number: int, run: str) -> dict[str, Any]:
    return _event(number, f"completed-run-{number}-{run}", run, "run.completed")


def _event(number: int, event_id: str, run: str, event_type: str) -> dict[str, Any]:
    return {
        "eventId": event_id,
        "runId": f"run-{number}-{run}",
        "agentId": "agent-1",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": event_type,
    }


def round_of(event: dict[str, Any]) -> int:
    """Also of a record. What is asked apart from the ledger is of round 0."""
    return int(event["runId"].split("-")[1])
