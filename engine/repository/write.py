"""One API write as a transaction: the edit on disk first, one rename, the record, and undo where it fails.

Decides how a write to a file and its record stay together; which bytes are written is the caller's.

INVARIANT: a file that does not load, or that changed in a way we have not seen, is never overwritten.
INVARIANT: what a failed write did to a file is undone, and never taken for somebody's edit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from engine.documents.policy import digest_of
from engine.errors import DocumentError, PolicyFileInvalid, StorageError
from engine.repository import accepted, revisions
from engine.repository.archive import Archive, Change, Records
from engine.repository.revisions import Origin, Put
from engine.repository.snapshot import Snapshot, Stored
from engine.repository.sync import Reconciler
from engine.worktree import markers, paths
from engine.worktree.disk import LastLook, shown
from engine.worktree.journal import Undo
from engine.worktree.markers import Intent
from engine.worktree.observer import Again, Seen

log = logging.getLogger("governance.policies")

TRIES: Final = 5

T = TypeVar("T")

Commit = Callable[[Path, str, str, str], object]


@dataclass(slots=True)
class Job:
    """One write while it runs; `touched` is what it has done to files."""

    records: Records
    head: Snapshot
    author: str
    changes: list[Change]
    touched: list[Undo]


class _EditFirst(Exception):
    """Somebody edited the file: their edit becomes a version before ours is made on top of it."""

    def __init__(self, path: str, missing: bool) -> None:
        super().__init__(path)
        self.path = path
        self.missing = missing


class Writes(Reconciler):
    """The reconciler, and how to change what it keeps."""

    def __init__(self, root: Path, archive: Archive, *, commit: Commit | None = None, **options: Any) -> None:
        """`commit(root, path, author, message)` runs after an API write; `options` are the Reconciler's."""
        super().__init__(root, archive, **options)
        self._commit = commit

    def _write(self, author: str, work: Callable[[Job], T]) -> tuple[Job, T]:
        earlier: list[Change] = []
        for _ in range(TRIES):
            try:
                job, result = self._try_to_write(author, work)
            except _EditFirst as edit:
                # In transactions of their own, so that no death of the process can mix the two.
                earlier += self._look_for(edit.path) if edit.missing else self._adopt(edit.path)
            except Again:
                continue
            else:
                job.changes[:0] = earlier
                return job, result
        raise StorageError("the file changes on disk all the time; try again shortly")

    def _try_to_write(self, author: str, work: Callable[[Job], T]) -> tuple[Job, T]:
        touched: list[Undo] = []
        try:
            job, result = self.archive.transact(lambda records: self._run(records, author, touched, work))
        except Exception:
            self._undo(touched)
            raise
        self._committed(job)
        self._commit_to_git(author, touched, job.changes)
        return job, result

    def _committed(self, job: Job) -> None:
        with self._lock:
            self._pending |= self._outdated(job.head) - {undo.path for undo in job.touched}
            self._publish(job.head)
            changed = {each.path: each.after.digest if each.after else None for each in job.changes}
            self._agreed.add(changed, job.head.revision)
            for undo in job.touched:
                self._unsettled.settled(undo)
            for path in {*changed, *(undo.path for undo in job.touched)}:
                markers.forget_intent(self.disk, path)
            self._pending -= changed.keys()
            self._mark()

    def _run(
        self, records: Records, author: str, touched: list[Undo], work: Callable[[Job], T]
    ) -> tuple[Job, T]:
        if missing := self._observer.missing_folder():
            # Writing would make the folder again, with all other policies gone from it.
            raise StorageError(missing[0].message)
        with self._lock:
            if touched:  # an archive may run the work again when a transaction that others shared failed
                self._undo(touched)
                touched.clear()
            job = Job(records, self._library.at_head(records, self._snapshot), author, [], touched)
            try:
                return job, work(job)
            except Exception:
                self._undo(touched)
                raise

    def _look_for(self, path: str) -> tuple[Change, ...]:
        """A file is gone; whether it moved or was deleted, only a look at the whole folder can tell."""
        applied = self.apply_files()
        if applied.problems:
            first = applied.problems[0]
            message = f"`{shown(path)}` is gone, but the folder has problems; mend these first: {first}"
            raise PolicyFileInvalid(message, applied.problems)
        return applied.changes

    def _adopt(self, path: str) -> list[Change]:
        """Make what a person, or a write that died, did to a file a version of its own. Raises
        PolicyFileInvalid."""
        authors = self._authors(self.root, [path])

        def run(records: Records) -> Job:
            with self._lock:
                job = Job(records, self._library.at_head(records, self._snapshot), "", [], [])
                put = self._edit_on_disk(job, path)
                if put is not None:
                    self._record(job, {path: put}, self._origin(path, put, authors))
                return job

        job = self.archive.transact(run)
        self._committed(job)
        accepted.tell(job.changes, job.head.revision)
        return job.changes

    def _load_edit_on_disk(self, job: Job, organisation_id: str, policy_id: str) -> None:
        """Raises _EditFirst when a person has edited the file, PolicyFileInvalid when it does not load."""
        stored = job.head.of(organisation_id).get(policy_id)
        path = stored.file.path if stored else paths.path_for(organisation_id, policy_id)
        if self._unsettled.failed(path):
            raise StorageError(
                f"`{shown(path)}` is not yet put right after a failed write; try again shortly"
            )
        if path in self._unsettled:
            return
        if self._edit_on_disk(job, path) is not None:
            raise _EditFirst(path, missing=False)
        missing = stored is not None and self._observer.now(path).digest is None
        if missing and self.classify(job.records, path, Seen(None), job.head.files[path]) == "edit":
            raise _EditFirst(path, missing=True)

    def _edit_on_disk(self, job: Job, path: str) -> Put | None:
        """What a person wrote into the file since it was last compared; None when nothing, or it is gone."""
        seen = self._observer.now(path)
        current = job.head.files.get(path)
        if seen.digest is None or seen.digest == (current.digest if current else None):
            return None
        try:
            if self.classify(job.records, path, seen, current) == "stale":
                return None
            put = self.put_of(path, seen)
            problems = self.refuse_set(job.head, {path: put})
        except DocumentError as error:
            put, problems = None, list(error.problems)
        if problems:
            message = f"`{shown(path)}` is not valid on disk; mend the file first: {problems[0]}"
            raise PolicyFileInvalid(message, problems)
        return put

    def _put(self, job: Job, path: str, content: bytes, organisation_id: str, policy_id: str) -> Stored:
        put = Put(self._library.load(path, content, digest_of(content)), digest_of(content), content)
        problems = self.refuse_set(job.head, {path: put})
        if problems:
            raise DocumentError(problems)
        if self.disk.is_link(path):
            raise StorageError(f"`{shown(path)}` is a link, which is not replaced; edit the file it leads to")
        self.disk.replace(path, content, self._touch(job, path, put.digest))
        self._record(job, {path: put})
        return job.head.of(organisation_id)[policy_id]

    def _touch(self, job: Job, path: str, after: str | None) -> LastLook:
        """Remember what the file was, before it is changed; returns the last look to be taken then. Raises
        Again when somebody changed it since we compared it with the archive."""
        current = job.head.files.get(path)
        seen = self._observer.now(path)
        known = {current.digest if current else None, self._agreed.on(path)}
        if seen.digest not in known and seen.digest not in {d for _, d in job.records.history(path)}:
            raise Again
        undo = Undo(path, seen.content, after)
        self._unsettled.begin(undo)
        job.touched.append(undo)
        markers.write_intent(self.disk, Intent(path, current.digest if current else None, after, job.author))
        return partial(self._observer.still, path, seen.digest)

    def _record(self, job: Job, edits: Mapping[str, Put | None], origin: Origin | None = None) -> None:
        made_by = origin or ("api", job.author)
        head, changes = revisions.record(
            job.records, job.head, edits, origin=lambda _path: made_by, at=self._clock()
        )
        job.head = head
        job.changes += changes

    def _undo(self, touched: list[Undo]) -> None:
        """Put back what the files were before the transaction that failed."""
        with self._lock:
            self._pending |= self._unsettled.undo(reversed(touched))

    def _commit_to_git(self, author: str, touched: list[Undo], changes: list[Change]) -> None:
        if self._commit is None:
            return
        for path in dict.fromkeys(undo.path for undo in touched):
            after = next((change.after for change in reversed(changes) if change.path == path), None)
            what = f"version {after.version}" if after else "deleted"
            name = path.rpartition("/")[2].removesuffix(".yaml")
            try:
                self._commit(self.root, path, author, f"policy {name}: {what}")
            except Exception:
                log.exception("the commit of `%s` failed; the policy is in force all the same", path)
