"""The connections to an SQLite database, and whether its files are still those that they were opened with.

An open connection goes on with a file that was removed or replaced, and so would acknowledge what nobody will
find again. So each looks before it is used: where the database file is another one, it is left; where only
the log beside it (`-wal`) is, what it holds is copied into the database, and nothing more is taken until a
new start.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import peewee

from api.database.errors import DatabaseUnavailable

PAGE = 8_192
"""Bytes of one, in a new database. Measured: smaller ones cost more writes, larger ones more bytes for each
index entry."""

Identity = tuple[int, int]
"""Device and inode."""


def identity(path: Path) -> Identity | None:
    """None: there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _Connection(sqlite3.Connection):
    """What its files were when it was opened."""

    database: Identity | None = None
    log: Identity | None = None
    hasty = False
    """It fails at once where it would wait for another process."""


class SqliteFile(peewee.SqliteDatabase):
    """One process's connections, one for each thread."""

    def __init__(self, path: Path, give_up: Callable[[], None]) -> None:
        """`give_up` closes this thread's connection, if it has one, and counts that it was lost."""
        self.path = path
        self.made = False
        """The tables are there, so from now on there is a file."""
        self._give_up = give_up
        self._log_path = Path(f"{path}-wal")
        self._found: Identity | None = None
        """The file that was found last, by any thread."""
        self._open: WeakSet[_Connection] = WeakSet()
        self._listing = threading.Lock()
        super().__init__(
            str(path),
            pragmas={
                "page_size": PAGE,
                "journal_mode": "wal",
                "synchronous": "full",
                "foreign_keys": 0,
                "busy_timeout": 10_000,
                "cache_size": -65_536,
                # The commit that reaches it copies so many pages, which others wait for; it should not come
                # to that, see `wal_checkpoints.py`.
                "wal_autocheckpoint": 2_000,
                "journal_size_limit": 67_108_864,
            },
            isolation_level=None,
            factory=_Connection,
        )

    def _connect(self) -> Any:
        if self.log_is_lost():
            raise self._log_lost()  # it would make another log, and read that
        made: _Connection = super()._connect()  # type: ignore[misc]
        made.database, made.log = identity(self.path), identity(self._log_path)
        with self._listing:
            self._open.add(made)
        return made

    def _close(self, conn: Any) -> None:
        with self._listing:
            self._open.discard(conn)
        super()._close(conn)  # type: ignore[misc]

    def log_is_lost(self) -> bool:
        """Whether a connection has a log that is not the one beside the database file."""
        with self._listing:
            opened = [each for each in self._open if each.log is not None]
        if not opened:
            return False
        database, found = identity(self.path), identity(self._log_path)
        return any(each.database == database and each.log != found for each in opened)

    def check(self) -> None:
        """Before this thread's connection is used. Raises DatabaseUnavailable.

        INVARIANT: nothing is written to a file that nobody will find again.
        """
        found = identity(self.path)
        if found is None:
            if not self.made:
                return  # about to be made
            self._give_up()
            raise DatabaseUnavailable("the database file is gone; put it back")
        replaced = self._found not in (None, found)
        self._found = found
        connection: _Connection | None = None if self.is_closed() else self.connection()
        if replaced or (connection is not None and connection.database != found):
            self._give_up()  # also in a thread that has no connection to lose
        elif connection is None:
            return
        elif connection.log is None:
            connection.log = identity(self._log_path)
        elif connection.log != identity(self._log_path):
            raise self._log_lost(connection)

    def _log_lost(self, connection: _Connection | None = None) -> DatabaseUnavailable:
        """Copy what the log of this connection holds, which stays open, since what another thread is about to
        commit goes there as well."""
        copied = connection is not None and _copied(connection)
        made = DatabaseUnavailable("the log of the database was taken away; start the service again")
        made.operator_message = f"`{self._log_path}` was removed or replaced while the service ran; " + (
            f"what it held was copied into `{self.path}`, so nothing is lost: stop the service, delete "
            f"`{self._log_path}` and `{self.path}-shm` where they lie, and start it again"
            if copied
            else f"do not end the service by force before what it held was copied into `{self.path}`"
        )
        return made


def _copied(connection: sqlite3.Connection) -> bool:
    try:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error:
        return False
    return not busy
