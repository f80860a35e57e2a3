"""A lane of the event loop: one connection, one pipeline at a time, and nobody waits for it.

A pipeline without `BEGIN` is one transaction: it is committed at its end when all of it has succeeded, and
undone when a statement fails, so that no lock outlives a failure. INVARIANT: committed is only what the end
of the pipeline has confirmed; a connection that is lost before leaves the outcome unknown, and its lane
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import Error
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from api.database.lanes.circuit_breaker import SUSPECT_SECONDS, Silence
from api.database.lanes.lease import Lane, lease
from api.database.lanes.session import BoundedConnection, Rows, Session, Statement
from api.database.postgres import WITH_TRANSACTION_TIMEOUT, Postgres

SECONDS = 6.0
"""For one pipeline, with its waits for locks, see `guards.LOCK_TIMEOUT`."""
Ended = Callable[[Exception | None], None]
"""Told on the loop how a pipeline ended; None: it is committed."""


class LoopLane:
    """Opened on any thread (`opened`), then used on the loop alone."""

    def __init__(self, connection: BoundedConnection, lane: Lane, owner: str) -> None:
        self.lane = lane
        self.owner = owner
        self._session = Session(connection)
        self._breaker = connection.breaker
        self._fd = connection.fileno()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Ended | None = None
        self._waits: PQGen[list[PGresult]] | None = None
        self._writes = False
        self._timer: asyncio.TimerHandle | None = None
        self.on_loss: Callable[[LoopLane], None] = lambda lane: None
        """Told when an idle connection is lost."""

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._fd, self._ready, Ready.R)

    def run(self, statements: Sequence[Statement], ended: Ended) -> None:
        """One transaction. `ended` may be told at once."""
        assert self._loop is not None and self._waits is None
        self._ended = ended
        try:
            self._session.push(statements)
            self._waits = self._session.end()
            wait = next(self._waits)
        except Exception as error:  # what cannot be sent, too, must not keep those who wait
            self._lost(error)
            return
        self._timer = self._loop.call_later(SUSPECT_SECONDS, self._suspect)
        self._watch(wait)

    def _suspect(self) -> None:
        assert self._loop is not None
        if self._breaker is not None:
            self._breaker.suspect()
        self._timer = self._loop.call_later(SECONDS - SUSPECT_SECONDS, self._lost, Silence())

    def _ready(self, ready: Ready) -> None:
        if self._waits is None:
            self._look_idle()
            return
        try:
            wait = self._waits.send(ready)
        except StopIteration as stop:
            self._finish(stop.value)
        except (Error, OSError) as error:
            self._lost(error)
        else:
            self._watch(wait)

    def _look_idle(self) -> None:
        """Nothing was asked: the server says something, most likely good-bye."""
        try:
            wire = self._session.connection.pgconn
            wire.consume_input()
            if wire.status == ConnStatus.OK:
                return
        except (Error, OSError):
            pass
        self.close()
        self.on_loss(self)

    def _watch(self, wait: Wait) -> None:
        writes = bool(wait & Wait.W)
        if writes != self._writes and self._loop is not None:
            self._writes = writes
            if writes:
                self._loop.add_writer(self._fd, self._ready, Ready.W)
            else:
                self._loop.remove_writer(self._fd)

    def _finish(self, results: list[PGresult]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waits = self._timer = None
        self._watch(Wait.R)
        try:
            self._session.ended(results)
        except Exception as error:
            if self._session.connection.closed:
                self.close()
            self._tell(error)
        else:
            self._tell(None)

    def give_up(self) -> None:
        """The database is silent: what is under way ends, and the lane with it."""
        self._lost(Silence())

    def _lost(self, error: Exception) -> None:
        self.close()
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)

    def close(self) -> None:
        if self.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waits = self._timer = None
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._writes:
                self._loop.remove_writer(self._fd)
        self._fd = -1
        with contextlib.suppress(Error):
            self._session.connection.close()


def opened(database: Postgres, owner: str) -> LoopLane:
    """On a thread that may wait. Raises psycopg.Error."""
    connection = database.connected()
    try:
        connection.execute(f"SET statement_timeout = '{SECONDS:.0f}s'")
        if connection.info.server_version >= WITH_TRANSACTION_TIMEOUT:
            connection.execute(f"SET transaction_timeout = '{SECONDS:.0f}s'")

        def ask(statement: str, parameters: Sequence[Any]) -> Rows:
            return connection.execute(statement.replace("?", "%s").encode(), parameters).fetchall()

        with connection.transaction():
            lane = lease(ask, owner)
    except BaseException:
        connection.close()
        raise
    return LoopLane(connection, lane, owner)
