"""What waits for its turn is not done for clients that have gone meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from api.auth.passwords import PasswordHasher
from api.auth.shared_looks import SharedLooks
from api.ingestion.quotas import ProcessorTime
from api.ingestion.turns import Turns
from api.loops import has_gone, knowing
from api.updates.waits import Waits
from tests.harness.event_connection import Connection, Service


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
    turns, waits, looks, gone, go = (
        Turns("test", 1, ProcessorTime()),
        Waits(100),
        SharedLooks(),
        threading.Event(),
        threading.Event(),
    )

    async def look() -> str:
        await turns.run("busy", lambda: go.wait(5))
        return await turns.run("look", lambda: "found")

    async def together() -> str:
        with waits.together("name", look) as found:
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
