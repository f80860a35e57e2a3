"""Finds out that a database file was written over in its place, such as by `cp`: to the system it stays the
same file, and its log lies beside another database from then on.

While there is a log, nothing changes the file but a copy of the log into it. SQLite notes in the index of the
log how far a copy is about to come before it begins, and how far it came when it is done
(https://www.sqlite.org/walformat.html, section 2.2), so a change of the file without one in these notes is
nobody's that may.

A process that looks for the first time after the log began anew cannot tell a copy of the log from that. So
the one that finds it out tells the other processes of its service, in bytes of the index that SQLite leaves
free.

INVARIANT: no descriptor is ever closed: that would take away the locks that SQLite has on the file, in the
whole process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

SALTS: Final = slice(32, 40)
"""New for each round of the log."""
DONE: Final = slice(96, 100)
BEGUN: Final = slice(128, 132)
FOUND_BY: Final = slice(132, 136)
LENGTH: Final = 136

Files = tuple[int, int, int, int]
"""Device and inode of the database and of the index."""


class Copies(NamedTuple):
    """How far the log was copied, in pages."""

    salts: bytes
    done: int
    begun: int
    found_by: bytes
    """The service that has found the database written over, see `_service`."""

    def is_as(self, other: Copies) -> bool:
        """Whether nothing was copied between the two."""
        return self == other._replace(found_by=self.found_by)

    @property
    def go_on(self) -> bool:
        """One is under way, or broke off."""
        return self.done < self.begun


class WrittenOver:
    """Watches one path; safe to ask from any thread."""

    def __init__(self, path: Path, log_index: Path) -> None:
        self._path, self._log_index = path, log_index
        self._seen: tuple[Files, int, Copies | None] | None = None
        """Which files, when the database was changed last, and how far the log was copied before that was
        looked up. INVARIANT: in this order, so that no copy falls between the two."""
        self._opening = threading.Lock()
        self._opened: Files | None = None
        self._index = -1
        """The descriptor of the index."""
        self._found = False
        self._service = _service()

    def __call__(self, files: Files) -> bool:
        """Whether these files are those that were seen first, and the database was written over since."""
        if files != self._opened and not self._open(files):
            return False
        seen, copies = self._seen, self._read()
        changed_at = self._path.stat().st_mtime_ns
        if seen is not None and seen[1] != changed_at and seen[0] == files:
            now = self._read()
            if now is not None and seen[2] is not None and now.is_as(seen[2]) and not now.go_on:
                self._found = True
                os.pwrite(self._index, self._service, FOUND_BY.start)
        if copies is not None and copies.found_by == self._service:
            self._found = True
        self._seen = files, changed_at, copies
        return self._found

    def before_log_went(self, database: tuple[int, int]) -> bool:
        """The same of a database whose log, or the index of it, is not there any more: by the index that was
        there, which those who have the log open still write to."""
        return self._opened is not None and self._opened[:2] == database and self(self._opened)

    def committed(self) -> None:
        """A commit of this process may have begun the log anew, which is no copy."""
        if self._opened is not None:
            with contextlib.suppress(OSError):
                self(self._opened)

    def _open(self, files: Files) -> bool:
        with self._opening:
            try:
                index = os.open(self._log_index, os.O_RDWR | os.O_CLOEXEC)
            except (FileNotFoundError, PermissionError):
                return False  # gone just now, or another user's, which SQLite tells in its way
            opened = os.fstat(index)
            if (opened.st_dev, opened.st_ino) != files[2:]:
                return False  # exchanged just now; the next look finds it
            self._index, self._opened, self._found, self._seen = index, files, False, None
            return True

    def _read(self) -> Copies | None:
        """None: nothing is noted yet."""
        content = os.pread(self._index, LENGTH, 0)
        if len(content) < LENGTH:
            return None
        done, begun = (int.from_bytes(content[each], sys.byteorder) for each in (DONE, BEGUN))
        return Copies(content[SALTS], done, begun, content[FOUND_BY])


def _service() -> bytes:
    """The same in all processes of one service, as those that it starts have its key of `multiprocessing`: a
    new start looks for itself, as only the time of the file may have been set."""
    return blake2b(multiprocessing.current_process().authkey, digest_size=4).digest()
