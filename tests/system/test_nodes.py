"""Two real processes behind one database act as one service: what one commits, the other knows at once."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.nodes import KEY, Node, nodes
from tests.harness.policy_bodies import on_tool
from tests.harness.receiver import Receiver

HOLD = on_tool("Hold payments", "require_approval", "pay")
BLOCK = on_tool("Block wires", "block", "wire")
AT_ONCE = 0.1
"""Seconds within which a waiting agent is woken by a resolution on another node (the median of several)."""

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path, database_url: str) -> Iterator[list[Node]]:
    # Processes of one machine share the policies folder of an embedded database; nodes have their own.
    shared = database_url.startswith("sqlite")
    with nodes(tmp_path, database_url, 2, [HOLD, BLOCK], shared=shared) as made:
        yield made


def status(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["toolCallStatus"]


def woken(waiting: Node, path: str, cause: Any) -> tuple[Any, float]:
    """What a long poll answers, and how many seconds after `cause` returned."""
    found: list[Any] = []

    def wait() -> None:
        found.append(waiting.http.get(path, headers={"X-API-Key": KEY}).json())
        found.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive(), "it did not wait"
    cause()
    done = time.monotonic()
    thread.join(60)
    return found[0], found[1] - done


def test_a_resolution_on_one_node_wakes_who_waits_on_the_other(pair: list[Node]) -> None:
    one, other = pair
    admin = one.admin()

    def late(number: int | str, verb: str, path: str) -> tuple[Any, float]:
        approval_id = one.call(number).json()["approvalId"]

        def resolve() -> None:
            assert one.http.post(f"/v1/approvals/{approval_id}/{verb}", headers=admin).status_code == 200

        return woken(other, path.format(approval_id), resolve)

    def usual(turn: int) -> float:
        found = [late(f"{turn}-{each}", "approve", "/v1/approvals/{}?wait=20") for each in range(5)]
        assert [answer["status"] for answer, _ in found] == ["approved"] * 5
        return statistics.median(seconds for _, seconds in found)

    # A machine that is busy with others may be late for a while.
    assert any(usual(turn) <= AT_ONCE for turn in range(6))

    def of_run(number: str) -> float:
        answer, seconds = late(number, "reject", "/v1/runs/run-1?wait=20")
        assert answer["toolCalls"][-1]["status"] == "blocked"
        return seconds

    assert any(of_run(number) < 1 for number in ("run", "run-2", "run-3", "run-4"))
    # The call itself has become final, whoever is asked.
    assert status(other.http.post("/v1/events", json=_again("run"), headers={"X-API-Key": KEY})) == "blocked"


def _again(number: str) -> dict[str, Any]:
    from tests.harness.nodes import called

    return {**called(number), "eventId": "event-again"}


def test_a_stream_tells_what_the_other_node_did(pair: list[Node]) -> None:
    one, other = pair
    admin = one.admin()
    seen: list[tuple[str, dict[str, Any]]] = []
    connected, enough = threading.Event(), threading.Event()

    def follow() -> None:
        with other.http.stream("GET", "/v1/stream", headers=admin, timeout=60) as stream:
            name = ""
            for line in stream.iter_lines():
                connected.set()
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    seen.append((name, json.loads(line.removeprefix("data: "))))
                    if len(seen) >= 7:
                        enough.set()
                        return

    thread = threading.Thread(target=follow)
    thread.start()
    assert connected.wait(60)
    approval_id = one.call(1).json()["approvalId"]
    other.call(2, "wire")
    assert one.http.post(f"/v1/approvals/{approval_id}/reject", headers=admin).status_code == 200
    change = one.http.patch("/v1/policies/block-wires", json={"description": "No wires."}, headers=admin)
    assert change.status_code == 200, change.text
    halt = {"scope": "agent", "agentId": "agent-1", "reason": "odd"}
    assert one.http.post("/v1/halt", json=halt, headers=admin).status_code in (200, 201)
    resume = {"scope": "agent", "agentId": "agent-1"}
    assert one.http.post("/v1/resume", json=resume, headers=admin).status_code == 200
    assert enough.wait(60), seen
    thread.join(60)
    # Each once, also what this node did itself.
    told = sorted((name, data.get("status") or data.get("toolCallStatus") or "") for name, data in seen)
    assert told == [
        *(("approval", "pending"), ("approval", "rejected")),
        *(("decision", "awaiting_approval"), ("decision", "blocked")),
        *(("halt", ""), ("halt", ""), ("policy", "")),
    ]
    assert [data["active"] for name, data in seen if name == "halt"] == [True, False]


def test_halts_keys_and_users_hold_everywhere_at_once(pair: list[Node]) -> None:
    one, other = pair
    admin = one.admin()
    assert status(other.call(1, "read")) == "allowed"
    halt = {"scope": "all", "reason": "stop it"}
    assert one.http.post("/v1/halt", json=halt, headers=admin).status_code in (200, 201)
    assert status(other.call(2, "read")) == "blocked"
    assert other.http.post("/v1/resume", json={"scope": "all"}, headers=admin).status_code == 200
    assert status(one.call(3, "read")) == "allowed"

    made = one.http.post("/v1/api-keys", json={"name": "second"}, headers=admin).json()
    assert status(other.call(4, "read", key=made["key"], run="run-of-second")) == "allowed"
    gone = one.http.delete(f"/v1/api-keys/{made['keyId']}", headers=admin)
    assert gone.status_code in (200, 204), gone.text
    assert other.call(5, "read", key=made["key"], run="run-of-second").status_code == 401

    person = {"email": "r@example.com", "role": "reviewer", "password": "correct horse battery"}
    user = one.http.post("/v1/users", json=person, headers=admin).json()
    answer = other.http.post(
        "/auth/login", json={"email": person["email"], "password": person["password"]}
    ).json()
    bearer = {"Authorization": f"Bearer {answer['accessToken']}"}
    assert other.http.get("/v1/approvals", headers=bearer).status_code == 200
    changed = one.http.patch(f"/v1/users/{user['userId']}", json={"enabled": False}, headers=admin)
    assert changed.status_code == 200, changed.text
    assert other.http.get("/v1/approvals", headers=bearer).status_code == 401


def test_a_changed_policy_decides_on_the_other_node_with_the_next_event(pair: list[Node]) -> None:
    one, other = pair
    admin = one.admin()
    assert status(other.call(1, "wire")) == "blocked"
    for number in range(2, 8):
        action, expected = ("warn", "allowed") if number % 2 else ("block", "blocked")
        at, elsewhere = (one, other) if number % 3 else (other, one)
        change = at.http.patch("/v1/policies/block-wires", json={"action": action}, headers=admin)
        assert change.status_code == 200, change.text
        assert status(elsewhere.call(number, "wire")) == expected
    # Also readers hear of it soon.
    version = change.json()["version"]
    deadline = time.monotonic() + 60
    while one.http.get("/v1/policies/block-wires", headers=admin).json()["version"] != version:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_webhook_hears_of_what_any_node_decides_once(tmp_path: Path, database_url: str) -> None:
    shared = database_url.startswith("sqlite")
    with (
        Receiver() as receiver,
        nodes(tmp_path, database_url, 2, [BLOCK], shared=shared, GOVERNANCE_WEBHOOK_ALLOW=receiver.place) as (
            one,
            other,
        ),
    ):
        hook = {"url": receiver.url, "events": ["tool.blocked"]}
        assert one.http.post("/v1/webhooks", json=hook, headers=one.admin()).status_code == 201
        for number in range(10):
            assert status((one, other)[number % 2].call(number, "wire")) == "blocked"
        receiver.wait_for(10)
        time.sleep(1)
        calls = sorted(request.json["data"]["toolCallId"] for request in receiver.requests)
        assert calls == sorted(f"call-{number}" for number in range(10))
