"""Copies what SQLite has written ahead into the database file, on a thread of its own.

A commit appends pages to the log, and from time to time somebody must copy them to their places and wait for
the disk: with SQLite's own rule, the commit that finds the log too long, and everybody behind it. Here a
thread does it while commits go on. What comes meanwhile is copied in another round, until a round finds
nothing more, which is when the next commit begins the log anew. Should it never catch up, or fail, SQLite's
own rule still holds, at a longer log (`files.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from api.database.sqlite.files import PAGE, Identity, SqliteFile, identity

log = logging.getLogger("governance")

PAGES: Final = 1_000
"""Written since the last time, by a guess: from here on it is worth the waiting for the disk."""
PAGES_OF_A_COMMIT: Final = 8
ROWS_ON_A_PAGE: Final = 4
"""Of what events leave, on average, unless they are large; with what else a commit touches it makes the
guess."""
ROUNDS: Final = 6
LONG: Final = 2**28
"""Bytes of the log from which on somebody is told who keeps it from being begun anew."""


class Checkpoints:
    """One per process with SQLite. `written` may be called from any thread; the thread starts with the first
    work and ends with `close`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._path = path = file.path
        self._growth = FileGrowth(path)
        self._pages = 0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._told = False

    def written(self, rows: int, size: int) -> None:
        """A commit put in so many rows, for events of so many bytes."""
        self._pages += PAGES_OF_A_COMMIT + max(rows // ROWS_ON_A_PAGE, size // PAGE)
        if self._pages >= PAGES:
            self._pages = 0
            if self._thread is None:
                self._start()
            self._wanted.set()

    def _start(self) -> None:
        """INVARIANT: no failure in here makes the commit before it look failed."""
        thread = threading.Thread(target=self._run, name="store-checkpoints", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no room for another one now
            log.warning("the log of the database is not copied: %s; it is tried again", error)
            return
        self._thread = thread

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            try:
                self._copy()
            except (sqlite3.Error, OSError) as error:
                # Nothing is lost by it: the pages stay in the log, and commits have errors of their own.
                log.debug("the log of the database was not copied: %s", error)

    def _copy(self) -> None:
        if self._file.trouble() is not None:
            return  # what lies there is none of ours
        before = identity(self._path)
        place = f"{self._path.absolute().as_uri()}?mode=rw"  # one that was taken away is not made anew
        with contextlib.closing(
            sqlite3.connect(place, uri=True, isolation_level=None, timeout=0)
        ) as connection:
            if identity(self._path) != before or self._file.trouble() is not None:
                return  # INVARIANT: a log is copied into its own database only
            for _ in range(ROUNDS):
                busy, written, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if busy or written == copied:
                    break
            self._look_at_length(written * PAGE, copied < written)
        self._growth.drop_page_cache()

    def _look_at_length(self, size: int, kept: bool) -> None:
        """Whoever reads one state of the database keeps the log from being begun anew, for as long as that
        takes: a shell in which a transaction was left open lets it fill the disk."""
        if not kept:
            self._told = False
        elif size >= LONG and not self._told:
            self._told = True
            log.warning(
                "`%s-wal` has %d MB and grows with each event, for a program reads the database and does not"
                " end its transaction: end that program (`fuser -v %s` says which have it open)",
                self._path,
                size >> 20,
                self._path,
            )


class FileGrowth:
    """What the database file has grown by need not stay in the system's memory. Of one file, for one thread.

    SQLite keeps the pages that it works with by itself, and what events leave behind is seldom read again.
    Left alone, the system keeps a second copy of all of it until its memory is full: a container runs into
    its limit for nothing, and taking ever new memory for ever new pages cost a twelfth of an event's time on
    the processor. So the system is told, once the new pages are on the disk, that it need not keep them.
    Pages that are changed or read later it keeps as ever, such as those of the index of ids.

    INVARIANT: no descriptor is ever closed, also not that of a file which was replaced: it may come back. To
    close any descriptor of a file takes away the locks that SQLite has on it, in the whole process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._identity: Identity | None = None
        self._size = 0

    def drop_page_cache(self) -> None:
        """What came since the last time; nothing the first time. Raises OSError."""
        if not hasattr(os, "posix_fadvise"):
            return
        found = self._path.stat()
        if self._file is None or self._identity != (found.st_dev, found.st_ino):
            self._open()
        elif found.st_size > self._size:
            os.posix_fadvise(self._file, self._size, found.st_size - self._size, os.POSIX_FADV_DONTNEED)
        self._size = found.st_size

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        opened = os.fstat(self._file)
        self._identity = opened.st_dev, opened.st_ino
