"""Pipelines on one connection to PostgreSQL: many statements, one way to the server and back.

It knows nothing of transactions. A thread waits for the end of a pipeline by `run`, the event loop by driving
what `end` gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from api.database.errors import Conflict
from api.database.lanes.circuit_breaker import SUSPECT_SECONDS, CircuitBreaker, Silence

Statement = tuple[str, Sequence[Any]]
"""Written with `?` marks."""
Rows = list[tuple[Any, ...]]

MOST_PREPARED = 300
"""Statements of a connection; others are not prepared."""
MOST_MARKS = 32
"""In a statement that is prepared, save inserts: with more it is a list, and the next one is longer."""
DEADLINE = 11.0
"""Seconds for one pipeline; longer than any wait for a lock, see `locks.py`."""
AGAIN = frozenset(("40001", "40P01"))
"""SQLSTATEs of a transaction that others stood in the way of: it is made again."""
GUARDS = "GV"
"""What the SQLSTATEs of guards begin with, see `guards.py`."""


class BoundedConnection(Connection[Any]):
    """A connection on which nothing waits for ever, neither for a server that stands still nor for a network
    that takes bytes and brings none."""

    patience = DEADLINE
    """Seconds without a byte from the server."""
    breaker: CircuitBreaker | None = None

    def wait(self, gen: PQGen[Any], *further: Any, **options: Any) -> Any:
        try:
            return super().wait(self._bounded(gen), *further, **options)
        except Silence:
            self.close()
            raise

    def _bounded(self, steps: PQGen[Any]) -> PQGen[Any]:
        """The same, ended by `Silence` when nothing is heard for too long."""
        heard = monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if ready:
                    heard = monotonic()
                else:
                    self._silent_for(monotonic() - heard)
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value

    def _silent_for(self, seconds: float) -> None:
        if seconds > self.patience:
            raise Silence
        if self.breaker is None or self.patience == math.inf:
            return
        self.breaker.check()
        if seconds > SUSPECT_SECONDS:
            self.breaker.suspect()


class Session:
    """Pipelines on one connection. Statements are prepared when they are first run.

    The driver could do both; it would wait for the socket once for each statement, and each time it might
    have to wait for the interpreter too, which the event loop holds.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self.connection = connection
        # Its way to forget what it has prepared would take away what we have.
        connection.prepare_threshold = None
        self.open = False
        """Something was pushed whose results are to come."""
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._fresh: dict[tuple[str, tuple[int, ...]], bytes] = {}
        """Prepared in the open pipeline."""
        self._kept: list[bool] = []
        """Of the results to come, whether they are a statement's, not its preparation's."""
        self._names = map(f"governance_{token_hex(6)}_{{}}".format, count())
        """INVARIANT: no other session names a statement so; what a pooler has run in the wrong session fails,
        instead of being something else."""

    def push(self, statements: Sequence[Statement]) -> None:
        """Send statements, or what the socket takes of them, and wait for nothing."""
        writer = Transformer(self.connection)
        dumped = []
        for sql, parameters in statements:
            values = writer.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
            dumped.append((sql, values, writer.types or (), writer.formats))
        with self._closed_if_it_fails():
            if not self.open:
                self.connection.pgconn.enter_pipeline_mode()
                self.open = True
            for each in dumped:
                self._send(*each)
            self.connection.pgconn.flush()

    def _send(self, sql: str, values: Any, types: tuple[int, ...], formats: Any) -> None:
        wire, key = self.connection.pgconn, (sql, types)
        name = self._prepared.get(key) or self._fresh.get(key)
        room = len(self._prepared) + len(self._fresh) < MOST_PREPARED
        if name is None and room and (len(values) <= MOST_MARKS or sql.startswith("INSERT")):
            name = self._fresh[key] = next(self._names).encode()
            wire.send_prepare(name, _numbered(sql), types)
            self._kept.append(False)
        if name is None:
            wire.send_query_params(_numbered(sql), values, types, formats)
        else:
            wire.send_query_prepared(name, values, formats)
        self._kept.append(True)

    def run(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Run what was pushed and these, up to the end of the pipeline; raises the first error."""
        self.push(statements)
        with self._closed_if_it_fails():
            results = self.connection.wait(self.end())
        return self.ended(results)

    def end(self) -> PQGen[list[PGresult]]:
        """The end of the pipeline: waits for its results, which are for `ended`. Whoever drives it closes the
        connection when it fails."""
        self.connection.pgconn.pipeline_sync()
        return _results(self.connection.pgconn, monotonic() + DEADLINE)

    def ended(self, results: list[PGresult]) -> list[PGresult]:
        """Of each statement; raises the first error."""
        wire = self.connection.pgconn
        with self._closed_if_it_fails():
            if wire.status == ConnStatus.OK:
                wire.exit_pipeline_mode()
        fresh, kept = self._fresh, self._kept
        self.open, self._fresh, self._kept = False, {}, []
        for result in results:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                self._prepared.clear()
                state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
                if state in AGAIN or state.startswith(GUARDS):
                    raise Conflict(state)
                raise error_from_result(result, self.connection.info.encoding)
        if len(results) != len(kept):
            self.connection.close()
            raise OperationalError(f"{len(kept)} statements had {len(results)} results")
        self._prepared |= fresh
        return [result for result, wanted in zip(results, kept, strict=True) if wanted]

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        """Nobody would know what is still under way."""
        try:
            yield
        except BaseException:
            self.open = False
            self.connection.close()
            raise


def _numbered(sql: str) -> bytes:
    """A statement with `$1`, `$2` and so on for its marks."""
    first, *others = sql.split("?")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))).encode()


def _results(wire: PGconn, deadline: float) -> PQGen[list[PGresult]]:
    """Send what is not sent yet, and wait for what comes up to the end of the pipeline.

    INVARIANT: it ends. The driver has no result for ever when the connection is dead and nobody says so.
    """
    results: list[PGresult] = []
    unsent = wire.flush()
    while True:
        ready = yield Wait.RW if unsent else Wait.R
        if ready & Ready.R:
            try:
                wire.consume_input()
            except OperationalError:
                if results and results[-1].status == ExecStatus.FATAL_ERROR:
                    return results  # why the server has hung up
                raise
        if unsent:
            unsent = wire.flush()
        nothing = False
        while not wire.is_busy():
            result = wire.get_result()
            if result is None:  # between two statements, or there is no more for now
                if nothing:
                    break
                nothing = True
                continue
            nothing = False
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)
        if wire.status != ConnStatus.OK:
            raise OperationalError("the connection is lost")
        if monotonic() > deadline:
            raise Silence
