"""What several nodes on one PostgreSQL promise together, asked of four nodes in the same moment.

The network to the database takes its time, so that the nodes are at it while the others are.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.clock import seconds
from tests.harness.cluster import Answer, Client, Cluster, cluster
from tests.harness.nodes import Node, called
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

NODES = 4
LIMIT = 40
WINDOW = 2


def limited(policy_id: str, tool: str, per: str, limit: int, window: int = 3600) -> dict[str, Any]:
    return policy_body(
        policy_id,
        "block",
        where("toolName", "starts_with", tool),
        policyId=policy_id,
        rateLimit={"limit": limit, "windowSeconds": window, "per": [per]},
    )


POLICIES = [
    limited("limit-a-tool", "pay", "toolName", LIMIT),
    limited("limit-by-tool", "both", "toolName", LIMIT),
    limited("limit-by-agent", "both", "agentId", LIMIT + 7),
    limited("limit-a-while", "mail", "toolName", LIMIT, WINDOW),
    on_tool("Ask first", "require_approval", "wire"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Cluster]:
    url = postgres.create()
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, postgres, url, NODES, POLICIES, round_trip=0.002) as all_nodes:
        yield all_nodes
    postgres.drop(url)


def everywhere(event: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return [(number, event) for number in range(NODES)]


def status(answer: Answer) -> str:
    assert answer.status == 200, answer.content
    return str(answer.json()["toolCallStatus"])


def records(made: Cluster, node: int, query: str) -> list[dict[str, Any]]:
    answer = made.nodes[node].http.get(f"/v1/audit?limit=1000&{query}", headers=made.admin)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def test_of_ten_times_as_many_calls_exactly_the_limit_passes(made: Cluster) -> None:
    for tool in ("pay-1", "pay-2"):
        calls = [called(f"{tool}-{n}", tool, run=f"run-{tool}-{n % 50}") for n in range(10 * LIMIT)]
        answers = made.at_once([(n % NODES, call) for n, call in enumerate(calls)])
        assert Counter(map(status, answers)) == {"allowed": LIMIT, "blocked": 9 * LIMIT}
        # Some asked again, each of another node: the same, and nobody is counted twice.
        again = made.at_once([((n + 1) % NODES, call) for n, call in enumerate(calls[:LIMIT])])
        assert [answer.content for answer in again] == [answer.content for answer in answers[:LIMIT]]
        assert status(made.at_once([(3, called(f"{tool}-more", tool))])[0]) == "blocked"


def test_two_limits_on_the_same_calls_are_exact_and_hold_nobody_up(made: Cluster) -> None:
    """Calls meet two counts, in every order; each passes that neither forbids."""
    pairs = list(itertools.product(("both-1", "both-2"), ("one", "two")))
    calls = []
    for n in range(400):
        tool, agent = pairs[n % len(pairs)]
        calls.append(called(f"both-{n}", tool, run=f"run-{agent}-{n % 9}") | {"agentId": agent})
    random.Random(5).shuffle(calls)
    answers = made.at_once([(n % NODES, call) for n, call in enumerate(calls)])
    passed: Counter[str] = Counter()
    blocked = set()
    for call, answer in zip(calls, answers, strict=True):
        about = call["metadata"]["toolName"], call["agentId"]
        if status(answer) == "allowed":
            passed.update(about)
        else:
            blocked.add(about)
    limits = {"both-1": LIMIT, "both-2": LIMIT, "one": LIMIT + 7, "two": LIMIT + 7}
    assert all(passed[name] <= limit for name, limit in limits.items()), passed
    for about in blocked:
        assert any(passed[name] == limits[name] for name in about), f"{about} was blocked for nothing"


def test_a_window_that_slides_is_exact_too(made: Cluster) -> None:
    times = []
    for turn in range(6):
        calls = [called(f"mail-{turn}-{n}", "mail", run=f"run-mail-{n}") for n in range(3 * LIMIT)]
        for answer in made.at_once([(n % NODES, call) for n, call in enumerate(calls)]):
            if status(answer) == "allowed":
                times.append(seconds(answer.json()["decidedAt"]))
        time.sleep(WINDOW / 4)
    times.sort()
    assert len(times) > LIMIT, "there was room again"
    for first, beyond in zip(times, times[LIMIT:], strict=False):
        assert beyond - first >= WINDOW, f"{LIMIT + 1} passed within {beyond - first} seconds"


def test_an_event_sent_to_all_nodes_at_once_is_one_event(made: Cluster) -> None:
    events = [called(f"same-{n}", ("read", "wire")[n % 2], run=f"run-same-{n % 5}") for n in range(20)]
    answers = made.at_once([each for event in events for each in everywhere(event)])
    groups = [answers[start : start + NODES] for start in range(0, len(answers), NODES)]
    for event, group in zip(events, groups, strict=True):
        assert len({answer.content for answer in group}) == 1, [answer.content for answer in group]
        fresh = [answer for answer in group if "idempotent-replay" not in answer.headers]
        assert len(fresh) == 1, "one of them is the event, the others its repetition"
        call_id = event["metadata"]["toolCallId"]
        (record,) = records(made, 1, f"type=decision&toolCallId={call_id}")
        assert record["auditId"] == group[0].json()["auditId"]
    asked = {answer.json()["approvalId"] for answer in answers if status(answer) == "awaiting_approval"}
    assert len(asked) == 10


def test_an_id_sent_with_several_bodies_at_once_is_one_of_them(made: Cluster) -> None:
    for n in range(10):
        bodies = [called(f"torn-{n}", "read", run=f"run-torn-{n}", node=node) for node in range(NODES)]
        answers = made.at_once(list(enumerate(bodies)))
        codes = sorted(answer.status for answer in answers)
        assert codes == [200, *[409] * (NODES - 1)], [answer.content for answer in answers]
        refused = {answer.json()["code"] for answer in answers if answer.status == 409}
        assert refused <= {"event_id_conflict", "tool_call_conflict"}


def test_a_call_sent_to_all_nodes_at_once_is_one_call_with_one_approval(made: Cluster) -> None:
    for n in range(10):
        call = called(f"call-{n}", "wire", run=f"run-call-{n % 3}")
        answers = made.at_once([(node, {**call, "eventId": f"call-{n}-{node}"}) for node in range(NODES)])
        assert {status(answer) for answer in answers} == {"awaiting_approval"}
        (approval_id,) = {answer.json()["approvalId"] for answer in answers}
        # Four reviewers resolve it in the same moment: one does, the others are told so.
        assert len(records(made, 2, f"type=decision&toolCallId=call-call-{n}")) == 1
        assert resolved_at_once(made, approval_id) == [200, 409, 409, 409]
        again = made.at_once([(node, {**call, "eventId": f"later-{n}-{node}"}) for node in range(NODES)])
        assert len({status(answer) for answer in again}) == 1
        assert status(again[0]) in ("allowed", "blocked")
    torn = [called("torn", "wire", run="run-call", node=node) for node in range(NODES)]
    answers = made.at_once([(node, {**call, "eventId": f"t-{node}"}) for node, call in enumerate(torn)])
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]


def resolved_at_once(made: Cluster, approval_id: str) -> list[int]:
    async def resolve() -> list[Answer]:
        ways = [("approve", "reject")[number % 2] for number in range(NODES)]
        clients = [Client(node.port) for node in made.nodes]
        sent = (
            client.send("POST", f"/v1/approvals/{approval_id}/{way}", {}, made.admin)
            for client, way in zip(clients, ways, strict=True)
        )
        return await asyncio.gather(*sent)

    answers = asyncio.run(resolve())
    return sorted(answer.status for answer in answers)


def test_a_run_that_several_agents_begin_at_once_is_of_one(made: Cluster) -> None:
    for n in range(10):
        events = [
            called(f"mine-{n}-{node}", "read", run=f"run-mine-{n}") | {"agentId": f"agent-{node}"}
            for node in range(NODES)
        ]
        answers = made.at_once(list(enumerate(events)))
        codes = sorted(answer.status for answer in answers)
        assert codes == [200, *[409] * (NODES - 1)], [answer.content for answer in answers]
        assert {answer.json()["code"] for answer in answers if answer.status == 409} == {"run_conflict"}


def test_who_follows_the_audit_log_by_its_cursor_misses_nothing(made: Cluster) -> None:
    """A reader at the end of the log reads on while all nodes write; no late commit is behind its cursor."""
    follower = Follower(made.nodes[3], made.admin)
    follower.start()
    answered: set[str] = set()
    for turn in range(12):
        events = [
            called(f"f-{turn}-{n}", "read", run=f"run-f-{n}") | {"agentId": "agent-followed"}
            for n in range(40)
        ]
        answers = made.at_once([(n % NODES, event) for n, event in enumerate(events)])
        answered |= {answer.json()["auditId"] for answer in answers}
    follower.stop()
    assert follower.seen == answered
    query = "format=jsonl&type=decision&agentId=agent-followed"
    exported = made.nodes[2].http.get(f"/v1/audit?{query}", headers=made.admin)
    ids = [json.loads(line)["auditId"] for line in exported.text.splitlines()]
    assert sorted(ids) == sorted(answered)
    for node in made.nodes:
        verified = node.http.get("/v1/audit/verify", headers=made.admin).json()
        assert verified["valid"], verified["problems"]


class Follower(threading.Thread):
    """Reads page after page; the last page again until it has a next one."""

    def __init__(self, node: Node, admin: dict[str, str]) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self._node, self._admin = node, admin
        self._path = "/v1/audit?order=asc&limit=25&type=decision&agentId=agent-followed"
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            self._read()
        while self._read():
            pass

    def _read(self) -> bool:
        answer = self._node.http.get(self._path, headers=self._admin)
        assert answer.status_code == 200, answer.text
        self.seen |= {record["auditId"] for record in answer.json()}
        self._path = answer.links.get("next", {}).get("url", self._path)
        return "next" in answer.links

    def stop(self) -> None:
        self._ended.set()
        self.join(60)
        assert not self.is_alive()
