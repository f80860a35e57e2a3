"""The database is lost, and a copy that lacks its last commits takes its place: what that costs is known.

What the copy has stays word for word; what it lacks is decided anew when it comes again, by nodes that nobody
has restarted; and whoever noted elsewhere how far the log had come is told what is missing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.ledger import names_a_gap
from tests.faults.node_faults import Scene, audit_verify, scene, unique_numbers
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[tuple[Postgres, Scene]]:
    """On a server that may be lost."""
    with contextlib.closing(Postgres()) as first:
        first.start()
        with scene(folder, first, first.create(), 2) as play:
            yield first, play


def test_a_copy_that_lacks_the_last_commits_takes_over(tmp_path: Path) -> None:
    with two_nodes(tmp_path / "nodes") as (first, play), contextlib.ExitStack() as stack:
        made, ledger = play.cluster, play.ledger
        with play.under_load():
            """The first round is what the copy has."""
        copy = stack.enter_context(contextlib.closing(Postgres(copy_of=first)))
        with play.under_load():
            """The second is what it lacks."""
        valid, (noted, *_) = audit_verify(made.nodes[0], made.database)
        assert valid, noted["problems"]
        (tmp_path / "noted.json").write_text(json.dumps([noted]), encoding="utf-8")

        first.crash()
        copy.start()
        made.fail_over(copy)
        says_what_is_missing(play, tmp_path / "noted.json", noted)
        for node in made.nodes:
            play.serves(node)
        lost = ledger.lose(2)
        assert len(lost) > 20
        for event in lost[:10]:
            answers = made.at_once([(0, event), (1, event)])
            assert [answer.status for answer in answers] == [200, 200], answers
            assert answers[0].content == answers[1].content
            fresh = [answer for answer in answers if "idempotent-replay" not in answer.headers]
            assert len(fresh) == 1, "the copy does not know it, so somebody has to decide it"
        with play.under_load():
            """The others come again among what is new."""
        ledger.check_all(play.chance.choice(made.nodes), made.admin)
        _, (found, *_) = audit_verify(made.nodes[0], made.database)
        assert all(names_a_gap(problem) for problem in found["problems"]), found["problems"]
        unique_numbers(made.database)


def test_what_is_halted_and_revoked_after_that_counts(tmp_path: Path) -> None:
    """As many changes as the copy lacks come at once: no node takes what it remembers for what is there."""
    with two_nodes(tmp_path / "nodes") as (first, play), contextlib.ExitStack() as stack:
        made = play.cluster
        one, other = made.nodes
        keys = [
            one.http.post("/v1/api-keys", json={"name": name}, headers=made.admin).json() for name in "ab"
        ]
        for key in keys:
            assert other.call(key["keyId"], key=key["key"], run=key["keyId"]).status_code == 200
        copy = stack.enter_context(contextlib.closing(Postgres(copy_of=first)))

        def asked(method: str, path: str, body: dict[str, str] | None = None) -> None:
            """Until it is done."""
            deadline = time.monotonic() + 30
            while one.http.request(method, path, json=body, headers=made.admin).status_code not in (200, 204):
                assert time.monotonic() < deadline

        def stop(agent: str, key: dict[str, str]) -> None:
            asked("POST", "/v1/halt", {"agentId": agent, "reason": "r"})
            asked("DELETE", f"/v1/api-keys/{key['keyId']}")

        stop("elsewhere", keys[0])
        assert other.call("lost", key=keys[0]["key"], run="lost").status_code == 401
        first.crash()
        copy.start()
        made.networks[0].target(copy.socket)
        stop("agent-1", keys[1])
        made.fail_over(copy)
        for number, node in enumerate(made.nodes):
            play.serves(node)
            answer = node.call(f"new-{number}", run="new").json()
            assert answer["toolCallStatus"] == "blocked" and "halted" in answer["reason"]
            assert node.call(f"known-{number}", key=keys[1]["key"], run="known").status_code == 401


def test_a_policy_made_after_that_counts(tmp_path: Path) -> None:
    """It gets the number of the revision that the copy lacks, which the other node still has in force."""
    with two_nodes(tmp_path / "nodes") as (first, play), contextlib.ExitStack() as stack:
        made = play.cluster
        one, other = made.nodes

        def block(tool: str) -> int:
            match = {"field": "toolName", "operator": "equals", "value": tool}
            policy = {"name": f"No {tool}", "action": "block", "enabled": True, "matchConditions": [match]}
            return one.http.post("/v1/policies", json=policy, headers=made.admin).status_code

        copy = stack.enter_context(contextlib.closing(Postgres(copy_of=first)))
        assert block("lost") == 201
        assert other.call("lost", "lost", run="lost").json()["toolCallStatus"] == "blocked"
        first.crash()
        copy.start()
        made.fail_over(copy)
        deadline = time.monotonic() + 30
        while block("launch-missiles") != 201:
            assert time.monotonic() < deadline
        decided: list[str] = []
        answered = time.monotonic()
        while time.monotonic() < (answered + 3 if decided else deadline):
            answer = other.call(f"new-{time.monotonic_ns()}", "launch-missiles", run="new")
            if answer.status_code == 200:
                decided.append(answer.json()["toolCallStatus"])
        assert set(decided) == {"blocked"}


def says_what_is_missing(play: Scene, path: Path, noted: dict[str, object]) -> None:
    """The chains are whole as far as they go, and that is not far enough."""
    node, database = play.cluster.nodes[0], play.cluster.database
    _, (told, *_) = audit_verify(node, database)
    assert told["firstBroken"] is None
    assert all(names_a_gap(problem) for problem in told["problems"]), told["problems"]
    valid, (told, *_) = audit_verify(node, database, "--expect", str(path))
    assert not valid
    problems = " ".join(told["problems"])
    assert f"{told['count']} records where {noted['count']} were noted" in problems, problems
    assert str(noted["lastHash"]) in problems
