"""The write lock over all processes: a file lock beside an SQLite database, an advisory lock on PostgreSQL.

INVARIANT: nobody waits for ever: a sibling that was stopped while it held the lock (SIGSTOP, a debugger, a
frozen container) would otherwise hang every event of every process, and nobody would be told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import peewee

from api.database.errors import DatabaseUnavailable
from api.database.postgres import Postgres, Rows, Statement

log = logging.getLogger("governance")

ADVISORY_LOCK = 0x60BE_4A9C
"""Its number on PostgreSQL (arbitrary, fixed)."""
LOCK_SECONDS = 10.0
"""How long a transaction waits for the lock that another process holds."""
LOCK_SECONDS_AGAIN = 1.0
"""The same once a wait was in vain, so that a queue of requests fails soon."""
SILENT_SECONDS = 20
"""A node that held the lock on PostgreSQL in silence for so long has stopped or is out of reach."""

_LOCK = "SELECT set_config('lock_timeout', ?, true), pg_advisory_xact_lock(?)"
_END_SILENT = (
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = %s"
    " AND a.datname = current_database() AND a.wait_event = 'ClientRead'"
    " AND a.state_change < now() - make_interval(secs => %s)"
)


class FileLock:
    """Of one process with SQLite. All raise DatabaseUnavailable when the lock cannot be had in time."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}.lock")
        self._file: int | None = None
        self._stuck = False
        """The last wait was in vain."""

    @contextlib.contextmanager
    def held(self, *, wait: bool = True) -> Iterator[None]:
        if os.name == "nt":
            yield
            return
        import fcntl

        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + (LOCK_SECONDS_AGAIN if self._stuck else LOCK_SECONDS)
        pause = 0.0002
        # `flock` knows no time limit, so it is asked again and again; a group commit takes milliseconds.
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait:
                    raise DatabaseUnavailable("another process writes; try again shortly") from None
                if time.monotonic() >= deadline:
                    raise self._given_up() from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.002)
        self._stuck = False
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _given_up(self) -> DatabaseUnavailable:
        made = DatabaseUnavailable("another process holds the database; try again shortly")
        made.operator_message = (
            f"another process holds `{self._path}` and does not go on; continue it or end it"
        )
        if not self._stuck:
            log.warning("%s", made.operator_message)
        self._stuck = True
        return made

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ServerLock:
    """Of one process with PostgreSQL, in its open transaction.

    The server holds the lock of a node that lost its power for hours, so whoever waits in vain ends the
    session of a holder that has been silent for long; what it had not committed is undone.
    """

    def __init__(self, database: Postgres, url: str) -> None:
        self._database = database
        self._url = url
        self._stuck = False
        """The last wait was in vain."""

    def take(self, first: Sequence[Statement]) -> list[Rows]:
        """Take the lock up to the end of the transaction; returns the rows of the first statements."""
        seconds = LOCK_SECONDS_AGAIN if self._stuck else LOCK_SECONDS
        self._database.later(_LOCK, (f"{seconds:.0f}s", ADVISORY_LOCK))
        try:
            found = self._database.answers(first)
        except peewee.OperationalError as error:
            if getattr(getattr(error, "orig", None), "sqlstate", "") == "55P03":  # lock not available
                self._stuck = True
                self._end_silent_holder()
            raise
        self._stuck = False
        return found

    def _end_silent_holder(self) -> None:
        from psycopg import Error, connect

        with (
            contextlib.suppress(Error),
            connect(self._url, autocommit=True, connect_timeout=5) as connection,
        ):
            if connection.execute(_END_SILENT, (ADVISORY_LOCK, SILENT_SECONDS)).fetchall():
                log.warning("a node that held the database in silence for %s s was cut off", SILENT_SECONDS)

    @contextlib.contextmanager
    def over_transactions(self) -> Iterator[None]:
        """The lock over several transactions, for tables that are made in steps."""
        self._database.execute_sql("SELECT pg_advisory_lock(%s)", (ADVISORY_LOCK,))
        try:
            yield
        finally:
            # A connection that broke has given the lock back already.
            with contextlib.suppress(peewee.PeeweeException):
                self._database.execute_sql("SELECT pg_advisory_unlock(%s)", (ADVISORY_LOCK,))
