"""A policy's life: one sequence for both writers, people in files and admins through the API.

1. plan: what is to be done (`plan.py`); an API write says so itself, once edits that lie on its file are in.
2. apply: an API write has one step more than a file edit, to write the bytes into the file (`_write_bytes`).
   Files that are merely old get the bytes of the archive.
3. record: the edits become one revision with their versions (`revisions.py`).
4. publish: the outcome is in force, the merge base moves up (`current.py`).

Steps 1 to 3 happen inside `Archive.transact`, so writers of all threads, processes and nodes stand in one
line; step 4 follows the commit. What a transaction that failed did to files is undone (`worktree/journal`). A
crash between a rename and its commit leaves an edited file, which the next start loads like any other edit. A
batch of file edits applies wholly or not at all.

It must not know SQL, HTTP, matching, who watches the disk, or which bytes an API write consists of.

INVARIANT: a policy in force stays in force until a valid batch or an API write says otherwise.
INVARIANT: a file that does not load, or that changed in a way we have not seen, is never overwritten.
INVARIANT: what a failed write did to a file is undone, and never taken for somebody's edit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from engine.documents.document import digest_of
from engine.errors import DocumentError, PolicyFileInvalid, Problem, RefusedToStart, StorageError
from engine.repository import revisions
from engine.repository.archive import Archive, FileChange, Records
from engine.repository.baseline import Baseline
from engine.repository.current import Current
from engine.repository.loader import DocumentLoader, Put
from engine.repository.plan import EditedFile, Guard, Plan, Planner, Rehearsed, refuse_write
from engine.repository.revisions import Attribution
from engine.repository.snapshot import Snapshot
from engine.worktree import markers
from engine.worktree.disk import Pause, shown
from engine.worktree.journal import Journal, Undo
from engine.worktree.markers import Intent
from engine.worktree.observer import DiskChanged, Observed, Part, Progress
from engine.worktree.worktree import Worktree

TRIES: Final = 5
ANEW_SECONDS: Final = 0.5
"""In which a folder that is made anew is removed and brought: nothing is written into it meanwhile."""

T = TypeVar("T")

Authors = Callable[[Path, Iterable[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Applied:
    """What looking at the disk led to. With problems, the batch was refused and nothing of it is in force."""

    snapshot: Snapshot
    changes: tuple[FileChange, ...] = ()
    problems: tuple[Problem, ...] = ()
    again: bool = False
    """Something newer turned up meanwhile; look again."""


@dataclass(frozen=True, slots=True)
class WriteResult(Generic[T]):
    """What an API write led to: the policy or policies that are `stored` now, None after a deletion.

    `changes` begins with the edit that lay on disk, if there was one; it is empty when the policy already was
    as asked.
    """

    stored: T
    changes: tuple[FileChange, ...] = ()


class _Rehearsed(Exception):
    """All is ready to be written."""


class Sync:
    """Keeps one folder and one archive level. Safe to use from several threads."""

    def __init__(
        self,
        worktree: Worktree,
        archive: Archive,
        documents: DocumentLoader,
        *,
        clock: Callable[[], str],
        authors: Authors,
    ) -> None:
        self._worktree = worktree
        self._archive = archive
        self._documents = documents
        self._clock = clock
        self._authors = authors
        self._journal = Journal(worktree)
        self._baseline = Baseline()
        self._planner = Planner(worktree, self._journal, self._baseline, documents)
        self.current = Current(worktree, self._journal, self._baseline, clock)

    # ---- the files' side -------------------------------------------------------------------------------

    def start(self, progress: Progress | None = None) -> Applied:
        """Load the last good set, then whatever the disk says on top of it. Raises RefusedToStart."""
        observed, marker = self.look(None, progress), markers.read_marker(self._worktree.disk)

        def restore(records: Records) -> Snapshot:
            snapshot = self._documents.restored(records, observed.disk, progress)
            self.current.look_at_folder(records, snapshot, marker)
            return snapshot

        with self.current.lock:
            self.current.snapshot = self._archive.view(restore)
            # Only now it is known which files could be missing.
            self._worktree.observer.expect(self.current.snapshot.files, observed)
        self._worktree.disk.clean(observed.folders)
        applied = self.settle(observed, progress)
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
        self._documents.refuse_left(applied.snapshot, applied.problems)
        self._documents.save(applied.snapshot)
        self._look_whose_folder()
        return applied

    def apply_files(self, hints: Iterable[str] | None = None) -> Applied:
        """All edits of files as one batch. `hints` are paths that may have changed, None looks at all."""
        with self.current.lock:
            self.current.pending |= self._journal.retry()
        applied = self.settle(self.look(hints))
        if self.current.is_anew:
            time.sleep(ANEW_SECONDS)
            self.current.is_anew = False
            applied = self.settle(self.look(None))
        return applied

    def differing(self, reread: Part, pause: Pause = lambda: None) -> set[str]:
        """The paths that are not as in force, found in passing; nothing of them is applied."""
        self._worktree.observer.forget(reread)
        observed = self.look(None, None, pause)
        self._look_whose_folder()
        self.current.look_for_replaced()
        files = self.current.snapshot.files
        found = {
            path
            for path, state in observed.disk.items()
            if state.digest != (files[path].digest if path in files else None)
        }
        found |= observed.refused.keys() | ({""} if observed.no_folder else set())
        return {""} if not found and self.settle(observed).again else found

    def _look_whose_folder(self) -> None:
        if not (self.current.problems and self._worktree.occupancy.barred(())):
            self._worktree.occupancy.look()

    def look(
        self, hints: Iterable[str] | None, progress: Progress | None = None, pause: Pause = lambda: None
    ) -> Observed:
        if self._worktree.observer.barred:
            hints = None
        with self.current.lock:
            pending, files = set(self.current.pending), self.current.snapshot.files
        expected = pending if hints is not None else {*files, *pending}
        return self._worktree.observer.observe(hints, expected, progress, pause)

    def settle(self, observed: Observed, progress: Progress | None = None) -> Applied:
        """Plan on a view first, so that the common case - nothing differs - opens no transaction."""
        rehearsed: Rehearsed = {}

        def compare(records: Records) -> Plan:
            plan = Plan(records, self._head(records), observed=observed, rehearsed=rehearsed)
            if self.current.is_anew:
                raise DiskChanged  # see `ANEW_SECONDS`
            self._planner.compare(plan, progress)
            return plan

        try:
            plan = self._archive.view(compare)
            if plan.stale or (plan.edits and not plan.problems) or plan.is_doubtful(self._archive):
                changed = [path for path, put in plan.edits.items() if put is not None]
                authors = self._authors(self._worktree.root, changed) if changed else {}
                plan, _ = self._transact(
                    lambda plan: self._take_over(plan, authors), rehearsed, observed=observed
                )
            else:
                self.current.publish(plan)
        except DiskChanged:
            return Applied(self.current.snapshot, (), self.current.problems, again=True)
        return Applied(self.current.snapshot, tuple(plan.changes), self.current.problems, plan.overtaken)

    def _take_over(self, plan: Plan, authors: Mapping[str, str]) -> None:
        """Plan again on what is true now, record the edits, bring stale files up to date."""
        observed = plan.observed
        assert observed is not None
        self._planner.compare(plan)
        if plan.problems:
            plan.edits.clear()
        for path in (*plan.edits, *plan.stale):
            if self._worktree.disk.look(path) != observed.disk[path].signature:
                raise DiskChanged
        if plan.edits:
            self._record(
                plan, plan.edits, lambda path: self._planner.attribution(path, plan.edits[path], authors)
            )
        for path in plan.stale:
            record = plan.head.files.get(path)
            content = None if record is None else plan.records.blob(record.digest)
            meant = not markers.is_failed(self._worktree.disk, path, observed.disk[path].digest)
            try:
                self._worktree.put(path, content, observed.disk[path].digest)
            except (StorageError, PolicyFileInvalid) as error:
                plan.problems.append(Problem(str(error), "", "not_written", shown(path)))
            else:
                plan.level[path] = None if record is None else record.digest
                if meant and not (self._baseline.known and plan.records.shared):
                    plan.overwritten.append(path)

    # ---- the API's side --------------------------------------------------------------------------------

    def write(
        self, author: str, operation: Callable[[Plan], T], guard: Guard | None = None
    ) -> WriteResult[T]:
        """Run an operation, which calls `load_edit`, then `put` or `remove`, in a transaction of its own. It
        is rehearsed on a view, up to the first change: what it takes long to read and to check is done then,
        so that nobody waits for it."""
        earlier: list[FileChange] = []
        known: Rehearsed = {}

        def run(plan: Plan) -> T:
            if missing := self._worktree.observer.missing_folder():
                # Writing would make the folder again, with all other policies gone from it.
                raise StorageError(missing[0].message)
            plan.guard = guard
            return operation(plan)

        for _ in range(TRIES):
            try:
                self._rehearse(author, run, known)
                plan, stored = self._transact(run, known, author)
            except EditedFile as edited:
                # In transactions of their own, so that no death of the process can mix the two.
                earlier += self._removed(edited.path) if edited.removed else self._adopt(edited.path, known)
            except DiskChanged:
                continue
            else:
                return WriteResult(stored, (*earlier, *plan.changes))
        raise StorageError("the file changes on disk all the time; try again shortly")

    def _rehearse(self, author: str, run: Callable[[Plan], object], known: Rehearsed) -> None:
        def rehearsal(records: Records) -> None:
            # The file may only seem to be in conflict, with a write that came since the view was opened.
            with contextlib.suppress(_Rehearsed, PolicyFileInvalid):
                run(Plan(records, self._head(records), author, rehearsed=known, rehearsal=True))

        self._archive.view(rehearsal)

    def load_edit(self, plan: Plan, path: str) -> None:
        """Make sure that what lies on a file is what is in force. Raises EditedFile when a person has changed
        it, PolicyFileInvalid when it does not load."""
        if self._journal.failed(path):
            raise StorageError(
                f"`{shown(path)}` is not yet put right after a failed write; try again shortly"
            )
        if path in self._journal:
            return
        if self._planner.edit_of(plan, path) is not None:
            raise EditedFile(path, removed=False)
        if self._planner.is_removal(plan, path):
            raise EditedFile(path, removed=True)

    def _removed(self, path: str) -> tuple[FileChange, ...]:
        """A file is gone; whether it moved or was deleted, only a look at the whole folder can tell."""
        applied = self.apply_files()
        if applied.problems:
            first = applied.problems[0]
            message = f"`{shown(path)}` is gone, but the folder has problems; mend these first: {first}"
            raise PolicyFileInvalid(message, applied.problems)
        return applied.changes

    def _adopt(self, path: str, rehearsed: Rehearsed) -> list[FileChange]:
        """Make what a person, or a write that died, did to one file a version of its own."""
        authors = self._authors(self._worktree.root, [path])

        def take_over(plan: Plan) -> None:
            put = self._planner.edit_of(plan, path)
            if put is not None:
                made_by = self._planner.attribution(path, put, authors)
                self._record(plan, {path: put}, lambda _path: made_by)

        plan, _ = self._transact(take_over, rehearsed)
        return plan.changes

    def put(self, plan: Plan, contents: Mapping[str, bytes]) -> None:
        """Write files, and record them as one revision. Raises DocumentError when a content is not good."""
        puts = {path: self._put_of(plan, path, content) for path, content in contents.items()}
        if problems := refuse_write(plan, puts):
            raise DocumentError(problems)
        for path in puts:
            if self._worktree.disk.is_link(path):
                linked = Problem("this is a link; edit the file it leads to", "", "link", shown(path))
                raise PolicyFileInvalid(str(linked), [linked])
        self._write(plan, puts)

    def remove(self, plan: Plan, path: str) -> None:
        """Remove a file, and record that. Raises DocumentError when something cannot be without it."""
        if problems := refuse_write(plan, {path: None}):
            raise DocumentError(problems)
        self._write(plan, {path: None})

    def _put_of(self, plan: Plan, path: str, content: bytes) -> Put:
        digest = digest_of(content)
        return plan.once(("put", path, digest), lambda: self._documents.put(path, content, digest))

    def _write(self, plan: Plan, edits: Mapping[str, Put | None]) -> None:
        if plan.rehearsal:
            raise _Rehearsed
        if plan.guard is not None:
            files, blob = plan.head.files, plan.records.blob
            before = {path: blob(files[path].digest) if path in files else None for path in edits}
            after = {path: None if put is None else put.content for path, put in edits.items()}
            plan.guard({path: (before[path], after[path]) for path in edits})
        for path, put in edits.items():
            self._write_bytes(plan, path, put)
        if edits:
            self._record(plan, edits, lambda _path: ("api", plan.author))

    def _write_bytes(self, plan: Plan, path: str, put: Put | None) -> None:
        """Raises DiskChanged when somebody changed the file since we compared it with the archive."""
        current = plan.head.files.get(path)
        state = self._worktree.observer.now(path)
        known = {current.digest if current else None, self._baseline.digest(path)}
        if state.digest not in known and state.digest not in {d for _, d in plan.records.history(path)}:
            raise DiskChanged
        content, after = (None, None) if put is None else (put.content, put.digest)
        undo = Undo(path, state.content, after)
        self._journal.begin(undo)
        plan.undo.append(undo)
        intent = Intent(path, current.digest if current else None, after, plan.author)
        markers.write_intent(self._worktree.disk, intent)
        self._worktree.put(path, content, state.digest)

    # ---- both ------------------------------------------------------------------------------------------

    def _transact(
        self, work: Callable[[Plan], T], known: Rehearsed, author: str = "", observed: Observed | None = None
    ) -> tuple[Plan, T]:
        """Plan, apply and record in one transaction, undone where it fails; then publish."""
        undo: list[Undo] = []

        def run(records: Records) -> tuple[Plan, T]:
            with self.current.lock:
                # An archive may run the work again when a transaction that others shared failed.
                self._undo(undo)
                plan = Plan(records, self._head(records, True), author, observed, undo=undo, rehearsed=known)
                try:
                    return plan, work(plan)
                except Exception:
                    self._undo(undo)
                    raise

        try:
            plan, result = self._archive.transact(run)
        except Exception:
            self._undo(undo)
            raise
        self.current.publish(plan)
        return plan, result

    def _record(
        self, plan: Plan, edits: Mapping[str, Put | None], attribution: Callable[[str], Attribution]
    ) -> None:
        plan.head, changes = revisions.record(
            plan.records, plan.head, edits, attribution=attribution, at=self._clock()
        )
        plan.changes += changes
        plan.level |= {path: None if put is None else put.digest for path, put in edits.items()}

    def _undo(self, undo: list[Undo]) -> None:
        """Put back what the files were before the transaction that failed."""
        with self.current.lock:
            self.current.pending |= self._journal.undo(reversed(undo))
            undo.clear()

    def _head(self, records: Records, transaction: bool = False) -> Snapshot:
        return self.current.at_head(records, self._documents, transaction)

    def follow(self) -> Snapshot:
        """Take over what other processes and nodes have committed. Touches no disk."""
        return self.current.follow(self._archive.view(self._head))
