"""Who writes an event: the event loop while nothing is unusual, else the thread; none is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import peewee
import pytest

from api.database import inline_commit
from api.database.errors import DatabaseUnavailable
from api.database.table import counter
from api.database.transaction import Transaction
from api.store import accounts, halts
from tests.api.ingestion.test_pipeline import BLOCK, called
from tests.faults.database_faults import settled
from tests.harness.application import Service, event


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, *, slow_disk: float = 60.0) -> AsyncIterator[tuple[Service, list[str]]]:
    """The service and a list of who wrote: `loop` or `thread`, with the number of events.

    A machine that is busy with other things makes no commit a slow one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline_commit, "SLOW", 60.0)
        patch.setattr(inline_commit, "SLOW_DISK", slow_disk)
        async with Service(tmp_path, [BLOCK]) as service, asyncio.timeout(60):
            writer: Any = service.context.writer
            wrote: list[str] = []
            at_once, commit = writer.commit_at_once, writer._commit
            await settled(service)

            def noted_at_once(group: list[Any]) -> bool:
                done: bool = at_once(group)
                wrote.append(f"loop {len(group)}" if done else "loop gave up")
                return done

            def noted_commit(group: list[Any]) -> None:
                wrote.append(f"thread {len(group)}")
                commit(group)

            writer.commit_at_once, writer._commit = noted_at_once, noted_commit
            yield service, wrote


async def many(service: Service, first: int, count: int) -> None:
    answers = await asyncio.gather(
        *(called(service, number, f"c-{number}", "wire") for number in range(first, first + count))
    )
    others = [answer.text for answer in answers if answer.json().get("toolCallStatus") != "blocked"]
    assert not others, others[0]


async def test_the_loop_writes_what_has_arrived_as_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_commit, "MOST", 4)
    async with serving(tmp_path) as (service, wrote):
        await called(service, 1, "c-1")
        assert wrote == ["loop 1"]
        await many(service, 2, 30)
        counts = [int(each.removeprefix("loop ")) for each in wrote]
        assert sum(counts) == 31
        assert max(counts) == 4


async def test_events_that_arrive_while_the_thread_writes_are_written_after_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, wrote):
        begun, go_on = threading.Event(), threading.Event()

        def long_job(_: Any) -> str:
            begun.set()
            assert go_on.wait(30)
            return "done"

        writer = service.context.writer
        job = asyncio.create_task(writer.write(long_job))
        await asyncio.to_thread(begun.wait, 30)
        events = asyncio.create_task(many(service, 1, 20))
        await asyncio.sleep(0.2)
        assert wrote == ["thread 1"], "it holds the database"
        assert not events.done()
        go_on.set()
        await events
        assert await job == "done"
        assert all(each.startswith("loop") for each in wrote[1:]), wrote


async def test_events_and_jobs_in_any_mixture_are_all_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, wrote):
        writer = service.context.writer

        async def jobs(count: int) -> None:
            for _ in range(count):
                await writer.write(lambda transaction: time.sleep(0.001))

        first = 1
        while first < 400 or {each.split()[0] for each in wrote} != {"loop", "thread"}:
            await asyncio.gather(jobs(15), jobs(15), many(service, first, 60), many(service, first + 60, 40))
            first += 100
            assert first < 4_000, "the mixture was none"


async def test_a_steady_stream_of_jobs_does_not_hold_up_events(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, _):
        writer = service.context.writer
        stop = False

        async def jobs() -> None:
            while not stop:
                await asyncio.gather(*(writer.write(lambda transaction: time.sleep(0.002)) for _ in range(3)))

        busy = [asyncio.create_task(jobs()) for _ in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(many(service, 1, 30), 20)
        stop = True
        await asyncio.gather(*busy)


async def test_the_loop_does_not_wait_for_another_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, wrote):
        held = os.open(f"{service.context.store.path}.lock", os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
        events = asyncio.create_task(many(service, 1, 5))
        begun = time.monotonic()
        await asyncio.sleep(0.3)
        assert time.monotonic() - begun < 5, "the loop went on"
        assert not events.done()
        os.close(held)
        await events
        assert wrote[0] == "loop gave up"
        assert wrote[1].startswith("thread")


async def test_much_to_read_and_what_follows_a_slow_commit_is_left_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (service, wrote):
        long_text = "x" * (inline_commit.MOST_BYTES + 1)
        answer = await service.report(
            *("agent", 1, "tool.called"),
            runId="r",
            toolCallId="c-1",
            toolName="wire",
            inputPayload={"text": long_text},
        )
        assert answer.json()["toolCallStatus"] == "blocked"
        assert wrote == ["thread 1"]
        wrote.clear()
        monkeypatch.setattr(inline_commit, "SLOW", 0.0)
        monkeypatch.setattr(inline_commit, "SHARE", 0.000_01)
        await called(service, 2, "c-2")
        await called(service, 3, "c-3")
        await called(service, 4, "c-4")
        assert wrote == ["loop 1", "thread 1", "thread 1"]


async def test_a_disk_that_keeps_one_waiting_is_left_to_the_thread_most_of_the_time(tmp_path: Path) -> None:
    async with serving(tmp_path, slow_disk=inline_commit.SLOW_DISK) as (service, wrote):
        commit = service.context.store.peewee.commit

        def slowly() -> None:
            time.sleep(0.02)
            commit()

        service.context.store.peewee.commit = slowly  # type: ignore[method-assign]
        for number in range(40):
            await called(service, number, f"c-{number}")
        on_the_loop = sum(each.startswith("loop") for each in wrote)
        assert 1 <= on_the_loop <= 10, wrote


async def test_caches_out_of_date_are_brought_up_to_date_by_the_thread(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, wrote):
        loads: list[str] = []
        ingest: Any = service.context.writer.ingest
        load, version = ingest._load_keys, ingest._keys_version
        ingest._keys_version = lambda: version() - (not loads)

        def noted() -> None:
            loads.append(threading.current_thread().name)
            load()

        ingest._load_keys = noted
        answer = await called(service, 1, "c-1", "wire")
        assert answer.json()["toolCallStatus"] == "blocked"
        assert loads == ["store-writer"]
        assert wrote == ["loop gave up", "thread 1"]
        await called(service, 2, "c-2")
        assert wrote[2:] == ["loop 1"]
        assert service.context.store.read_here(counter, "keys") == version()


@pytest.mark.parametrize("seconds", [0.0, inline_commit.CONNECTING])
async def test_commits_are_put_off_while_clients_connect_but_not_for_ever(
    tmp_path: Path, seconds: float
) -> None:
    """However long a round of the loop takes, in which some of many connect."""
    async with serving(tmp_path) as (service, wrote):
        waiting = service.context.writer.arrivals
        looks = 0
        look: Any = waiting._look

        def noted(woken: bool = False) -> None:
            nonlocal looks
            looks += 1
            time.sleep(seconds)
            waiting.connected()
            look(woken)

        waiting._look = noted  # type: ignore[method-assign]
        await called(service, 1, "c-1")
        # Twice three, if the thread was just about to let go of the lock.
        assert looks > 1 and (not seconds or looks <= 6)
        assert wrote == ["loop 1"]


async def test_what_has_arrived_when_the_service_stops_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, wrote):
        writer: Any = service.context.writer
        event = asyncio.create_task(called(service, 1, "c-1"))
        while not len(writer.arrivals):
            await asyncio.sleep(0)
        writer._closed = True
        answer = await event
        writer._closed = False
        assert answer.status_code == 503
        assert wrote == []


async def test_events_keep_their_order_when_the_first_is_the_thread_s(tmp_path: Path) -> None:
    """The thread has taken the first off its queue, and comes to write it only later."""
    async with serving(tmp_path) as (service, _):
        writer = service.context.writer
        take = writer.take

        def take_and_pause(entries: Any) -> None:
            take(entries)
            time.sleep(0.01)  # time for the thread, up to the lock that is held here

        writer.take = take_and_pause  # type: ignore[method-assign]
        payload = {"text": "x" * (inline_commit.MOST_BYTES + 1)}
        at = service.clock.text
        events = [
            event(1, "tool.called", at, {"toolCallId": "c", "toolName": "mail", "inputPayload": payload}),
            event(2, "tool.completed", at, {"toolCallId": "c"}),
            event(3, "run.completed", at, {}),
        ]
        answer = await service.call("agent", "POST", "/v1/events/batch", {"events": events})
        assert [result["status"] for result in answer.json()["results"]] == [200, 200, 200]
        store = service.context.store
        found = await store.read(store.rows, "SELECT event_type FROM events ORDER BY event_no")
        assert [row[0] for row in found] == ["tool.called", "tool.completed", "run.completed"]
        assert await store.read(store.rows, "SELECT 1 FROM audit WHERE type = 'enforcement.gap'") == []


@pytest.mark.parametrize("what", ["metrics", "publish"])
async def test_what_fails_after_a_commit_stops_no_answer(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (service, _):

        def fail(*_: Any) -> None:
            raise OSError("no room for what is counted")

        writer = service.context.writer
        if what == "metrics":
            monkeypatch.setattr("api.metrics.committed", fail)
        else:
            writer.publish = fail
        await many(service, 1, 5)
        assert await writer.write(lambda transaction: "done") == "done"
        await many(service, 6, 5)


@pytest.mark.parametrize("job", ["a halt", "a key's end"])
async def test_a_commit_that_fails_leaves_nothing_in_memory(job: str, tmp_path: Path) -> None:
    """Events that share a transaction with a job must not learn what the job changes before it is so."""
    async with serving(tmp_path) as (service, _):
        writer, store = service.context.writer, service.context.store
        key_id = (await store.read(store.rows, "SELECT key_id FROM api_keys WHERE name = 'agent'"))[0][0]
        jobs: dict[str, Callable[[Transaction], Any]] = {
            "a halt": lambda t: halts.halt(t, "default", "agent", "somebody", "a test", "odd"),
            "a key's end": lambda t: accounts.revoke_key(t, "default", key_id, "a test"),
        }
        begun, go_on = threading.Event(), threading.Event()
        busy = asyncio.create_task(writer.write(lambda t: (begun.set(), go_on.wait(30))))
        await asyncio.to_thread(begun.wait, 30)
        changing = asyncio.create_task(writer.write(jobs[job]))
        await asyncio.sleep(0)
        writer.arrivals._not_before = float("inf")
        event_ = asyncio.create_task(called(service, 1, "c-1"))
        await asyncio.sleep(0.1)
        commit, commits = store.peewee.commit, 0

        def failing() -> None:
            nonlocal commits
            commits += 1
            if commits == 2:
                raise peewee.OperationalError("disk I/O error")
            commit()

        store.peewee.commit = failing  # type: ignore[method-assign]
        go_on.set()
        await busy
        with pytest.raises(DatabaseUnavailable):
            await changing
        assert (await event_).status_code == 503
        store.peewee.commit = commit  # type: ignore[method-assign]
        writer.arrivals._not_before = 0.0
        body = {"scope": "agent", "agentId": "mailer", "reason": "odd"}
        assert (await service.call("admin", "POST", "/v1/halt", body)).status_code == 200
        answer = await called(service, 2, "c-2")
        assert answer.status_code == 200, "the key is as it was"
        assert answer.json()["toolCallStatus"] == "blocked", "a halt counts from its answer on"
