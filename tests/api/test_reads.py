"""What one API key reads: in turns, counted, once for all who wait for the same, no more than it takes in;
and what waits for news gives way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from api import reads
from api.audit import records, verification
from api.caller import Caller
from api.database.errors import DatabaseUnavailable
from api.handlers import agents
from api.http.exchange import Reply
from api.ingestion.quotas import OverQuota
from api.loops import knowing
from api.store import accounts, runs
from api.updates.waits import MOST_STREAMS, Waits
from tests.harness.application import PASSWORD, PEOPLE, Service, event
from tests.harness.conversation import check_shape

KEY = Caller("key", "default", key_id="k")
CALL = {"toolCallId": "c1", "toolName": "look", "inputPayload": {}, "runId": "r"}


@contextlib.asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path) as service:
        await service.call("agent", "POST", "/v1/events", event(1, "tool.called", service.clock.text, CALL))
        yield service


def slowed(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, threads: str = ""
) -> threading.Event:
    """What lets a function go on in threads of this name."""
    go, function = threading.Event(), getattr(module, name)

    def slowly(*arguments: Any) -> Any:
        if threading.current_thread().name.startswith(threads):
            go.wait(60)
        return function(*arguments)

    monkeypatch.setattr(module, name, slowly)
    return go


@contextlib.asynccontextmanager
async def held(service: Service, who: str, paths: list[str], *go: threading.Event) -> AsyncIterator[None]:
    """Requests that are answered only when nothing else is asked any more."""
    tasks = [asyncio.create_task(service.call(who, "GET", path)) for path in paths]
    await asyncio.sleep(0.1)
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for each in go:
            each.set()
    assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}


async def test_reads_of_a_key_hold_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slowed(monkeypatch, runs, "find_run", "reads")
    async with serving(tmp_path) as service, held(service, "agent", ["/v1/runs/r"] * 40, go):
        answer = await service.call("admin", "POST", "/v1/halt", {"agentId": "q"})
        assert answer.is_success
        for who, path in (("viewer", "/v1/runs/r"), ("second agent", "/v1/runs")):
            assert (await service.call(who, "GET", path)).status_code == 200


async def test_reads_of_a_person_hold_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = slowed(monkeypatch, runs, "find_run", "people")
    async with serving(tmp_path) as service, held(service, "viewer", ["/v1/runs/r"] * 40, go):
        for who, path in (("viewer", "/v1/me"), ("admin", "/v1/runs"), ("agent", "/v1/runs/r")):
            assert (await service.call(who, "GET", path)).status_code == 200
        assert (await service.call("nobody", "GET", "/health")).status_code == 200


@pytest.mark.parametrize(
    ("who", "path", "module", "name"),
    [
        ("viewer", "/v1/agents", agents, "_listed"),
        ("other admin", "/v1/audit?toolName=x", records, "list_records"),
    ],
)
async def test_lists_that_one_person_asks_for_at_once_hold_up_nobody_elses(
    who: str, path: str, module: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = slowed(monkeypatch, module, name)
    async with serving(tmp_path) as service, held(service, who, [path] * 40, go):
        for other in ("/v1/approvals", "/v1/alerts", "/v1/runs", "/v1/halts"):
            assert (await service.call("reviewer", "GET", other)).status_code == 200


async def test_lists_of_people_hold_up_neither_logins_nor_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = slowed(monkeypatch, accounts, "list_users")
    verified = slowed(monkeypatch, verification, "verify")
    asked = ["/v1/users"] * 20 + ["/v1/audit/verify"] * 8
    async with serving(tmp_path) as service, held(service, "admin", asked, listed, verified):
        assert (await service.call("nobody", "GET", "/health")).status_code == 200
        assert (await service.call("nobody", "GET", "/health/ready")).status_code == 200
        assert (await service.call("viewer", "GET", "/v1/me")).status_code == 200
        login = {"email": PEOPLE["viewer"][1], "password": PASSWORD}
        assert (await service.call("nobody", "POST", "/auth/login", login)).status_code == 200


@pytest.mark.parametrize(
    ("who", "path", "module", "name"),
    [
        ("agent", "/v1/runs/r", runs, "find_run"),
        ("viewer", "/v1/agents", agents, "_listed"),
        ("admin", "/v1/audit?toolName=x", records, "list_records"),
        ("admin", "/v1/audit/verify", verification, "verify"),
    ],
)
async def test_the_log_says_why_what_callers_read_is_503(
    who: str,
    path: str,
    module: ModuleType,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where the database lets nobody in anew, events and halts go on over the connections that are there:
    health was well, lists were 503, and nothing told why."""

    def refused(*_: object) -> None:
        made = DatabaseUnavailable("try again shortly")
        made.operator_message = "too many clients already"
        raise made

    async with serving(tmp_path) as service:
        with monkeypatch.context() as patched:
            patched.setattr(module, name, refused)
            assert (await service.call(who, "GET", path)).status_code == 503
            assert (await service.call(who, "GET", path)).status_code == 503
        assert (await service.call(who, "GET", path)).status_code == 200
    told = [each for each in caplog.messages if each.startswith("reading from the database")]
    assert told == ["reading from the database waits: too many clients already"]


async def test_a_change_that_many_wait_for_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    find = runs.find_run

    def noted(*arguments: Any) -> Any:
        looked.append(threading.current_thread().name)
        return find(*arguments)

    monkeypatch.setattr(runs, "find_run", noted)
    async with serving(tmp_path) as service:
        waits = [asyncio.create_task(service.call("agent", "GET", "/v1/runs/r?wait=60")) for _ in range(30)]
        await asyncio.sleep(0.3)
        another = event(2, "tool.called", service.clock.text, {**CALL, "toolCallId": "c2"})
        await service.call("agent", "POST", "/v1/events", another)
        for answer in await asyncio.gather(*waits):
            assert [call["toolCallId"] for call in answer.json()["toolCalls"]] == ["c1", "c2"]
            check_shape("GET", "/v1/runs/:id", answer)
        assert len(looked) < 15 and all(name.startswith("reads") for name in looked)


@pytest.mark.parametrize("caller", [KEY, Caller("user", "default", user_id="u")])
async def test_who_reads_nothing_of_its_answers_gets_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: Caller
) -> None:
    monkeypatch.setattr(reads, "LARGE_ANSWER", 100)
    monkeypatch.setattr(reads, "PIECE", 64)
    monkeypatch.setattr(reads, "MOST_UNREAD", 1_000)
    async with serving(tmp_path) as service:
        bounded = service.context.reads.bounded
        small = Reply(b"x" * 100)
        assert bounded(caller, small) is small
        streams = [bounded(caller, Reply(b"x" * 600)).stream for _ in range(2)]
        first, second = streams
        assert first is not None and second is not None
        assert len(await anext(first)) == 64
        with pytest.raises(OverQuota):
            bounded(caller, Reply(b"x" * 600))
        assert bounded(Caller("key", "default", key_id="other"), Reply(b"x" * 600)).stream is not None
        assert len([piece async for piece in first]) == 9
        assert bounded(caller, Reply(b"x" * 600)).stream is not None
        assert len(b"".join([piece async for piece in second])) == 600
        assert not service.context.reads._unread
        answer = await service.call("agent", "GET", "/v1/runs/r")
        assert int(answer.headers["content-length"]) == len(answer.content) > 100
        assert answer.json()["runId"] == "r" and answer.headers["content-type"] == "application/json"


async def test_the_oldest_wait_of_a_key_gives_way() -> None:
    waits = Waits(8)
    person = Caller("user", "default", user_id="u")
    assert not waits.make_room()
    with waits.place(person, 60) as theirs:
        places = [waits.place(KEY, 60) for _ in range(6)]
        ended = [place.__enter__() for place in places]
        assert [each.done() for each in ended] == [True] * 2 + [False] * 4
        with waits.place(KEY, 0) as none:  # who does not wait takes no place
            assert not none.done() and not ended[2].done()
        assert waits.make_room() and ended[2].done() and not theirs.done()
        for place in places:
            place.__exit__(None, None, None)
        assert waits.make_room() and theirs.done()
    assert not waits._waiting


async def test_a_wait_whose_client_has_gone_makes_no_room() -> None:
    """The client gave it up before its time was over; its connection is free already."""
    waits, gone = Waits(100), False
    with contextlib.ExitStack() as open_ones:
        theirs = open_ones.enter_context(waits.place(Caller("user", "default", user_id="u"), 60))
        given_up = [
            knowing(lambda: gone).run(open_ones.enter_context, waits.place(KEY, 60)) for _ in range(3)
        ]
        gone = True
        assert waits.make_room() and theirs.done()
        assert not waits.make_room() and all(each.done() for each in given_up)


async def test_a_person_has_few_streams_and_polls_all_the_same() -> None:
    waits = Waits(1_000)
    person = Caller("user", "default", user_id="u")
    with contextlib.ExitStack() as open_ones:
        streams = [open_ones.enter_context(waits.stream(person)) for _ in range(MOST_STREAMS + 2)]
        poll = open_ones.enter_context(waits.place(person, 60))
        assert [each.done() for each in streams] == [True] * 2 + [False] * MOST_STREAMS
        assert not poll.done()
        assert waits.make_room() and streams[2].done()
    assert not waits._waiting


async def test_a_wait_that_gives_way_is_answered_with_the_present_state(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        wait = asyncio.create_task(service.call("agent", "GET", "/v1/runs/r?wait=200"))
        await asyncio.sleep(0.2)
        assert not wait.done() and service.context.waits.make_room()
        answer = await asyncio.wait_for(wait, 20)
        assert answer.status_code == 200 and answer.json()["toolCalls"][0]["toolCallId"] == "c1"


async def test_a_read_that_a_stop_ends_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server cancels what is under way 15 seconds after it was told to stop."""
    async with serving(tmp_path) as service:
        go = slowed(monkeypatch, verification, "verify")
        read = asyncio.create_task(service.call("admin", "GET", "/v1/audit/verify"))
        await asyncio.sleep(0.2)
        read.cancel()
        answer = await read
        go.set()
        assert answer.status_code == 503 and answer.json()["code"] == "unavailable"
        assert "the service stops" in answer.json()["detail"]
