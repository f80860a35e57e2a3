"""What the database file has grown by need not stay in the system's memory.

SQLite keeps the pages that it works with by itself, and what events leave behind is seldom read again. Left
alone, the system keeps a second copy of all of it until its memory is full: a container runs into its limit
for nothing, and taking ever new memory for ever new pages cost a twelfth of an event's processor time. So the
system is told, once the new pages are on the disk, that it need not keep them. Pages that are changed or read
later it keeps as ever, such as those of the directory.
"""

from __future__ import annotations

import os
from pathlib import Path

_Identity = tuple[int, int]
"""Device and inode."""


class Growth:
    """Of one file, for one thread.

    INVARIANT: no descriptor is ever closed, also not that of a file which was replaced: it may come back. To
    close any descriptor of a file takes away the locks that SQLite has on it, in the whole process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._identity: _Identity | None = None
        self._size = 0

    def dismiss(self) -> None:
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
