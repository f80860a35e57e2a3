"""Lanes of the event loop: what they write and what they leave, and that nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from api.auth.credentials import key_digest
from api.database.lanes.loop_lane import LoopLane
from api.database.lanes.session import Session
from api.database.writer import Writer
from api.ingestion.known.lookups import answered, asked
from api.ingestion.validation import checked
from api.store.recorded_calls import recorded
from tests.faults.database_faults import HOLD, intact, payment, rows
from tests.harness.application import Service, event

pytestmark = pytest.mark.postgres
AT = "2026-01-31T09:30:00Z"
FEW = HOLD | {"name": "Few looks", "action": "block", "rateLimit": {"limit": 5, "windowSeconds": 60}}
FEW["matchConditions"] = [{"field": "toolName", "operator": "equals", "value": "look"}]


class Lanes:
    """Counts events by how they were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.committed = self.failed = 0
        ended = Writer.assembled_ended

        def counted(writer: Any, batch: Any, assembled: Any, *, committed: bool) -> None:
            if committed:
                self.committed += len(batch)
            else:
                self.failed += len(batch)
            ended(writer, batch, assembled, committed=committed)

        monkeypatch.setattr(Writer, "assembled_ended", counted)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Lanes:
    return Lanes(monkeypatch)


def look(number: int | str, run: str = "run-1", **others: Any) -> dict[str, Any]:
    fields = {"toolCallId": f"c{number}", "toolName": "see", "inputPayload": {}, **others}
    return event(number, "tool.called", AT, {**fields, "runId": run})


async def opened(running: Service) -> None:
    """Lanes open with the first event."""
    assert (await post(running, look("first", "run-0"))).status_code == 200
    for _ in range(200):
        if running.context.writer.arrivals._open:  # type: ignore[union-attr]
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no lane was opened")


async def post(running: Service, body: dict[str, Any]) -> httpx.Response:
    return await running.call("agent", "POST", "/v1/events", body)


@asynccontextmanager
async def serving(
    folder: Path, url: str, *policies: dict[str, Any], whole: bool = True
) -> AsyncIterator[Service]:
    """`whole` is what the database must be left."""
    environment = {"GOVERNANCE_DATABASE_URL": url, "GOVERNANCE_LANES": "3"}
    async with Service(folder, list(policies), environment=environment) as running:
        await opened(running)
        yield running
        if whole:
            await intact(running)


async def test_usual_events_are_written_by_lanes(tmp_path: Path, postgres_url: str, lanes: Lanes) -> None:
    async with serving(tmp_path, postgres_url, HOLD) as running:
        answers = await asyncio.gather(*(post(running, look(n, f"run-{n % 7}")) for n in range(60)))
        assert {answer.status_code for answer in answers} == {200}
        assert lanes.committed == 60 and lanes.failed == 0
        answers = await asyncio.gather(*(post(running, payment(f"p{n}")) for n in range(5)))
        assert {answer.json()["toolCallStatus"] for answer in answers} == {"awaiting_approval"}
        assert lanes.committed == 65 and lanes.failed == 0


async def test_a_repeated_event_gets_the_recorded_answer(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    async with serving(tmp_path, postgres_url) as running:
        first = await post(running, look(1))
        again = await asyncio.gather(*(post(running, look(1)) for _ in range(5)))
        assert {answer.content for answer in again} == {first.content}
        assert {answer.headers.get("idempotent-replay") for answer in again} == {"true"}
        together = await asyncio.gather(*(post(running, look(2)) for _ in range(8)))
        assert len({answer.content for answer in together}) == 1
        assert (await rows(running))["events"] == 3


async def test_a_run_keeps_its_order(tmp_path: Path, postgres_url: str) -> None:
    async with serving(tmp_path, postgres_url) as running:
        for number in range(5):
            run = f"run-a{number}"
            events = [
                event(f"s{number}", "run.started", AT, {"runId": run, "task": "t"}),
                look(f"a{number}", run),
                look(f"b{number}", run),
                event(f"d{number}", "tool.completed", AT, {"runId": run, "toolCallId": f"ca{number}"}),
                event(f"e{number}", "run.completed", AT, {"runId": run}),
                look(f"f{number}", run),
            ]
            answer = await running.call("agent", "POST", "/v1/events/batch", {"events": events})
            assert {result["status"] for result in answer.json()["results"]} == {200}, answer.text
            found = (await running.call("admin", "GET", f"/v1/runs/{run}")).json()
            flags = {call["toolCallId"]: call["flags"] for call in found["toolCalls"]}
            late = ["after_run_ended"]
            assert flags == {f"ca{number}": [], f"cb{number}": [], f"cf{number}": late}
            assert found["status"] == "completed" and found["task"] == "t"


async def test_a_halt_counts_at_once(tmp_path: Path, postgres_url: str, lanes: Lanes) -> None:
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).json()["toolCallStatus"] == "allowed"
        await running.call("admin", "POST", "/v1/halt", {"reason": "stop"})
        answers = await asyncio.gather(*(post(running, look(n)) for n in range(2, 9)))
        assert {answer.json()["toolCallStatus"] for answer in answers} == {"blocked"}
        assert lanes.failed, "the guard told"
        lanes.failed = 0
        assert (await post(running, look(9))).json()["toolCallStatus"] == "blocked"
        assert not lanes.failed, "and it is known from then on"


async def test_a_limit_is_exact(tmp_path: Path, postgres_url: str, lanes: Lanes) -> None:
    async with serving(tmp_path, postgres_url, FEW) as running:
        answers = await asyncio.gather(
            *(post(running, look(n, f"run-{n % 9}", toolName="look")) for n in range(50))
        )
        statuses = [answer.json()["toolCallStatus"] for answer in answers]
        assert statuses.count("allowed") == 5 and statuses.count("blocked") == 45
        assert (await rows(running))["rate_hits"] == 5


async def test_connections_that_end_lose_nothing(tmp_path: Path, postgres_url: str, lanes: Lanes) -> None:
    async with serving(tmp_path, postgres_url) as running:

        def end_all() -> None:
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

        acknowledged = 1
        for turn in range(6):
            posting = [
                asyncio.create_task(post(running, look(f"{turn}-{n}", f"run-{n % 5}"))) for n in range(40)
            ]
            await asyncio.sleep(0.01 * turn)
            await asyncio.to_thread(end_all)
            answers = await asyncio.gather(*posting)
            assert {answer.status_code for answer in answers} <= {200, 503}
            for number, answer in enumerate(answers):
                if answer.status_code != 200:
                    while (
                        await post(running, look(f"{turn}-{number}", f"run-{number % 5}"))
                    ).status_code != 200:
                        await asyncio.sleep(0.05)
            acknowledged += 40
            assert (await rows(running))["events"] == acknowledged


async def test_what_a_lane_cannot_send_keeps_nobody_waiting(
    tmp_path: Path, postgres_url: str, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    push, faults = Session.push, [UnicodeEncodeError("latin-1", "日", 0, 1, "cannot be written")]

    def faulty(session: Session, statements: Any) -> None:
        if any("Odd" in map(str, parameters) for _, parameters in statements) and faults:
            raise faults.pop()
        push(session, statements)

    async with serving(tmp_path, postgres_url) as running:
        monkeypatch.setattr(Session, "push", faulty)
        odd = look(1, toolName="Odd")
        answers = await asyncio.gather(post(running, odd), *(post(running, look(n)) for n in range(2, 9)))
        assert {answer.status_code for answer in answers} == {200} and not faults
        assert (await post(running, look(9))).status_code == 200


async def test_a_lane_that_another_node_has_taken_is_given_up(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    async with serving(tmp_path, postgres_url, HOLD) as running:
        await asyncio.gather(*(post(running, look(n)) for n in range(20)))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE lanes SET epoch = epoch + 1, owner = 'another'")
        answers = await asyncio.gather(*(post(running, payment(n)) for n in range(20, 60)))
        assert {answer.status_code for answer in answers} == {200} and lanes.failed
        assert (await rows(running))["events"] == 61
        asked = [data["approvalId"] for name, data in running.notices if name == "approval.requested"]
        assert sorted(asked) == sorted(answer.json()["approvalId"] for answer in answers), "told once each"


async def test_lists_are_in_order_of_time_whichever_lane_wrote(tmp_path: Path, postgres_url: str) -> None:
    async with serving(tmp_path, postgres_url) as running:
        for turn in range(4):
            await asyncio.gather(*(post(running, look(f"{turn}{n}", f"run-{turn}{n}")) for n in range(5)))
            running.clock.advance(1)
        found, path = [], "/v1/runs?limit=3"
        while path:
            answer = await running.call("admin", "GET", path)
            found += [(run["startedAt"], run["runId"]) for run in answer.json()]
            path = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert len({run for _, run in found}) == len(found) == 21
        assert [at for at, _ in found] == sorted((at for at, _ in found), reverse=True)
        calls = list(recorded(running.context.store, "default", limit=15))
        assert [call.at for call in calls] == sorted(call.at for call in calls)
        assert {call.key[:5] for call in calls} == {"run-1", "run-2", "run-3"}


async def test_whoever_finds_an_event_finds_its_run_and_call(tmp_path: Path, postgres_url: str) -> None:
    """The look-ups see what others commit between two of them."""
    async with serving(tmp_path, postgres_url) as running:
        store = running.context.store
        caller = running.context.credentials.known(key_digest(running.credentials["agent"]["X-API-Key"]))
        assert caller is not None
        for split in range(5):
            body = look(f"between-{split}", f"run-between-{split}")
            ready = checked(caller, msgspec.json.encode(body))
            assert ready is not None
            statements = asked([ready], ())
            found = [await store.read(store.rows, *each) for each in statements[:split]]
            assert (await post(running, body)).status_code == 200
            found += [await store.read(store.rows, *each) for each in statements[split:]]
            batch = answered(found)
            assert not batch.known or (batch.runs and batch.calls), split


class Trips:
    """Counts pipelines of lanes, each one way to the server, and events that a lane left to the thread, which
    goes twice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lanes = self.thread = 0
        run, take = LoopLane.run, Writer.take

        def counted_run(lane: LoopLane, *arguments: Any) -> None:
            self.lanes += 1
            run(lane, *arguments)

        def counted_take(writer: Writer, entries: Any) -> None:
            self.thread += len(entries)
            take(writer, entries)

        monkeypatch.setattr(LoopLane, "run", counted_run)
        monkeypatch.setattr(Writer, "take", counted_take)

    def since(self) -> tuple[int, int]:
        counted = self.lanes, self.thread
        self.lanes = self.thread = 0
        return counted


def became(name: str, kind: str, run: str = "run-1", **others: Any) -> dict[str, Any]:
    return event(f"became-{name}", kind, AT, {"runId": run, **others})


async def kept(running: Service, run: str = "run-1") -> dict[str, Any]:
    return (await running.call("admin", "GET", f"/v1/runs/{run}")).json()  # type: ignore[no-any-return]


async def test_what_becomes_of_a_call_and_a_run_takes_one_way(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Trips(monkeypatch)

    async def once(running: Service, body: dict[str, Any]) -> None:
        trips.since()
        answer = await post(running, body)
        assert answer.status_code == 200, answer.text
        assert trips.since() == (1, 0), body["eventType"]
        again = await post(running, body)
        assert again.content == answer.content and again.headers["idempotent-replay"] == "true"

    async with serving(tmp_path, postgres_url) as running:
        await once(running, became("start", "run.started", task="t"))
        await once(running, look(1))
        await once(running, became("done", "tool.completed", toolCallId="c1", outputPayload={"a": 1}))
        await once(running, look(2))
        await once(running, became("failed", "tool.failed", toolCallId="c2"))
        await once(running, look(3))
        await once(running, became("news", "custom.news"))
        await once(running, became("end", "run.completed"))
        await once(running, look(4))
        found = await kept(running)
        assert found["status"] == "completed" and found["endedAt"] and found["task"] == "t"
        calls = {call["toolCallId"]: call for call in found["toolCalls"]}
        assert [calls[f"c{n}"]["flags"] for n in range(1, 5)] == [[], [], [], ["after_run_ended"]]
        assert calls["c1"]["completedAt"] and calls["c2"]["completedAt"] and not calls["c3"]["completedAt"]
        trips.since()
        many = [look(f"m{n}", f"run-m{n % 5}") for n in range(40)]
        await asyncio.gather(*(post(running, body) for body in many))
        done = [became(f"m{n}", "tool.completed", f"run-m{n % 5}", toolCallId=f"cm{n}") for n in range(40)]
        trips.since()
        answers = await asyncio.gather(*(post(running, body) for body in done))
        assert {answer.status_code for answer in answers} == {200}
        assert trips.since()[1] == 0


async def test_what_another_node_has_changed_is_looked_up(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """A remembered call was completed, and a remembered run ended, by others."""
    async with serving(tmp_path, postgres_url) as running:
        for number in (1, 2):
            assert (await post(running, look(number))).status_code == 200
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE tool_calls SET completed_at = %s, completion = 'completed' WHERE tool_call_id = 'c1'",
                (AT,),
            )
        answer = await post(running, became("c1", "tool.completed", toolCallId="c1"))
        assert answer.status_code == 200 and lanes.failed == 1
        answer = await post(running, became("c2", "tool.completed", toolCallId="c2"))
        assert answer.status_code == 200 and lanes.failed == 1
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE runs SET status = 'failed', ended_at = %s WHERE run_id = 'run-1'", (AT,)
            )
        answer = await post(running, became("end", "run.completed"))
        assert answer.status_code == 200 and lanes.failed == 2
        found = await kept(running)
        assert (found["status"], found["endedAt"]) == ("failed", AT)
        flags = {call["toolCallId"]: call["flags"] for call in found["toolCalls"]}
        assert flags == {"c1": ["enforcement_gap"], "c2": []}


async def test_of_two_outcomes_at_once_the_first_counts(tmp_path: Path, postgres_url: str) -> None:
    async with serving(tmp_path, postgres_url) as running:
        for turn in range(8):
            assert (await post(running, look(turn))).status_code == 200
            same = {"toolCallId": f"c{turn}"}
            answers = await asyncio.gather(
                *(post(running, became(f"{turn}-{n}", "tool.completed", **same)) for n in range(3)),
                post(running, became(f"{turn}-end", "run.completed")),
            )
            assert {answer.status_code for answer in answers} == {200}
        found = await kept(running)
        assert {tuple(call["flags"][-1:]) for call in found["toolCalls"]} == {("enforcement_gap",)}
        with psycopg.connect(postgres_url) as connection:
            rows = connection.execute("SELECT count(*) FROM audit WHERE type = 'enforcement.gap'").fetchone()
        assert rows == (16,)


async def test_a_key_has_as_many_under_way_as_take_a_fixed_time(tmp_path: Path, postgres_url: str) -> None:
    """Not as many as make a good transaction: another key waits for them."""
    async with serving(tmp_path, postgres_url) as running:
        writer = running.context.writer
        assert writer.ingest is not None
        apply, shares, most = writer.ingest.apply, writer.shares, 0

        def dear(transaction: Any, events: Any, **how: Any) -> Any:
            nonlocal most
            most = max(most, shares._under_way.total())
            begun = time.thread_time()
            while time.thread_time() - begun < 0.002 * len(events):
                pass
            return apply(transaction, events, **how)

        writer.ingest.apply = dear  # type: ignore[method-assign]
        for number in range(8):
            await asyncio.gather(*(post(running, look(f"{number}-{each}")) for each in range(50)))
        assert 0.0015 < writer.arrivals.cost < 0.01
        most, other = 0, event("other", "custom.note", AT, {})
        many = [post(running, look(f"last-{each}")) for each in range(100)]
        answers = await asyncio.gather(running.call("other agent", "POST", "/v1/events", other), *many)
        assert {answer.status_code for answer in answers} == {200}
        assert 4 <= most <= 11
