"""What an event is decided by is compared with the database: another node's change holds with no word of it.

Each test plays the other node by a connection of its own, which no hint comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from api.database import change_hints
from api.database.lanes.guards import COUNTERS
from api.database.lanes.locks import EVENTS, JOBS
from api.database.lanes.policy_mark import POLICY_MARK, policy_mark
from api.database.lanes.session import Session, Statement
from engine.repository.snapshot import Snapshot
from tests.api.database.lanes.test_dispatch import AT, Lanes, became, lanes, look, post, serving
from tests.faults.database_faults import HOLD, payment
from tests.harness.application import Service
from tests.harness.fixed_policies import FixedPolicies

__all__ = ["lanes"]

pytestmark = pytest.mark.postgres

A_WHILE = 0.4
"""Seconds after which somebody is taken to wait."""


@contextlib.contextmanager
def another_node(url: str, statement: str, *values: Any) -> Iterator[psycopg.Connection]:
    """In the midst of a transaction in which it has run this; it is committed at the end."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)
        yield connection


@contextlib.asynccontextmanager
async def waiting(asked: Awaitable[httpx.Response]) -> AsyncIterator[asyncio.Future[httpx.Response]]:
    """Something that is not answered as long as this lasts."""
    answer = asyncio.ensure_future(asked)
    await asyncio.sleep(A_WHILE)
    assert not answer.done(), "it did not wait"
    yield answer


@pytest.mark.parametrize("name", COUNTERS)
async def test_a_decision_on_what_has_changed_since_is_made_again(
    name: str, tmp_path: Path, postgres_url: str, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FixedPolicies, "catch_up", lambda policies, revision: None)
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).status_code == 200 and lanes.failed == 0
        with another_node(
            postgres_url,
            "INSERT INTO counters (name, value) VALUES (%s, 9) ON CONFLICT (name) DO UPDATE"
            " SET value = counters.value + 1",
            name,
        ):
            pass
        assert (await post(running, look(2))).status_code == 200 and lanes.failed == 1


@pytest.mark.parametrize(("mark", "again"), [(policy_mark(1, AT), 1), (policy_mark(2, AT), 0)])
async def test_one_on_other_policies_of_the_same_revision_is_made_again(
    mark: int, again: int, tmp_path: Path, postgres_url: str, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a copy of the database has them that lacks the last commits; the mark of another revision is that
    of a version that knows none."""
    monkeypatch.setattr(FixedPolicies, "catch_up", lambda policies, revision: None)
    monkeypatch.setattr(FixedPolicies, "snapshot", Snapshot(1, "2026-01-31T09:30:00.000000Z"))
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).status_code == 200 and lanes.failed == 0
        with another_node(
            postgres_url, "INSERT INTO counters (name, value) VALUES (%s, %s)", POLICY_MARK, mark
        ):
            pass
        assert (await post(running, look(2))).status_code == 200 and lanes.failed == again


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE runs SET status = 'completed', ended_at = '{AT}'",
        "UPDATE runs SET task = 'another'",
        "UPDATE runs SET flow = flow + 1",
    ],
    ids=["end", "facts", "flow"],
)
async def test_a_run_that_has_changed_since_is_looked_at_again(
    change: str, tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    async with serving(tmp_path, postgres_url, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200 and lanes.failed == 0
        with another_node(postgres_url, change):
            pass
        assert (await post(running, look(2))).status_code == 200 and lanes.failed == 1
        assert (await post(running, look(3))).status_code == 200 and lanes.failed == 1


@pytest.mark.parametrize("thread", [False, True], ids=["lane", "thread"])
async def test_no_event_is_written_while_a_change_is_committed(
    thread: bool, tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    async with serving(tmp_path, postgres_url, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200
        events = [became("odd", "tool.completed", toolCallId="unknown"), look(2)] if thread else [look(2)]
        with another_node(postgres_url, "SELECT pg_advisory_xact_lock(%s)", EVENTS) as node:
            async with waiting(
                running.call("agent", "POST", "/v1/events/batch", {"events": events})
            ) as answer:
                node.execute(
                    "INSERT INTO halts (halt_id, organisation_id, kind, target, reason, created_at,"
                    " created_by) VALUES ('h', 'default', 'all', '', 'stop', %s, 'x')",
                    (AT,),
                )
                node.execute(
                    "INSERT INTO counters (name, value) VALUES ('halts', 9) ON CONFLICT (name) DO UPDATE"
                    " SET value = counters.value + 1"
                )
                node.commit()
                results = (await answer).json()["results"]
        assert {result["status"] for result in results} == {200}
        assert results[-1]["answer"]["toolCallStatus"] == "blocked", "it was decided by what was before"


CHANGES = {
    "halt": ("/v1/halt", {"reason": "stop"}),
    "key": ("/v1/api-keys", {"name": "second"}),
    "webhook": ("/v1/webhooks", {"url": "https://hooks.example.com/x", "events": ["tool.blocked"]}),
    "policy": ("/v1/policies", {**HOLD, "name": "Second", "policyId": "second", "enabled": True}),
    "grant": ("/v1/approvals/{}/approve", {"grant": {"scope": "run", "calls": 2, "minutes": 10}}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_is_answered_when_no_event_is_written_without_it(
    name: str, tmp_path: Path, postgres_url: str
) -> None:
    path, body = CHANGES[name]
    async with Service(tmp_path, [HOLD], live=True, database=postgres_url) as running:
        held = (await post(running, payment(1))).json()["approvalId"]
        with another_node(postgres_url, "SELECT pg_advisory_xact_lock_shared(%s)", EVENTS) as node:
            async with waiting(running.call("admin", "POST", path.format(held), body)) as answer:
                node.commit()
                assert (await answer).is_success, (await answer).text


async def test_changes_are_one_at_a_time_and_hold_up_no_event(tmp_path: Path, postgres_url: str) -> None:
    async with serving(tmp_path, postgres_url) as running:
        with another_node(postgres_url, "SELECT pg_advisory_xact_lock(%s)", JOBS) as node:
            async with waiting(running.call("admin", "POST", "/v1/halt", {"agentId": "nobody"})) as answer:
                assert (await post(running, look(1))).status_code == 200
                node.commit()
                assert (await answer).is_success


async def test_a_call_that_is_held_knows_of_an_end_of_its_run_in_the_same_moment(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """Else it would wait for a person in a run whose calls were all cancelled."""
    async with serving(tmp_path, postgres_url, HOLD, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200
        end = "UPDATE runs SET status = 'completed', ended_at = %s WHERE run_id = 'run-1'"
        with another_node(postgres_url, end, AT) as node:
            async with waiting(post(running, payment("late") | {"runId": "run-1"})) as answer:
                node.commit()
                assert (await answer).status_code == 200
        assert lanes.failed == 1
        found = (await running.call("admin", "GET", "/v1/runs/run-1")).json()
        (late,) = (call for call in found["toolCalls"] if call["toolCallId"] == "clate")
        assert late["flags"] == ["after_run_ended"]


async def test_a_flag_that_another_node_has_given_a_call_outlives_its_outcome(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """As when its agent told that node that it was made while nobody could decide it."""
    async with serving(tmp_path, postgres_url, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200
        with another_node(postgres_url, """UPDATE tool_calls SET flags = '["decided_offline"]'"""):
            pass
        before = lanes.committed
        assert (await post(running, became("1", "tool.completed", toolCallId="c1"))).status_code == 200
        assert lanes.committed == before + 1
        (call,) = (await running.call("admin", "GET", "/v1/runs/run-1")).json()["toolCalls"]
        assert (call["completion"], call["flags"]) == ("completed", ["decided_offline"])


async def test_of_an_id_that_another_node_is_just_writing_there_is_one(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """What is decided here meanwhile waits for that, and is undone with its record."""
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).status_code == 200
        with another_node(postgres_url, "CREATE TEMPORARY TABLE seen AS SELECT * FROM ids") as node:
            node.execute("DELETE FROM ids")
            node.commit()  # as if they were not there yet
            node.execute("INSERT INTO ids SELECT * FROM seen")
            async with waiting(post(running, look(1))) as answer:
                node.commit()
                again = await answer
        assert again.headers["idempotent-replay"] == "true" and lanes.failed == 1
        with psycopg.connect(postgres_url) as connection:
            counted = connection.execute(
                "SELECT (SELECT count(*) FROM events WHERE event_id = 'event-1'),"
                " (SELECT count(*) FROM audit WHERE type = 'decision')"
            ).fetchone()
        assert counted == (1, 2)


class Pipelines:
    """Ways to the server, and hints to other nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run: list[list[Statement]] = []
        """The statements of each that a thread has waited for; housekeeping has some, too."""
        self.of_lanes = self.hints = 0
        run, end, hint = Session.run, Session.end, change_hints.send

        def noted(session: Session, statements: Sequence[Statement]) -> Any:
            self.run.append(list(statements))
            return run(session, statements)

        def ended(session: Session) -> Any:
            self.of_lanes += threading.current_thread() is threading.main_thread()
            return end(session)

        def hinted(store: Any) -> None:
            self.hints += 1
            hint(store)

        monkeypatch.setattr(Session, "run", noted)
        monkeypatch.setattr(Session, "end", ended)
        monkeypatch.setattr(change_hints, "send", hinted)

    def of_events(self) -> list[list[Statement]]:
        """Those that take the lock of events, or write some."""

        def is_one(statement: Statement) -> bool:
            return str(EVENTS) in statement[1] or statement[0].startswith('INSERT INTO "events"')

        return [each for each in self.run if any(map(is_one, each))]


async def test_an_event_is_one_way_to_the_server_and_no_hint(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, postgres_url) as running:
        pipelines = Pipelines(monkeypatch)
        for number in range(5):
            assert (await post(running, look(number))).status_code == 200
        assert (pipelines.of_lanes, pipelines.of_events(), pipelines.hints) == (5, [], 0)
        assert (await post(running, became("odd", "tool.completed", toolCallId="unknown"))).status_code == 200
        assert (pipelines.of_lanes, pipelines.hints) == (5, 0)
        asked, written = pipelines.of_events()
        assert written[-1] == ("COMMIT", ()) and asked[0] == ("BEGIN", ())


async def test_a_change_keeps_events_out_for_one_pipeline(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last, with which it commits, so that no lock is held over a way to the server."""
    async with serving(tmp_path, postgres_url) as running:
        pipelines = Pipelines(monkeypatch)
        assert (await running.call("admin", "POST", "/v1/halt", {"agentId": "nobody"})).is_success
        (alone,) = pipelines.of_events()
        assert alone[-1] == ("COMMIT", ()) and pipelines.hints >= 1
