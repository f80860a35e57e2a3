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

from engine import git

log = logging.getLogger("governance.policies")

QUIET_SECONDS: Final = 0.17
"""After the last event; with the watcher's own delay this makes 200 ms since the change itself."""
LONGEST_UNREST: Final = 5.0
LOST_SECONDS: Final = 0.5
"""Between two tries to watch a folder that is not there."""
STALE_LOCK_SECONDS: Final = 60.0
"""A git lock as old as this was left behind by a crash."""


class Watcher:
    """Listens to one folder in a thread of its own."""

    def __init__(self, root: Path, monotonic: Callable[[], float]) -> None:
        self._root = root
        self._monotonic = monotonic
        self._stop = threading.Event()
        self._events: queue.SimpleQueue[set[str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="policies-listen", daemon=True)

    def stopped(self) -> bool:
        return self._stop.is_set()

    def start(self) -> None:
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would tell of every event
        self._thread.start()

    def stop(self) -> None:
        """Wake whoever waits in `settled`, and end the thread."""
        self._stop.set()
        self._events.put(None)

    def join(self) -> None:
        self._thread.join(timeout=10)

    def wait(self, seconds: float) -> None:
        """Sleep, unless it is stopped."""
        self._stop.wait(seconds)

    def settled(self, seconds: float) -> set[str]:
        """The paths that changed, once nothing has changed for a while and git is done."""
        try:
            paths = self._events.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return set()
        begun = self._monotonic()
        while paths is not None and not self._stop.is_set():
            try:
                more = self._events.get(timeout=QUIET_SECONDS)
                if more is None:
                    break
                paths |= more
            except queue.Empty:
                waited = self._monotonic() - begun
                if not git.locked(self._root) or waited > STALE_LOCK_SECONDS:
                    break
            if self._monotonic() - begun > LONGEST_UNREST and not git.locked(self._root):
                break
        return paths or set()

    def _listen(self) -> None:
        """Pass on what the operating system says has changed.

        It goes on telling of a folder that was moved away or removed, and never of the one that comes in its
        place, so the folder is watched anew whenever its path leads elsewhere. What happened in between is
        unclear, told as the path of the folder itself.
        """
        lost = False
        complained = ""
        while not self._stop.is_set():
            try:
                for heard in self._hear():
                    if lost:  # only from here on everything is heard
                        lost = False
                        self._events.put({""})
                    if paths := {path for path in heard if not _hidden(path)}:
                        self._events.put(paths)
            except FileNotFoundError as error:
                log.debug("the folder is not there now: %s", error)
            except (OSError, RuntimeError) as error:
                if str(error) != complained:
                    complained = str(error)
                    log.warning(
                        "the policies folder cannot be watched, only looked at now and then: %s", error
                    )
            if not lost and not self._stop.is_set():
                lost = True
                self._events.put({""})
            self._stop.wait(LOST_SECONDS)

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
                stop_event=self._stop,
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


def _hidden(path: str) -> bool:
    return any(part[:1] in (".", "_") for part in path.split("/"))
