"""Disk against archive: what a difference means, and what is done about it.

Three things are compared for each path: what the disk says, what the archive says is in force, and what the
two last `agreed` on. Equal disk and archive: nothing to do. Only the disk left what was agreed: somebody
edited the file, which becomes a version. Only the archive left it: the file is stale and gets the archive's
bytes. Both left it: a conflict, reported, and nothing is overwritten.

A batch of edits applies wholly or not at all. Everything that changes history or brings files up to date
happens inside `Archive.transact`, so writers of all threads, processes and nodes stand in one line. A crash
between a rename and its commit leaves an edited file, which the next start loads like any other edit.

It must not know SQL, HTTP, matching, or who watches the disk.

INVARIANT: the snapshot is what the archive's head says, never anything that was not committed.
INVARIANT: a policy in force stays in force until a valid batch or an API write says otherwise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from engine.errors import DocumentError, PolicyFileInvalid, Problem, RefusedToStart, StorageError
from engine.repository import accepted, consistency, revisions
from engine.repository.archive import Archive, Change, FileRecord, Records
from engine.repository.baseline import Agreed
from engine.repository.cache import DocumentCache
from engine.repository.loader import Library
from engine.repository.revisions import Origin, Put
from engine.repository.snapshot import Snapshot
from engine.worktree import git, markers
from engine.worktree.disk import EVERY, Disk, Pause, shown
from engine.worktree.journal import Unsettled
from engine.worktree.markers import Marker
from engine.worktree.observer import Again, Observed, Observer, Part, Progress, Seen

Authors = Callable[[Path, Iterable[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Applied:
    """What looking at the disk led to. With problems, the batch was refused and nothing of it is in force."""

    snapshot: Snapshot
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    again: bool = False
    """Something newer turned up meanwhile; look again."""


@dataclass(slots=True)
class Plan:
    """What to do about the differences that were observed."""

    head: Snapshot
    agreed: dict[str, str | None] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    edits: dict[str, Put | None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    changes: tuple[Change, ...] = ()


class Reconciler:
    """One folder and one archive. Safe to use from several threads."""

    def __init__(
        self,
        root: Path,
        archive: Archive,
        *,
        clock: Callable[[], str],
        disk: Disk | None = None,
        authors: Authors = git.authors,
        cache: DocumentCache | None = None,
        nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clock` gives ISO 8601 UTC text, `nanoseconds` the same clock as the file system's."""
        self.disk = disk or Disk(root)
        self.archive = archive
        self._clock = clock
        self._authors = authors
        self._cache = cache or DocumentCache()
        self._library = Library(self._cache)
        self._observer = Observer(self.disk, nanoseconds)
        # Guards the fields below. INVARIANT: never held while waiting for a transaction, since work inside
        # a transaction takes it too.
        self._lock = threading.RLock()
        self._snapshot = Snapshot()
        self._problems: tuple[Problem, ...] = ()
        self._agreed = Agreed()
        self._pending: set[str] = set()
        self._unsettled = Unsettled(self.disk, self._observer)
        self._marked = -1

    @property
    def root(self) -> Path:
        return self.disk.root

    @property
    def snapshot(self) -> Snapshot:
        """What is in force."""
        return self._snapshot

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the disk's state is not in force; empty when it is."""
        return self._problems

    # ---- start -----------------------------------------------------------------------------------------

    def start(self, progress: Progress | None = None) -> Applied:
        """Load the last good set, then whatever the disk says on top of it.

        Raises RefusedToStart when the disk is not good and there is no last good set either: with an empty
        set everything would be allowed.
        """
        observed = self._look(None, progress)
        contents = {seen.digest: seen.content for seen in observed.disk.values() if seen.content}
        with self._lock:
            marker = markers.read_marker(self.disk)

            def restore(records: Records) -> tuple[Snapshot, Agreed]:
                snapshot = self._library.restored(records, contents, progress)
                return snapshot, Agreed.by(marker, records, snapshot.files)

            self._snapshot, self._agreed = self.archive.view(restore)
            # Only now it is known which files could be missing.
            self._observer.expect(self._snapshot.files, observed)
        self.disk.clean(observed.folders)
        applied = self._settle(observed, progress)
        for _ in range(10):
            if not applied.again:
                break
            applied = self.apply_files()
        if applied.problems and applied.snapshot.revision == 0:
            raise RefusedToStart(
                "the policies cannot be loaded and no earlier good set is known; the service does not start, "
                "since an empty set would allow everything",
                applied.problems,
            )
        self._cache.save(record.digest for record in applied.snapshot.files.values())
        return applied

    # ---- looking at the disk ---------------------------------------------------------------------------

    def apply_files(self, hints: Iterable[str] | None = None) -> Applied:
        """Bring the archive up to the disk, and stale files up to the archive; all edits are one batch.

        `hints` are paths that may have changed, None looks at all. Raises what the archive raises; then
        nothing has changed.
        """
        with self._lock:
            self._pending |= self._unsettled.retry()
        return self._settle(self._look(hints, None))

    def differing(self, reread: Part, pause: Pause = lambda: None) -> set[str]:
        """Look at all of the disk in passing: the paths that are not as in force. Nothing of them is applied,
        since it may be half of a batch.

        `reread` is the part of the files that is read again whatever their times say. Raises what the archive
        or `pause` raises.
        """
        self._observer.forget(reread)
        observed = self._look(None, None, pause)
        files = self._snapshot.files
        found = {
            path
            for path, seen in observed.disk.items()
            if seen.digest != (files[path].digest if path in files else None)
        }
        found |= observed.refused.keys() | ({""} if observed.no_folder else set())
        if not found:
            self._settle(observed)
        return found

    def _look(
        self, hints: Iterable[str] | None, progress: Progress | None, pause: Pause = lambda: None
    ) -> Observed:
        if self._observer.barred:
            hints = None
        with self._lock:
            expected = set(self._pending) if hints is not None else {*self._snapshot.files, *self._pending}
        return self._observer.observe(hints, expected, progress, pause)

    # ---- deciding --------------------------------------------------------------------------------------

    def _settle(self, observed: Observed, progress: Progress | None = None) -> Applied:
        """Plan on a view first, so that the common case - nothing differs - opens no transaction."""
        loaded: dict[str, Put | None] = {}
        try:
            plan = self.archive.view(lambda records: self._plan(records, observed, loaded, progress))
            if plan.stale or (plan.edits and not plan.problems):
                changed = [path for path, put in plan.edits.items() if put is not None]
                authors = self._authors(self.root, changed) if changed else {}
                plan = self.archive.transact(
                    lambda records: self._carry_out(records, observed, loaded, authors)
                )
        except Again:
            return Applied(self._snapshot, (), self._problems, again=True)
        return self._conclude(plan, observed.full)

    def _plan(
        self,
        records: Records,
        observed: Observed,
        loaded: dict[str, Put | None],
        progress: Progress | None = None,
    ) -> Plan:
        """What to do about what was observed; `loaded` spares the next plan of it the same work."""
        head = self._library.at_head(records, self._snapshot)
        plan = Plan(head, problems=list(observed.problems))
        for number, (path, seen) in enumerate(observed.disk.items(), 1):
            if progress is not None and number % EVERY == 0:
                progress("checking", number, len(observed.disk))
            current = head.files.get(path)
            if seen.digest == (current.digest if current else None):
                plan.agreed[path] = seen.digest
                continue
            plan.waiting.add(path)
            if path in self._unsettled:
                continue
            try:
                verdict = self.classify(records, path, seen, current)
                if verdict == "stale":
                    # What cannot be looked at may only seem to be missing.
                    if seen.digest is not None or not observed.problems:
                        plan.stale.append(path)
                else:
                    if path not in loaded:
                        loaded[path] = self.put_of(path, seen)
                    plan.edits[path] = loaded[path]
            except DocumentError as error:
                plan.problems += error.problems
        plan.problems += self.refuse_set(head, plan.edits)
        return plan

    def put_of(self, path: str, seen: Seen) -> Put | None:
        """The edit that a file is; None when it is gone. Raises DocumentError."""
        if seen.digest is None:
            return None
        content = self._observer.content(path, seen)
        return Put(self._library.load(path, content, seen.digest), seen.digest, content)

    def refuse_set(self, head: Snapshot, edits: Mapping[str, Put | None]) -> list[Problem]:
        """What is wrong between files once these edits are in."""
        return consistency.refuse_set(
            head, {path: None if put is None else put.loaded for path, put in edits.items()}
        )

    def classify(
        self, records: Records, path: str, seen: Seen, current: FileRecord | None
    ) -> Literal["stale", "edit"]:
        """What a difference between disk and archive is. Raises DocumentError for a conflict."""
        now = current.digest if current else None
        intent = markers.read_intent(self.disk, path)
        if intent is not None and seen.digest == intent.after:
            # An API write that died before its commit: it is completed, unless others came first.
            return "edit" if now == intent.before else "stale"
        told = records.history(path)
        past = {digest for _, digest in told}
        if self._agreed.known:
            agreed, since = self._agreed.on(path), self._agreed.at(path)
            # What the archive has said since may be what another process brought this file up to.
            if seen.digest == agreed or any(at > since and digest == seen.digest for at, digest in told):
                return "stale"
            if now == agreed:
                return "edit"
        elif (
            seen.digest is not None
            and seen.digest not in past
            and (current is None or current.source == "file")
        ):
            # Nothing is known of the past of this folder: what files said, files may say anew.
            return "edit"
        if seen.digest is None or seen.digest in past:
            return "stale"
        loaded = self._library.load(path, self._observer.content(path, seen), seen.digest)
        place = loaded.place
        newest = (
            current.version if current else records.last_version(place.organisation_id, place.document_id)
        )
        if place.kind != "policy" or loaded.declared_version == newest:
            return "edit"
        what = f"is at version {newest} through the API" if current else "was deleted through the API"
        message = (
            f"this file was changed here, but the policy {what} since; take over what you need and write "
            f"`version: {newest}` into the file, or undo your changes"
        )
        raise DocumentError([Problem(message, "", "conflict", shown(path))])

    # ---- doing -----------------------------------------------------------------------------------------

    def _carry_out(
        self,
        records: Records,
        observed: Observed,
        loaded: dict[str, Put | None],
        authors: Mapping[str, str],
    ) -> Plan:
        """Inside the transaction: plan again on what is true now, record the edits, refresh stale files."""
        with self._lock:
            plan = self._plan(records, observed, loaded)
            if plan.problems:
                plan.edits.clear()
            for path in (*plan.edits, *plan.stale):
                if self.disk.look(path) != observed.disk[path].signature:
                    raise Again
            if plan.edits:
                plan.head, plan.changes = revisions.record(
                    records,
                    plan.head,
                    plan.edits,
                    origin=lambda path: self._origin(path, plan.edits[path], authors),
                    at=self._clock(),
                )
            for path, put in plan.edits.items():
                plan.agreed[path] = None if put is None else put.digest
            for path in plan.stale:
                record = plan.head.files.get(path)
                last_look = partial(self._observer.still, path, observed.disk[path].digest)
                try:
                    if record is None:
                        self.disk.remove(path, last_look)
                    else:
                        self.disk.replace(path, records.blob(record.digest), last_look)
                except (StorageError, PolicyFileInvalid) as error:
                    plan.problems.append(Problem(str(error), "", "not_written", shown(path)))
                else:
                    plan.agreed[path] = None if record is None else record.digest
            return plan

    def _origin(self, path: str, put: Put | None, authors: Mapping[str, str]) -> Origin:
        """Who made an edit: an admin through the API that died, or a person in the file."""
        intent = markers.read_intent(self.disk, path)
        if intent is not None and intent.after == (None if put is None else put.digest):
            return "api", intent.author
        return "file", authors.get(path) or "file"

    def _conclude(self, plan: Plan, full: bool) -> Applied:
        """After the commit: publish, and remember what agrees."""
        with self._lock:
            again = plan.head.revision > self._snapshot.revision + bool(plan.changes)
            markers.forget_intents(self.disk, plan.agreed)
            outdated = self._outdated(plan.head)
            self._publish(plan.head)
            if self._agreed.known:
                self._agreed.add(plan.agreed, plan.head.revision)
            elif full and not plan.problems and plan.agreed.keys() >= plan.waiting:
                self._agreed.begin(plan.agreed, plan.head.revision)
            waiting = (plan.waiting | outdated) - plan.agreed.keys()
            self._pending = (self._pending - plan.agreed.keys()) | waiting
            self._problems = tuple(plan.problems)
            self._mark()
            accepted.tell(plan.changes, plan.head.revision)
            return Applied(self._snapshot, plan.changes, self._problems, again)

    def _mark(self) -> None:
        """Note that disk and archive agree, if they do."""
        snapshot = self._snapshot
        if self._pending or self._problems or self._marked == snapshot.revision:
            return
        if snapshot.revision:
            markers.write_marker(self.disk, Marker(snapshot.revision, snapshot.recorded_at))
        self._marked = snapshot.revision

    # ---- archive to memory -----------------------------------------------------------------------------

    def follow(self) -> Snapshot:
        """Take over what other processes and nodes have committed. Touches no disk; the next `apply_files`
        brings the files up to date. Raises RepositoryError when a newer document does not load here."""
        snapshot = self.archive.view(lambda records: self._library.at_head(records, self._snapshot))
        with self._lock:
            self._pending |= self._outdated(snapshot)
            self._publish(snapshot)
            return self._snapshot

    def _outdated(self, head: Snapshot) -> set[str]:
        """The paths whose file here is older than a newer head says."""
        if head.revision <= self._snapshot.revision:
            return set()
        agreed = self._agreed.on
        newer = {path for path, record in head.files.items() if agreed(path) != record.digest}
        return newer | {path for path in self._snapshot.files if path not in head.files and agreed(path)}

    def _publish(self, snapshot: Snapshot) -> None:
        mine = self._snapshot
        if snapshot.revision > mine.revision or snapshot.recorded_at != mine.recorded_at:
            self._snapshot = snapshot
