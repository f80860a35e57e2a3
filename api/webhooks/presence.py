"""Which processes send deliveries of this database: locks that end with the process that holds them.

Each sender holds one lock together with all others, and one of its number, for as long as it lives. Whoever
gets the first alone knows that nobody else is sending, so that every lease found in the table belongs to a
process that has died; and a lease is that of a dead one when the lock of its number is free. Where it cannot
be known, the answer is that they live: then the leases run out by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psycopg

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.postgres import Postgres
from api.database.sqlite.write_lock import opened

log = logging.getLogger("governance")

LOCK: Final = 0x5E4D
"""Advisory lock number on PostgreSQL, and class of the numbers of senders (arbitrary, fixed)."""
_FLOCK: Final = "hhqqi"
"""Of `struct flock`: a lock of one byte belongs to the open file, not to the process."""

_GONE: Final = (
    "SELECT n FROM unnest(%s::int[]) AS w(n) WHERE NOT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database d"
    " ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory'"
    " AND l.classid = %s::oid AND l.objid = w.n::oid AND l.objsubid = 2)"
)


class Presence:
    """One sender; `enter` and `leave` may be called from any thread."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._file: int | None = None
        self._session: psycopg.Connection | None = None
        self.number = secrets.randbits(31)

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

    def gone(self, numbers: Iterable[int]) -> list[int]:
        """Those of other senders that live no more. Raises DatabaseUnavailable."""
        others = [number for number in numbers if number != self.number]
        if self._store.is_sqlite:
            return [number for number in others if self._is_free(number)]
        if self._session is None:
            return []
        try:
            rows = self._session.execute(_GONE, (others, LOCK)).fetchall()
        except (psycopg.Error, OSError) as error:
            raise DatabaseUnavailable("the database cannot be reached; try again shortly") from error
        return [int(number) for (number,) in rows]

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

        path = Path(f"{self._store.path}.senders")
        try:
            self._file = opened(path)
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
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, self._byte(self.number))
        return alone

    def _is_free(self, number: int) -> bool:
        import fcntl

        if self._file is None or not hasattr(fcntl, "F_OFD_GETLK"):
            return False
        found = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, self._byte(number))
        return bool(struct.unpack(_FLOCK, found)[0] == fcntl.F_UNLCK)

    def _byte(self, number: int) -> bytes:
        import fcntl

        return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)

    def _lock_on_server(self) -> bool:
        assert isinstance(self._store.peewee, Postgres)
        self._session = self._store.peewee.connected()
        row = self._session.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
        alone = row is not None and bool(row[0])
        self._session.execute("SELECT pg_advisory_lock_shared(%s)", (LOCK,))
        if alone:
            self._session.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
        self._session.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK, self.number))
        return alone
