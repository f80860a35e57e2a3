"""The write lock over all processes with one SQLite database: a file lock beside it.

INVARIANT: nobody waits for ever: a sibling that was stopped while it held the lock (SIGSTOP, a debugger, a
frozen container) would otherwise hang every event of every process, and nobody would be told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from api.database.errors import DatabaseUnavailable
from engine.worktree.ownership import new_file

log = logging.getLogger("governance")

LOCK_SECONDS = 10.0
"""How long a transaction waits for the lock that another process holds."""
LOCK_SECONDS_AGAIN = 1.0
"""The same once a wait was in vain, so that a queue of requests fails soon."""


def opened(path: Path) -> int:
    """A file to lock, made where there is none. Raises OSError."""
    try:
        return new_file(path, flags=os.O_RDWR)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_served(path: Path) -> bool:
    """Whether a service runs on the database, also one that cannot use it now: each process that serves holds
    a lock for as long as it lives (`api/webhooks/presence.py`). Raises OSError."""
    if os.name == "nt":
        return False
    import fcntl

    try:
        file = os.open(f"{path}.senders", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class FileLock:
    """Of one process with SQLite. All raise DatabaseUnavailable when the lock cannot be had in time, and what
    `look` raises, which is asked each time: somebody else may have had it in between."""

    def __init__(self, path: Path, look: Callable[[], None] = lambda: None) -> None:
        self._path = Path(f"{path}.lock")
        self._look = look
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
            self._file = opened(self._path)
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
            self._look()
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
