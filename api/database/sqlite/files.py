"""The connections to an SQLite database, and whether its files are still those that they were opened with.

An open connection goes on with files that were removed or replaced, and so would acknowledge what nobody
will find again, or mix one database with the log of another. So each looks before it is used. Where all three
files - the database, the log beside it (`-wal`) and the index of the log (`-shm`) - were exchanged for a
whole database, that is the database from now on, unless it lacks what was signed. Where only some were,
nothing more is taken until a new start; what the log holds is copied into the database that it belongs to, as
far as that is sure to be right. The same holds for a database that was written over in its place
(`written_over.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import peewee

from api.database.errors import DatabaseUnavailable, translated
from api.database.sqlite.written_over import WrittenOver

PAGE = 8_192
"""Bytes of one, in a new database. Measured: smaller ones cost more writes, larger ones more bytes for each
index entry."""
GONE = "the database file is gone; put it back"

Identity = tuple[int, int]
"""Device and inode."""

_TAKEN: Final[Identity] = (-1, -1)
"""Of no file."""


def identity(path: Path) -> Identity | None:
    """None: there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def resolved(path: Path) -> Path:
    """Where the database file is. SQLite keeps its log beside that, and not beside a link to it."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def refuse_gone(url: str) -> None:
    """Before a process that is not the first of its service opens a database: where it is not, a new one
    would be made in its place. Raises DatabaseUnavailable."""
    if not url.startswith("sqlite:///"):
        return
    path = Path(url.removeprefix("sqlite:///"))
    try:
        if path.stat().st_size:
            return
    except FileNotFoundError:
        pass
    except OSError as error:
        raise translated(error, url) from None
    made = DatabaseUnavailable(GONE)
    made.operator_message = (
        f"the database `{path}` is gone, or empty, while the service runs, and a worker that begins anew "
        "would make another one in its place, without the halts and keys of before; so all of them stop. Put "
        "it back, such as by mounting its folder again, before you start the service again"
    )
    raise made


def beside_database(path: Path) -> tuple[Path, Path]:
    """Its log, and the index of that."""
    return Path(f"{path}-wal"), Path(f"{path}-shm")


class Identities(NamedTuple):
    """Which files lie there; None: none."""

    database: Identity | None = None
    log: Identity | None = None
    log_index: Identity | None = None
    written_over: bool = False


class _Connection(sqlite3.Connection):
    """What its files were when it was opened."""

    files = Identities()
    kept = False
    """See `keep`."""
    overtaken = False
    """Others have another index of the same log, so what this one says of it may be out of date."""
    hasty = False
    """It fails at once where it would wait for another process."""

    def keep(self) -> None:
        """From now on its index counts as taken, even if it is the same again, and nothing closes it: SQLite
        would copy the log by an index that others did not follow."""
        self.kept = True
        self.files = self.files._replace(log_index=_TAKEN)


class SqliteFile(peewee.SqliteDatabase):
    """One process's connections, one for each thread."""

    def __init__(self, path: Path, give_up: Callable[[], None]) -> None:
        """`give_up` closes this thread's connection, if it has one, and counts that it was lost."""
        self.path = path
        self.made = False
        """The tables are there, so from now on there is a file."""
        self._give_up = give_up
        self._beside = beside_database(path)
        self.written_over = WrittenOver(path, self._beside[1])
        self._found: Identity | None = None
        """The file that was found last, by any thread."""
        self._open: dict[_Connection, threading.Thread] = {}
        """INVARIANT: nothing but `_close` closes them, not even the end of the process. To close the last one
        copies the log into what lies there then."""
        self._listing = threading.Lock()
        self.complaint: Callable[[], str | None] = lambda: None
        """What a database lacks that has come back after it was gone, or has taken the place of another."""
        self._was_gone = False
        self._log_copied = False
        """What a log held that was taken away is in its database."""
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
                # What undoes a part of a transaction grows beyond memory else, into a file in a folder for
                # such files: where that has no room, the disk of the database looks full.
                "temp_store": "memory",
            },
            isolation_level=None,
            factory=_Connection,
            check_same_thread=False,  # for `close_ended`
        )

    @property
    def is_open(self) -> bool:
        """Whether any thread has a connection."""
        with self._listing:
            return bool(self._open)

    def files(self) -> Identities:
        """What lies there now."""
        log, log_index = map(identity, self._beside)
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return Identities(None, log, log_index)
        database, written_over = (found.st_dev, found.st_ino), False
        if log is not None and log_index is not None:
            written_over = self.written_over((*database, *log_index))
        elif self.is_open:  # else the log is gone because nobody had it open
            written_over = self.written_over.before_log_went(database)
        return Identities(database, log, log_index, written_over)

    def _connect(self) -> Any:
        self.close_ended()
        before = self.files()
        if (error := self._trouble(before)) is not None:
            raise error  # it would make another log, or read one that is not its own
        made: _Connection = super()._connect()  # type: ignore[misc]
        made.files = self.files()
        if before.database not in (None, made.files.database):
            super()._close(made)  # type: ignore[misc]
            raise DatabaseUnavailable("the database file was replaced just now; try again shortly")
        with self._listing:
            self._open[made] = threading.current_thread()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        return made

    def close_ended(self) -> None:
        """Close the connections that threads have left open that are not there any more."""
        with self._listing:
            ended = [each for each, thread in self._open.items() if not thread.is_alive()]
        for each in ended:
            self._close(each)

    def _close(self, conn: Any) -> None:
        with contextlib.suppress(OSError):
            self.trouble()  # by which it may have to be kept
        if conn.kept:
            return
        with self._listing:
            if self._open.pop(conn, None) is None:
                return  # closed just now
        super()._close(conn)  # type: ignore[misc]
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(conn))

    def check(self) -> None:
        """Before this thread's connection is used. Raises DatabaseUnavailable.

        INVARIANT: nothing is written to a file that nobody will find again, and no log is read, written or
        copied with another database than its own.
        """
        found = self.files()
        connection: _Connection | None = None if self.is_closed() else self.connection()
        if connection is not None and connection.files == found:
            self._found = found.database
            return
        if found.database is None:
            if not self.made:
                return  # about to be made
            self._was_gone = True
            raise DatabaseUnavailable(GONE)
        if (error := self._trouble(found, connection)) is not None:
            raise error
        replaced = self._found not in (None, found.database)
        if replaced or self._was_gone:
            self._welcome(replaced)
        self._found = found.database
        if replaced or (connection is not None and connection.files.database != found.database):
            self._give_up()  # also in a thread that has no connection to lose
        elif connection is not None:
            connection.files = found  # it had none of the files that are made later

    def _welcome(self, replaced: bool) -> None:
        """Another file is there, or one is there again. It may be older, so that halts would be forgotten;
        what comes back in parts, as from git, may lack its log until that comes."""
        if replaced and (complaint := self.complaint()) is not None:
            raise self._told("the database that lies there now is not whole", complaint)
        self._was_gone = False

    def trouble(self) -> DatabaseUnavailable | None:
        """Why nobody may go on: some of the files of a connection are not there any more."""
        return self._trouble(self.files())

    def _trouble(self, found: Identities, own: _Connection | None = None) -> DatabaseUnavailable | None:
        """`own` is this thread's connection, by which its log can be copied. It stays open, since what
        another thread is about to commit goes there as well."""
        with self._listing:
            opened = list(self._open)
        if found.written_over:
            for each in opened:
                each.keep()  # to close the last one would copy the log into what lies there now
            return self._told(
                "the database file was written over; start the service again",
                f"`{self.path}` was written over while the service ran, such as by `cp`, or its time was "
                "set, such as by `touch`, and nothing is recorded since: stop the service. Was only its "
                f"time set, leave `{self.path}-wal` where it is, which holds what was recorded last, and "
                f"start it again. Else move `{self.path}-wal` and `{self.path}-shm`, which belong to what "
                "was there before, away, put what you mean there once more, and start it again",
            )
        if any(_lies_by_another(each.files, found) for each in opened):
            self._copy_log(own)
            return self._told(
                "the database file was replaced; start the service again",
                f"`{self.path}` was replaced while the service ran, and nothing is recorded since: stop the "
                f"service, delete `{self.path}-wal` and `{self.path}-shm`, which belong to the file that lay "
                "there before, and start it again",
            )
        same = [each for each in opened if each.files.database == found.database]
        log_taken = any(each.files.log not in (None, found.log) for each in same)
        index_taken = any(each.files.log_index not in (None, found.log_index) for each in same)
        if log_taken:
            self._copy_log(own)
            return self._told(
                "the log of the database was taken away; start the service again",
                f"`{self.path}-wal` was removed or replaced while the service ran; "
                + (
                    f"what it held was copied into `{self.path}`, so nothing is lost: stop the service, "
                    f"delete `{self.path}-wal` and `{self.path}-shm` where they lie, and start it again"
                    if self._log_copied
                    else f"do not end the service by force before what it held was copied into `{self.path}`"
                ),
            )
        if index_taken:
            for each in same:
                each.keep()
                each.overtaken = each.overtaken or found.log_index is not None
            return self._told(
                "the index of the database's log was taken away; start the service again",
                f"`{self.path}-shm` was removed or replaced while the service ran; nothing is lost: stop the "
                f"service, leave `{self.path}-wal` where it is, and start it again",
            )
        return None

    def _copy_log(self, own: _Connection | None) -> None:
        """Into the database that it belongs to, which `own` has open wherever it lies now."""
        if own is not None:
            self._log_copied = not own.overtaken and _copied(own)

    @staticmethod
    def _told(message: str, operator_message: str) -> DatabaseUnavailable:
        made = DatabaseUnavailable(message)
        made.operator_message = operator_message
        return made


@contextlib.contextmanager
def any_text(database: peewee.Database) -> Iterator[None]:
    """On this thread's connection a text that is no UTF-8, which only somebody else can have put there, reads
    as another text instead of failing."""
    connection = database.connection() if isinstance(database, SqliteFile) else None
    if connection is not None:
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        if connection is not None:
            connection.text_factory = str


def _lies_by_another(own: Identities, found: Identities) -> bool:
    """Whether the log, or its index, of a connection lies beside another database than its own."""
    if own.database == found.database:
        return False
    log, index = found.log is not None, found.log_index is not None
    return (log and found.log == own.log) or (index and found.log_index == own.log_index)


def _copied(connection: sqlite3.Connection) -> bool:
    try:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error:
        return False
    return not busy
