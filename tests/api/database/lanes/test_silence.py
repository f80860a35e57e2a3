"""A database that falls silent: the breaker opens when a probe meets silence too, and nobody waits twice."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.pq import ConnStatus
from psycopg.waiting import Ready

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.lanes import circuit_breaker
from api.database.lanes.circuit_breaker import CircuitBreaker, Silence
from api.database.lanes.deadlines import Deadlines
from api.database.lanes.session import DEADLINE, _results
from tests.harness.waiting import until


class Probe:
    """Raises what it is told to, each time it is let go on."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.asked.release()
        assert self.goes_on.acquire(timeout=60)
        if self.error is not None:
            raise self.error

    def ends(self, error: Exception | None) -> None:
        assert self.asked.acquire(timeout=60)
        self.error = error
        self.goes_on.release()


CLOSED = psycopg.OperationalError("connection failed: server closed the connection unexpectedly")
"""What psycopg 3.3 says, after 3 seconds, of a host whose network knows no way to it any more."""


@pytest.mark.parametrize("error", [Silence(), psycopg.errors.ConnectionTimeout("too late"), CLOSED])
def test_it_opens_by_silence_and_closes_by_an_answer(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(circuit_breaker, "SLOW_SECONDS", 0)
    probe, opened = Probe(), threading.Event()
    breaker = CircuitBreaker(probe)
    breaker.on_open = opened.set
    breaker.check()
    breaker.suspect()
    breaker.suspect()
    probe.ends(error)
    assert opened.wait(60) and breaker.is_open
    with pytest.raises(Silence):
        breaker.check()
    probe.ends(error)
    assert breaker.is_open
    probe.ends(None)
    until(lambda: not breaker.is_open)
    assert not probe.asked.acquire(blocking=False), "one probe at a time"


@pytest.mark.parametrize("error", [None, psycopg.OperationalError("refused"), OSError("no way"), CLOSED])
def test_a_database_that_says_anything_opens_it_never(error: Exception | None) -> None:
    """Or is not there, which whoever connects is told at once."""
    probe = Probe()
    breaker = CircuitBreaker(probe)
    breaker.on_open = lambda: pytest.fail("it opened")
    breaker.suspect()
    probe.ends(error)
    until(lambda: not breaker._probing)
    assert not breaker.is_open
    breaker.suspect()
    assert not probe.asked.acquire(blocking=False), "not so soon again"


@pytest.mark.postgres
def test_while_it_is_open_nobody_asks_the_database(postgres_url: str) -> None:
    store = Database(postgres_url)
    breaker: Any = store.peewee.breaker  # type: ignore[attr-defined]
    assert store.read_here(store.rows, "SELECT 1")
    breaker.is_open = True
    with pytest.raises(DatabaseUnavailable), store.transaction():
        raise AssertionError("a transaction has begun")
    with pytest.raises(DatabaseUnavailable):
        store.read_here(pytest.fail)
    breaker.is_open = False
    assert store.read_here(store.rows, "SELECT 1")
    store.close()


def test_nobody_connects_for_ever() -> None:
    """The other end takes the connection and says nothing."""
    told: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = Database(f"postgresql://somebody@127.0.0.1:{server.getsockname()[1]}/none")

        def connect() -> None:
            try:
                store.peewee.connected()  # type: ignore[attr-defined]
            except psycopg.OperationalError as error:
                told.append(error)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(2 * DEADLINE)
    assert [type(error) for error in told] == [psycopg.errors.ConnectionTimeout]


class Wire:
    """A connection that is asked for results and never has any, as one that is dead."""

    def __init__(self, status: ConnStatus) -> None:
        self.status = status

    def flush(self) -> int:
        return 0

    def consume_input(self) -> None:
        """There is something to read, over and over."""

    def is_busy(self) -> int:
        return 0

    def get_result(self) -> None:
        return None


@pytest.mark.parametrize(
    ("status", "seconds", "error"),
    [(ConnStatus.BAD, DEADLINE, psycopg.OperationalError), (ConnStatus.OK, 0.0, Silence)],
)
def test_a_pipeline_that_has_no_result_for_ever_ends(
    status: ConnStatus, seconds: float, error: type[Exception]
) -> None:
    wire: Any = Wire(status)
    waits = _results(wire, time.monotonic() + seconds)
    next(waits)
    with pytest.raises(error):
        waits.send(Ready.R)


class LaterLoop:
    """An event loop of which only the time is wanted."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        self._calls.append((self.now + seconds, function, arguments))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [call for call in self._calls if call[0] <= end]:
            call = min(due, key=lambda each: each[0])
            self._calls.remove(call)
            self.now = call[0]
            call[1](*call[2])
        self.now = end

    @property
    def rests(self) -> bool:
        return not self._calls


def test_each_is_told_once_and_in_time() -> None:
    later = LaterLoop()
    loop: asyncio.AbstractEventLoop = later  # type: ignore[assignment]
    deadlines = Deadlines()
    told: list[tuple[str, Any]] = []
    first = deadlines.bounded(lambda result: told.append(("first", result)), loop)
    later.advance(DEADLINE - 1)
    second = deadlines.bounded(lambda result: told.append(("second", result)), loop)
    second("an answer")
    third = deadlines.bounded(lambda result: told.append(("third", result)), loop)
    assert told == [("second", "an answer")]
    later.advance(2)
    assert [name for name, _ in told] == ["second", "first"]
    assert isinstance(told[1][1], DatabaseUnavailable)
    first("too late")
    third("in time")
    assert [name for name, _ in told] == ["second", "first", "third"]
    later.advance(DEADLINE)
    assert later.rests
