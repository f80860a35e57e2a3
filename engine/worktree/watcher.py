"""When the policies folder has changed and come to rest: events, gathered until git is done and all is quiet.

Decides what one batch is. It reads no file and knows no document.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import watchfiles
from watchfiles import Change

from engine.errors import Problem
from engine.worktree import git_state

log = logging.getLogger("governance.policies")

QUIET_SECONDS: Final = 0.17
"""After the last event; with the watcher's own delay this makes 200 ms since the change itself."""
SETUP_SECONDS: Final = 2.0
"""That a start waits at most until everything that happens is heard; what comes before is looked for."""
MAX_DEBOUNCE: Final = 5.0
LOST_SECONDS: Final = 0.5
"""Between two tries to watch a folder that is not there."""
STALE_LOCK_SECONDS: Final = 60.0
"""A git lock as old as this was left behind by a crash."""
SWITCH: Final = "..data"
"""The link by which Kubernetes exchanges all files of a mounted ConfigMap at once, hidden though it is."""
SILENT_SECONDS: Final = 120.0
"""Longer than that nobody looks at the files who is not kept waiting by the disk."""


class Watcher:
    """Listens to one folder in a thread of its own."""

    def __init__(self, root: Path, monotonic: Callable[[], float]) -> None:
        self._root = root
        self._monotonic = monotonic
        self._stop = threading.Event()
        self._events: queue.SimpleQueue[set[str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="policies-listen", daemon=True)
        # Not everything was heard for a while: what has happened is unclear.
        self._lost = False
        self._heard = threading.Event()
        self._asked: float | None = None
        """When whoever looks at the files last came by here."""

    def stopped(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        """Returns once what happens from now on is heard, or it takes too long."""
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would tell of every event
        self._thread.start()
        self._lost = not self._heard.wait(SETUP_SECONDS)

    def stop(self) -> None:
        """Wake whoever waits in `settled`, and end the thread."""
        self._stop.set()
        self._events.put(None)

    def join(self) -> None:
        self._thread.join(timeout=10)

    def wait(self, seconds: float) -> None:
        """Sleep, unless it is stopped."""
        self._stop.wait(seconds)

    def tell(self, paths: set[str]) -> None:
        """Something has changed there, as somebody else has found out."""
        self._events.put(paths)

    def silent(self) -> tuple[Problem, ...]:
        """A problem when nobody has looked at the files for `SILENT_SECONDS`: whoever does waits for the disk
        or for the database that keeps their versions. Asks neither, so that it cannot hang as well."""
        if self._asked is None or self._monotonic() - self._asked < SILENT_SECONDS:
            return ()
        message = (
            "nobody has looked at the policies folder for two minutes or more, so what the files say by now "
            "is not known: either it does not answer, as where a network file system hangs, or the database "
            "does not, and then `database` says so too; see to it, and the service goes on by itself"
        )
        return (Problem(message, "", "not_looked_at"),)

    def waiting(self) -> bool:
        """True when something has changed that `settled` would tell of."""
        self._asked = self._monotonic()
        return not self._events.empty()

    def settled(self, seconds: float) -> set[str]:
        """The paths that changed, once nothing has changed for a while and git is done."""
        self._asked = self._monotonic()
        try:
            paths = self._events.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return set()
        begun = self._monotonic()
        locked = False
        while paths is not None and not self._stop.is_set():
            try:
                more = self._events.get(timeout=QUIET_SECONDS)
                if more is None:
                    break
                paths |= more
            except queue.Empty:
                # What git did last may not be told yet when it unlocks: once more it must be quiet.
                was_locked, locked = locked, git_state.locked(self._root, paths)
                waited = self._monotonic() - begun
                if not (locked or was_locked) or waited > STALE_LOCK_SECONDS:
                    break
            if self._monotonic() - begun > MAX_DEBOUNCE and not git_state.locked(self._root, paths):
                break
        return paths or set()

    def _listen(self) -> None:
        """Pass on what the operating system says has changed.

        It goes on telling of a folder that was moved away or removed, and never of the one that comes in its
        place, so the folder is watched anew whenever its path leads elsewhere. What happened in between is
        unclear, told as the path of the folder itself.
        """
        complained = ""
        while not self._stop.is_set():
            try:
                for heard in self._hear():
                    if paths := {path for each in heard if (path := _heard_as(each)) is not None}:
                        self._events.put(paths)
            except FileNotFoundError as error:
                log.debug("the folder is not there now: %s", error)
            except (OSError, RuntimeError, ValueError) as error:  # ValueError: a name that is no UTF-8
                if str(error) != complained:
                    complained = str(error)
                    log.warning(
                        "the policies folder cannot be watched, only looked at now and then: %s", error
                    )
            if not self._lost and not self._stop.is_set():
                self._lost = True
                self._events.put({""})
            self._stop.wait(LOST_SECONDS)

    def listens(self) -> bool:
        """Called by the operating system's listener while it hears everything; False ends it."""
        if self._lost:
            self._lost = False
            self._events.put({""})
        self._heard.set()
        return not self._stop.is_set()

    def _hear(self) -> Iterator[set[str]]:
        """What changes, and an empty set now and then, until the folder's path leads elsewhere."""
        root = self._root
        here = _identity(root)
        with contextlib.closing(
            watchfiles.watch(
                root,
                watch_filter=None,
                step=20,
                debounce=100,
                stop_event=_Listening(self),
                rust_timeout=1000,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            )
        ) as watched:
            for events in watched:
                yield {_relative(root, path) for _, path in events}
                # The number may be given again to a folder made anew, but then it was told as deleted.
                gone = any(kind == Change.deleted and Path(path) == root for kind, path in events)
                if gone or _identity(root) != here:
                    return


class _Listening:
    """What the listener asks, from its first moment on, whether it is to stop."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def is_set(self) -> bool:
        return not self._watcher.listens()


def _identity(root: Path) -> tuple[int, int]:
    """Raises OSError when it is not there."""
    status = root.stat()
    return status.st_dev, status.st_ino


def _relative(root: Path, path: str) -> str:
    """The path below the folder; empty for the folder itself, and for what is not below it."""
    try:
        relative = Path(path).relative_to(root).as_posix()
    except ValueError:
        return ""
    return "" if relative == "." else relative


def _heard_as(path: str) -> str | None:
    """What is told of a change there; None: it is hidden."""
    *folders, name = path.split("/")
    if name == SWITCH:
        return ""
    return None if any(part[:1] in (".", "_") for part in (*folders, name)) else path
