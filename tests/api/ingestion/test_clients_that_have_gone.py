"""What waits for its turn is not done for clients that have gone meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from api.auth.passwords import PasswordHasher
from api.ingestion.evaluation import PutOff
from api.ingestion.quotas import ProcessorTime
from api.ingestion.turns import Turns
from api.loops import has_gone, knowing
from api.shared_looks import SharedLooks
from tests.harness.event_connection import FIRST, Connection, Service


def of_client(gone: threading.Event, work: Callable[[], Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work(), context=knowing(gone.is_set))


async def test_work_of_who_has_gone_is_left_out() -> None:
    turns, begun, go, gone = (
        Turns("test", 1, ProcessorTime()),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    done: list[str] = []

    def first() -> None:
        begun.set()
        go.wait(5)

    busy = asyncio.create_task(turns.run("busy", first))
    await asyncio.to_thread(begun.wait, 5)
    crowd = [
        of_client(gone, lambda key=key: turns.run(key, lambda: done.append(key)))  # type: ignore[misc]
        for key in ("a", "b")
    ]
    shared = [
        of_client(which, lambda: turns.run("c", lambda: done.append("c"), name="same"))
        for which in (gone, threading.Event())
    ]
    await asyncio.sleep(0.05)
    gone.set()
    go.set()
    await busy
    await shared[1]
    assert done == ["c"]
    ended = await asyncio.gather(*crowd, shared[0], return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 3
    turns.close()


async def test_no_password_is_looked_at_for_who_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("api.auth.passwords.matches", lambda stored, password: looked.append(password))
    hasher, gone = PasswordHasher(), threading.Event()
    hasher._dummy = "dummy"
    gone.set()
    with pytest.raises(asyncio.CancelledError):
        await of_client(gone, lambda: hasher.matches(None, "of nobody", "address"))
    await hasher.matches(None, "mine", "address")
    assert looked == ["mine"]
    hasher.close()


async def test_a_request_knows_whether_its_client_has_gone() -> None:
    said: list[bool] = []
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said.append(has_gone.get()())
        await go.wait()
        said.append(has_gone.get()())

    connection = Connection(Service(), app=app)
    connection.protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0)
    connection.protocol.connection_lost(None)
    go.set()
    await connection.rest()
    assert said == [False, True]
    assert not has_gone.get()()


async def test_what_several_wait_for_goes_on_when_the_first_of_them_has_gone() -> None:
    turns, looks, gone, go = (
        Turns("test", 1, ProcessorTime()),
        SharedLooks(),
        threading.Event(),
        threading.Event(),
    )

    async def look() -> str:
        await turns.run("busy", lambda: go.wait(5))
        return await turns.run("look", lambda: "found")

    async def together() -> str:
        with looks.together("name", look) as found:
            return await asyncio.shield(found)

    for ask in (together, lambda: looks.of("name", look)):
        go.clear()
        gone.clear()
        first, second = of_client(gone, ask), of_client(threading.Event(), ask)
        await asyncio.sleep(0.05)
        gone.set()
        go.set()
        assert await second == "found"
        await first
    turns.close()


class PutsOff(Service):
    """An event is put off by its first commit, which another request has begun, whose client has gone or
    not."""

    def __init__(self, gone: bool) -> None:
        super().__init__()
        self.gone = gone
        self.put_off: list[Any] = []
        self.evaluated: list[Any] = []
        self.context.intake._evaluator = SimpleNamespace(
            evaluate=self.evaluated.append, expects=lambda event: None
        )

    def ingest_then(self, event: Any, loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None]) -> None:
        if event in self.put_off:
            super().ingest_then(event, loop, settle)
        else:
            self.put_off.append(event)
            loop.call_soon(settle, PutOff(event), context=knowing(lambda: self.gone))


async def test_an_event_is_answered_whoever_was_committed_with_it_and_has_gone() -> None:
    connection = Connection(PutsOff(gone=True))
    connection.protocol.data_received(FIRST)
    async with asyncio.timeout(5):
        while b" 200 " not in connection.wire.written:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("behind", [b"", FIRST], ids=["alone", "another behind it"])
async def test_an_event_that_was_put_off_is_not_evaluated_for_who_has_gone(behind: bytes) -> None:
    service, go = PutsOff(gone=False), threading.Event()
    turns = service.context.intake.turns
    busy = asyncio.create_task(turns.run("busy", lambda: go.wait(5)))
    connection = Connection(service)
    connection.protocol.data_received(FIRST + behind)
    await connection.rest()
    assert len(connection.state.tasks) == 1
    connection.wire.close()
    connection.protocol.connection_lost(None)
    go.set()
    await busy
    async with asyncio.timeout(5):
        while connection.state.tasks:
            await asyncio.sleep(0.001)
    assert not service.evaluated
