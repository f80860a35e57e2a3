"""The undo log: what API writes that are not committed yet did to files, and its undoing where they fail.

Decides when a file is put back: while it is what the write made it. It knows no archive and no documents. Not
safe for threads by itself; the lock of what is in force guards it.

INVARIANT: what an open write puts into a file, or a failed one has left there, is never taken for an edit,
after a restart either, and what somebody else puts there is never undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import PolicyFileInvalid, StorageError
from engine.worktree import markers
from engine.worktree.observer import DiskChanged
from engine.worktree.worktree import Worktree


@dataclass(slots=True, eq=False)
class Undo:
    """One write: what the file was before it, and the digest of what it puts there (None: no file)."""

    path: str
    before: bytes | None
    ours: str | None


class Journal:
    """The writes of one process to one folder."""

    def __init__(self, worktree: Worktree) -> None:
        self._worktree = worktree
        # Oldest first: writes that share a transaction may be made on top of one another.
        self._open: dict[str, list[Undo]] = {}
        self._failed: dict[str, Undo] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._open or path in self._failed

    def failed(self, path: str) -> bool:
        """True while a failed write could not be undone yet."""
        return path in self._failed

    def begin(self, undo: Undo) -> None:
        """This write is about to change its file."""
        self._open.setdefault(undo.path, []).append(undo)

    def close(self, undo: Undo) -> list[Undo] | None:
        """Forget one write; returns those that were made on top of it, None when it is forgotten already."""
        writes = self._open.get(undo.path, [])
        if undo not in writes:
            return None
        at = writes.index(undo)
        writes.pop(at)
        if not writes:
            del self._open[undo.path]
        return writes[at:]

    def undo(self, touched: Iterable[Undo]) -> set[str]:
        """Undo failed writes, the latest first; returns the paths that want another look."""
        paths = set()
        for undo in touched:
            later = self.close(undo)
            if later:
                later[0].before = undo.before
            elif later is not None:
                self._put_back(undo)
                paths.add(undo.path)
        return paths

    def retry(self) -> set[str]:
        """Try again what could not be undone."""
        paths = set(self._failed)
        for path in paths:
            self._put_back(self._failed.pop(path))
        return paths

    def _put_back(self, undo: Undo) -> None:
        try:
            self._worktree.observer.still(undo.path, undo.ours)
            self._worktree.put(undo.path, undo.before, undo.ours)
        except DiskChanged:
            pass  # somebody has written there since: that is an edit
        except (StorageError, PolicyFileInvalid):
            self._failed[undo.path] = undo
            markers.give_up_intent(self._worktree.disk, undo.path)
            return
        markers.forget_intent(self._worktree.disk, undo.path)
