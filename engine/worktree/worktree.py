"""One policies folder: its disk, and what was last seen there.

Decides that a file is only changed while it is what it was when that was decided. It knows no history.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.worktree.disk import Disk
from engine.worktree.observer import Observer
from engine.worktree.occupancy import Occupancy


class Worktree:
    """Safe to use from several threads."""

    def __init__(
        self, disk: Disk, nanoseconds: Callable[[], int] = time.time_ns, installation: str = ""
    ) -> None:
        """`nanoseconds` is the same clock as the file system's, `installation` the id of whose it is."""
        self.disk = disk
        self.occupancy = Occupancy(disk, installation)
        self.observer = Observer(disk, nanoseconds)

    @property
    def root(self) -> Path:
        return self.disk.root

    def put(self, path: str, content: bytes | None, was: str | None) -> None:
        """Give a file this content (None: remove it) in one step, if its digest still is `was`.

        Raises DiskChanged when it is not, StorageError, PolicyFileInvalid; then nothing is changed.
        """
        last_look = partial(self.observer.still, path, was)
        if content is None:
            self.disk.remove(path, last_look)
        else:
            self.disk.replace(path, content, last_look)
