"""What is in force in this process, and how far the files of this folder follow it: the last step, publish.

INVARIANT: the snapshot is what the archive's head says, never anything that was not committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from engine.errors import Problem, StorageError
from engine.repository import accepted
from engine.repository.archive import FileChange, Records
from engine.repository.baseline import Baseline
from engine.repository.loader import DocumentLoader, knows
from engine.repository.plan import Plan
from engine.repository.snapshot import Snapshot
from engine.worktree import markers
from engine.worktree.journal import Journal
from engine.worktree.markers import Marker, Replaced
from engine.worktree.worktree import Worktree

log = logging.getLogger("governance.policies")

_UNREAD: Final = Marker(-1, "")


class Current:
    """Guarded by `lock`, as are journal and baseline; the snapshot may be read at any time.

    INVARIANT: the lock is never held while waiting for a transaction, since work inside one takes it too.
    """

    def __init__(
        self, worktree: Worktree, journal: Journal, baseline: Baseline, clock: Callable[[], str]
    ) -> None:
        self.lock = threading.RLock()
        self.snapshot = Snapshot()
        self.problems: tuple[Problem, ...] = ()
        """Why the disk's state is not in force; empty when it is."""
        self.pending: set[str] = set()
        """Paths that want another look."""
        self._disk = worktree.disk
        self._occupancy = worktree.occupancy
        self._journal = journal
        self._baseline = baseline
        self._clock = clock
        self._marked: Marker | None = None
        self._looked = False
        self._folder: tuple[int, int] | None = None
        self.is_anew = False
        """The folder is another one than at the last look: what it lacks may be on its way."""
        self._replaced: list[Replaced] = []
        """As noted in the folder."""
        self._began: str | None = None
        """When the archive's first revision was recorded, by which another installation's is told."""
        self.unmarked: tuple[Problem, ...] = ()
        """Why it cannot be noted at which revision disk and archive agree."""
        self.on_written: Callable[[Sequence[FileChange]], None] = lambda changes: None
        """Told of what was committed, before it is forgotten in the folder that a write was under way."""

    def look_at_folder(self, records: Records, head: Snapshot, marker: Marker | None = _UNREAD) -> None:
        """What is known of its past: at the start, and when it is another one than before, as where a link
        leads to the folder of a newer deployment.

        `marker` is its own, read before the view of `records` began: another process of this folder may have
        moved it on since, to a revision that the view does not show."""
        found = self._disk.identity()
        folder = found or self._folder
        same = folder == self._folder and not (found and self._has_no_marker())
        if self._looked and (same or self._folder is None or self._disk.is_read_only()):
            self._folder = folder  # one that is only read has no other writers, so that all it says is edits
            return
        with self.lock:
            if self._looked:
                log.info("the policies folder is another one now; it is read as at a start")
                self._begin_anew(head)
                self.is_anew = True
                self._occupancy.forget()
            self._looked, self._folder = True, folder
            self.look_for_replaced()
            if marker is _UNREAD:
                marker = markers.read_marker(self._disk)
            self._baseline.restore(marker, records, head.files)
            if marker and self._baseline.parted_at and head.revision and not self._occupancy.barred(()):
                _tell_of_lost(logging.WARNING, marker.last.revision, head.revision)

    def _has_no_marker(self) -> bool:
        """Whether the one is gone that was written: a file system may give a folder that is made anew the
        number of the one that was removed."""
        return self._marked is not None and markers.is_missing(self._disk)

    def at_head(self, records: Records, documents: DocumentLoader, transaction: bool = False) -> Snapshot:
        """What the archive's head says. Where it does not know what is in force here, this folder may hold
        what it lost, so that its files are read as at a start, and none is taken for an old one; also where
        it does not know what another process has brought the folder up to, as only a `transaction` tells,
        which shows each commit that a marker names. Raises StorageError where it is the archive of another
        installation."""
        mine = self.snapshot
        if self._began is None:
            self._began = records.recorded_at(1)
        head = documents.at_head(records, mine)
        self.look_at_folder(records, head)
        if head is mine or knows(records, mine):
            marker = markers.read_marker(self._disk) if transaction else None
            if marker and not self._occupancy.barred(()):
                self._follow_folder(marker, records, head)
            return head
        if self._began != records.recorded_at(1):
            raise StorageError(
                "the database is not the one that this process has worked with: it lacks the first revision "
                "of its policies; put right where its address leads, or start the service anew if it is meant"
            )
        with self.lock:
            if self.snapshot is mine:
                # What began before may publish the lost one once more, which is found out anew then.
                self._begin_anew(head)
                self.snapshot = head
                self._baseline.forget(
                    mine.recorded_at, {path: record.digest for path, record in mine.files.items()}
                )
                _tell_of_lost(logging.ERROR, mine.revision, head.revision)
        return head

    def _follow_folder(self, marker: Marker, records: Records, head: Snapshot) -> None:
        """What another process of this folder has done there: it knew more than the archive does, or made the
        folder level with that since they have parted."""
        is_lost = not (knows(records, marker) and knows(records, marker.last))
        if self._baseline.known if is_lost else self._baseline.parted_at:
            self._baseline.restore(marker, records, head.files)
            if is_lost:
                self._begin_anew(head)
                _tell_of_lost(logging.WARNING, marker.last.revision, head.revision)

    def _begin_anew(self, head: Snapshot) -> None:
        """All files want another look, and it is noted anew where that leads to."""
        self.pending |= {*head.files, *self.snapshot.files}
        self._marked = None

    def publish(self, plan: Plan) -> None:
        """After the commit: put its outcome into force, and remember what is level with the disk."""
        with self.lock:
            plan.overtaken = plan.head.revision > self.snapshot.revision + bool(plan.changes)
            outdated = self._outdated(plan.head)
            self._advance(plan.head)
            if plan.head.recorded_at != self.snapshot.recorded_at:
                # By what others have written since, or an older copy of the archive, it may be different.
                plan.differing |= plan.level.keys()
                plan.level.clear()
            self._remember(plan)
            for undo in plan.undo:
                self._journal.close(undo)
            self.on_written(plan.changes)
            self.pending = (self.pending | plan.differing | outdated) - plan.level.keys()
            if plan.observed is not None:
                self.problems = tuple(plan.problems)
            self._note_replaced(plan)
            self._mark(plan)
            markers.forget_intents(self._disk, plan.level)  # by which a write that died before that is known
        accepted.tell(plan.changes, plan.head.revision)
        accepted.tell_overwritten(plan.overwritten, plan.head.revision)

    def follow(self, head: Snapshot) -> Snapshot:
        """Take over what other processes and nodes have committed."""
        with self.lock:
            self.pending |= self._outdated(head)
            self._advance(head)
            return self.snapshot

    def _outdated(self, head: Snapshot) -> set[str]:
        """The paths whose file here is older than a newer head says."""
        if head.revision <= self.snapshot.revision:
            return set()
        base = self._baseline.digest
        newer = {path for path, record in head.files.items() if base(path) != record.digest}
        return newer | {path for path in self.snapshot.files if path not in head.files and base(path)}

    def _advance(self, head: Snapshot) -> None:
        if head.revision > self.snapshot.revision:
            self.snapshot = head

    def _remember(self, plan: Plan) -> None:
        """Move the merge base up; begin it when all of the folder was found level, or was made so."""
        full = plan.observed is not None and plan.observed.full
        self._baseline.add(plan.level, plan.head.revision)
        if not self._baseline.known and full and not plan.problems and plan.level.keys() >= plan.differing:
            self._baseline.begin(plan.level, plan.head.revision)

    def _note_replaced(self, plan: Plan) -> None:
        """For whoever meant those files and reads no log."""
        if plan.overwritten:
            at, files = self._clock(), plan.head.files
            found = [
                Replaced(path, files[path].digest if path in files else None, at) for path in plan.overwritten
            ]
            with contextlib.suppress(StorageError):  # which is told of with the marker
                markers.add_replaced(self._disk, found)
            self.look_for_replaced()

    def look_for_replaced(self) -> None:
        """Read what is noted of these; other processes note some as well."""
        self._replaced = markers.read_replaced(self._disk)

    def replaced(self) -> list[Replaced]:
        """Files that gave way to what is in force, as far as that is so still; no disk is asked."""
        files = self.snapshot.files
        return [
            each
            for each in self._replaced
            if each.digest == (files[each.path].digest if each.path in files else None)
        ]

    def _mark(self, plan: Plan) -> None:
        """Note that disk and archive agree, if they do; else what was written into the folder meanwhile."""
        marker = Marker(self.snapshot.revision, self.snapshot.recorded_at)
        level = not (self.pending or self.problems)
        if self._marked == marker or not marker.revision:
            return
        if not level:
            written = (plan.changes or plan.stale) and self._baseline.parted_at is None
            before = markers.read_marker(self._disk) if written else None
            if before is None:
                return  # where they have parted, what they parted from stands there
            marker = replace(before, reached=Marker(plan.head.revision, plan.head.recorded_at))
        try:
            markers.write_marker(self._disk, marker)
        except StorageError as error:
            self.unmarked = () if self._disk.is_read_only() else (_unmarked(error),)
            return
        self.unmarked = ()
        if level:
            self._marked = marker


def _tell_of_lost(level: int, known: int, found: int) -> None:
    log.log(
        level,
        "the database does not know revision %s of the policies, which was in force here: it is at revision "
        "%s, as after an older copy was put back or took over. Files of this folder that are newer count as "
        "edits; halts, approvals, API keys and people are as the database says, and `governance audit verify "
        "--expect` tells what is missing",
        known,
        found,
    )


def _unmarked(error: StorageError) -> Problem:
    return Problem(
        f"{error}; free disk space where there is no room, give that folder to the user of the service, or "
        "take away what is no folder there: until then changes through the API are refused, and an edit of a "
        "file may be taken for an old one",
        "",
        "not_marked",
        markers.FOLDER,
    )
