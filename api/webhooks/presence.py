"""Whether other processes send deliveries of this database: a lock that ends with the process that holds it.

Each sender holds the lock shared for as long as it lives. Whoever gets it alone knows that nobody else is
sending, so that every lease found in the table belongs to a process that has died. Where it cannot be known,
the answer is that there are others: then the leases run out by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

import psycopg

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.postgres import Postgres

log = logging.getLogger("governance")

LOCK: Final = 0x5E4D
"""Advisory lock number on PostgreSQL (arbitrary, fixed)."""


class Presence:
    """One sender; `enter` and `leave` may be called from any thread."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._file: int | None = None
        self._session: psycopg.Connection | None = None

    def enter(self) -> bool:
        """Be counted from now on; True when no other sender lives. Raises DatabaseUnavailable."""
        self.leave()
        if self._store.is_sqlite:
            return self._lock_file()
        try:
            return self._lock_on_server()
        except (psycopg.Error, OSError) as error:
            self.leave()
            raise DatabaseUnavailable("the database cannot be reached; try again shortly") from error

    def leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
            self._session = None

    def _lock_file(self) -> bool:
        if os.name == "nt":
            return False
        import fcntl

        path = f"{self._store.path}.senders"
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning(
                "`%s` cannot be opened (%s): deliveries that a process left behind wait until their time has "
                "run out; delete it or mend its mode",
                path,
                error.strerror,
            )
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone = False
        else:
            alone = True
        fcntl.flock(self._file, fcntl.LOCK_SH)
        return alone

    def _lock_on_server(self) -> bool:
        assert isinstance(self._store.peewee, Postgres)
        self._session = self._store.peewee.connected()
        row = self._session.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
        alone = row is not None and bool(row[0])
        self._session.execute("SELECT pg_advisory_lock_shared(%s)", (LOCK,))
        if alone:
            self._session.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
        return alone
