"""A call that needs two people, a change that needs two admins: over two processes and a crash between."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.nodes import KEY, Node, nodes
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay", approval={"approvers": 2})
PASSWORD = "correct horse battery"
PEOPLE = ("ann@acme.example", "bob@acme.example", "cleo@acme.example")

pytestmark = pytest.mark.slow
Header = dict[str, str]


@pytest.fixture
def pair(tmp_path: Path, database_url: str) -> Iterator[list[Node]]:
    shared = database_url.startswith("sqlite")
    with nodes(tmp_path, database_url, 2, [HOLD], shared=shared) as made:
        yield made


def people(node: Node) -> list[Header]:
    """Three more admins."""
    admin, found = node.admin(), []
    for email in PEOPLE:
        body = {"email": email, "role": "admin", "password": PASSWORD}
        assert node.http.post("/v1/users", json=body, headers=admin).status_code == 201
        answer = node.http.post("/auth/login", json={"email": email, "password": PASSWORD})
        found.append({"Authorization": f"Bearer {answer.json()['accessToken']}"})
    return found


def approve(node: Node, approval_id: str, who: Header, **body: Any) -> httpx.Response:
    return node.http.post(f"/v1/approvals/{approval_id}/approve", json=body, headers=who)


def read(node: Node, approval_id: str, who: Header) -> dict[str, Any]:
    found: dict[str, Any] = node.http.get(f"/v1/approvals/{approval_id}", headers=who).json()
    return found


def status_of(node: Node, number: str) -> str:
    calls = node.http.get("/v1/runs/run-1", headers={"X-API-Key": KEY}).json()["toolCalls"]
    return str(next(call["status"] for call in calls if call["toolCallId"] == f"call-{number}"))


def approvers(approval: dict[str, Any]) -> list[str]:
    return [step["actor"] for step in approval["approvedBy"]]


def is_proved(node: Node) -> None:
    found = node.http.get("/v1/audit/verify", headers=node.admin()).json()
    assert found["valid"], found


def test_of_many_who_approve_on_both_at_once_each_counts_once(pair: list[Node]) -> None:
    one, other = pair
    ann, bob, cleo = people(one)
    with ThreadPoolExecutor(6) as pool:
        for number in range(8):
            approval_id = one.call(number).json()["approvalId"]
            # Ann asks four times, on both: alone she releases nothing.
            alone = [pool.submit(approve, node, approval_id, ann) for node in (one, other, one, other)]
            assert sorted(each.result().status_code for each in alone) == [200, 409, 409, 409]
            found = read(other, approval_id, ann)
            assert (found["status"], approvers(found)) == ("pending", [PEOPLE[0]])
            assert status_of(one, str(number)) == "awaiting_approval"
            # Of the others one is enough, and of two at once one comes too late.
            both = [
                pool.submit(approve, *who) for who in ((one, approval_id, bob), (other, approval_id, cleo))
            ]
            assert sorted(each.result().status_code for each in both) == [200, 409]
            found = read(one, approval_id, ann)
            assert found["status"] == "approved" and len(set(approvers(found))) == 2
            assert status_of(other, str(number)) == "allowed"
    is_proved(other)


def test_what_one_has_approved_outlives_a_crash(pair: list[Node]) -> None:
    one, other = pair
    ann, bob, _ = people(one)
    held = [one.call(number).json()["approvalId"] for number in range(6)]
    for approval_id in held[:3]:
        assert approve(one, approval_id, ann).status_code == 200
    with ThreadPoolExecutor(3) as pool:
        # The rest is on its way when the process dies.
        late = [pool.submit(approve, one, approval_id, ann) for approval_id in held[3:]]
        one.kill()
        answered = [each.exception() is None and each.result().status_code == 200 for each in late]
    for approval_id, known in zip(held, [True] * 3 + answered, strict=True):
        found = read(other, approval_id, bob)
        assert found["status"] == "pending"
        assert approvers(found) == [PEOPLE[0]] or (not known and approvers(found) == [])
        # Nobody gets a second say by the crash, and one more person is needed, or two.
        again = approve(other, approval_id, ann)
        assert again.status_code == (409 if approvers(found) else 200)
        assert approve(other, approval_id, bob, payloadDigest="0" * 64).status_code == 409
        answer = approve(other, approval_id, bob, payloadDigest=found["payloadDigest"])
        assert (answer.status_code, answer.json()["status"]) == (200, "approved")
    one.restart()
    assert {status_of(one, str(number)) for number in range(6)} == {"allowed"}
    is_proved(one)


def test_a_change_asked_for_on_one_is_agreed_to_on_the_other(pair: list[Node]) -> None:
    one, other = pair
    ann, bob, cleo = people(one)
    two = {"settings": {"changes": {"approvers": 2}}}
    assert one.http.put("/v1/organisation/settings", json=two, headers=ann).status_code == 200
    # The other asks for two with the very next request.
    asked = other.http.patch("/v1/policies/hold-payments", json={"action": "allow"}, headers=ann)
    assert asked.status_code == 202, asked.text
    path = f"/v1/changes/{asked.json()['changeId']}/resolve"
    assert one.http.post(path, json={"decision": "approved"}, headers=ann).status_code == 403
    other.kill()
    assert one.call("before").json()["toolCallStatus"] == "awaiting_approval"
    other.restart()
    with ThreadPoolExecutor(2) as pool:
        agreed = [
            pool.submit(node.http.post, path, json={"decision": "approved"}, headers=who)
            for node, who in ((one, bob), (other, cleo))
        ]
        assert sorted(each.result().status_code for each in agreed) == [200, 409]
    for number, node in enumerate(pair):
        assert node.call(f"after-{number}").json()["toolCallStatus"] == "allowed"
        assert node.http.get("/v1/policies/hold-payments", headers=ann).json()["version"] == 2
    is_proved(other)
