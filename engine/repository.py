"""The policies folder and the API as two writers of one history: the side of the API.

An API write is its own batch: it loads the edit that lies on disk first (as its own version), then applies
the sent members on top, changing only their spans in the file, swaps the file in one rename and records the
version, all inside one transaction. What a failed write did to the file is undone.

The side of the disk, and what both have in common, is `reconcile`. It must not know SQL or HTTP.

INVARIANT: a file that does not load, or that changed in a way we have not seen, is never overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from engine import folder, history, notes
from engine.archive import Archive, Change, Records, Source, VersionRecord
from engine.disk import reason, shown
from engine.documents import API_VERSION, digest_of, policy_as_json, policy_from_json, slug
from engine.edits import dump, edit, refuse_surrogates, same
from engine.errors import (
    DocumentError,
    PolicyExists,
    PolicyFileInvalid,
    PolicyNotFound,
    PreconditionFailed,
    Problem,
    StorageError,
    VersionNotFound,
)
from engine.history import Put
from engine.model import Json, Policy
from engine.notes import Intent
from engine.reconcile import Again, Reconciler, Seen
from engine.snapshot import Snapshot, Stored

log = logging.getLogger("governance.policies")

REMOVABLE: Final = frozenset(
    {"description", "presetId", "scope", "mode", "rateLimit", "approval", "failurePolicy", "examples"}
)
"""Members that an API change removes by sending null."""

TRIES: Final = 5

T = TypeVar("T")

Commit = Callable[[Path, str, str, str], object]


@dataclass(frozen=True, slots=True)
class Written:
    """What an API write led to; `stored` is None after a deletion. `changes` begins with the edit that lay
    on disk, if there was one, and is empty when the policy already was as asked."""

    snapshot: Snapshot
    stored: Stored | None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenMany:
    """What writing several new policies led to."""

    snapshot: Snapshot
    stored: tuple[Stored, ...]
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Job:
    """One write while it runs; `touched` are the paths whose files it has changed."""

    records: Records
    head: Snapshot
    author: str
    changes: list[Change]
    touched: list[str]


class _EditFirst(Exception):
    """Somebody edited the file: their edit becomes a version before ours is made on top of it."""

    def __init__(self, path: str, missing: bool) -> None:
        super().__init__(path)
        self.path = path
        self.missing = missing


class Repository(Reconciler):
    """One folder and one archive. Safe to use from several threads."""

    def __init__(self, root: Path, archive: Archive, *, commit: Commit | None = None, **options: Any) -> None:
        """`commit(root, path, author, message)` runs after an API write; `options` are the Reconciler's."""
        super().__init__(root, archive, **options)
        self._commit = commit

    # ---- reading ---------------------------------------------------------------------------------------

    def policy(self, organisation_id: str, policy_id: str) -> Stored:
        """Raises PolicyNotFound."""
        return _found(self._snapshot, organisation_id, policy_id)

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        """All versions, newest first, also of a deleted policy. Raises PolicyNotFound."""
        found = self.archive.view(lambda records: records.versions(organisation_id, policy_id))
        if not found:
            raise _not_found(policy_id)
        return found

    def policies_at(self, organisation_id: str, moment: int | str) -> tuple[int, list[Policy]] | None:
        """Revision and policies in force at a revision or an ISO 8601 UTC time; None: no such revision."""

        def read(records: Records) -> tuple[int, list[Policy]] | None:
            revision = moment if isinstance(moment, int) else records.revision_at(moment)
            if not 0 < revision <= records.head()[0]:
                return None
            documents = [
                self._document(records, record)
                for record in records.files_at(revision).values()
                if record.kind == "policy" and record.organisation_id == organisation_id
            ]
            return revision, [document for document in documents if isinstance(document, Policy)]

        return self.archive.view(read)

    # ---- writing ---------------------------------------------------------------------------------------

    def create(self, body: Mapping[str, Json], *, author: str, organisation_id: str = "default") -> Written:
        """A new policy from the API's shape; without `policyId` it gets a free one made from its name.

        Raises DocumentError, PolicyExists, PolicyFileInvalid, StorageError.
        """
        written = self.create_many([body], author=author, organisation_id=organisation_id)
        return Written(written.snapshot, written.stored[0], written.changes)

    def create_many(
        self, bodies: Sequence[Mapping[str, Json]], *, author: str, organisation_id: str = "default"
    ) -> WrittenMany:
        """Several new policies in one revision each, all or none. Raises what `create` does."""
        for body in bodies:
            refuse_surrogates(dict(body))
            policy_from_json(body, organisation_id=organisation_id)

        def work(job: _Job) -> list[Stored]:
            return [self._create(job, organisation_id, body) for body in bodies]

        job, stored = self._write(author, work)
        return WrittenMany(job.head, tuple(stored or ()), tuple(job.changes))

    def _create(self, job: _Job, organisation_id: str, body: Mapping[str, Json]) -> Stored:
        if "policyId" in body:
            policy_id: str = body["policyId"]
            self._load_edit_on_disk(job, organisation_id, policy_id)
            if policy_id in job.head.of(organisation_id):
                raise PolicyExists(f"there is a policy `{policy_id}` already; choose another `policyId`")
        else:
            policy_id = self._free_id(job, organisation_id, body["name"])
        version = job.records.last_version(organisation_id, policy_id) + 1
        document = {"apiVersion": API_VERSION, "kind": "Policy", "policyId": policy_id, "version": version}
        members = {key: value for key, value in body.items() if key != "policyId" and value is not None}
        content = dump(document | {"enabled": True} | members).encode()
        return self._put(
            job, folder.path_for(organisation_id, policy_id), content, organisation_id, policy_id
        )

    def update(
        self,
        organisation_id: str,
        policy_id: str,
        changes: Mapping[str, Json],
        *,
        author: str,
        if_match: str | None = None,
    ) -> Written:
        """Change the sent members only; null removes an optional one.

        Raises DocumentError, PolicyNotFound, PolicyFileInvalid, PreconditionFailed, StorageError.
        """
        refuse_surrogates(dict(changes))

        def work(job: _Job) -> Stored | None:
            stored = self._current(job, organisation_id, policy_id, if_match)
            if stored is None:
                return None
            sent, removed = _normalised(stored, changes, organisation_id)
            if not sent and not removed:
                return stored
            source = job.records.blob(stored.file.digest)
            sent["version"] = job.records.last_version(organisation_id, policy_id) + 1
            content = edit(source, sent, removed)
            return self._put(job, stored.file.path, content, organisation_id, policy_id)

        return _written(*self._write(author, work))

    def delete(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> Written:
        """Remove the policy and its file; its versions stay readable.

        Raises PolicyNotFound, PolicyFileInvalid, PreconditionFailed, StorageError.
        """

        def work(job: _Job) -> None:
            stored = self._current(job, organisation_id, policy_id, if_match)
            if stored is None:
                return
            path = stored.file.path
            self._touch(job, path, None)
            self.disk.remove(path)
            self._record(job, {path: None})

        return _written(*self._write(author, work))

    def rollback(
        self, organisation_id: str, policy_id: str, version: int, *, author: str, if_match: str | None = None
    ) -> Written:
        """Write an old version's exact file again, as a new version; brings a deleted policy back.

        Raises DocumentError when the old state is not valid any more, VersionNotFound and what `update` does.
        """

        def work(job: _Job) -> Stored | None:
            past = job.records.versions(organisation_id, policy_id)
            if not past:
                raise _not_found(policy_id)
            wanted = next((each for each in past if each.version == version), None)
            if wanted is None:
                raise VersionNotFound(
                    f"`{policy_id}` has no version {version}; its newest is {past[0].version}"
                )
            stored: Stored | None = None
            if policy_id in job.head.of(organisation_id):
                stored = self._current(job, organisation_id, policy_id, if_match)
                if stored is None or stored.file.version == version:
                    return stored
            else:
                self._load_edit_on_disk(job, organisation_id, policy_id)
                stored = job.head.of(organisation_id).get(policy_id)
            number = job.records.last_version(organisation_id, policy_id) + 1
            content = edit(job.records.blob(wanted.digest), {"version": number})
            path = stored.file.path if stored else folder.path_for(organisation_id, policy_id)
            return self._put(job, path, content, organisation_id, policy_id)

        return _written(*self._write(author, work))

    # ---- inside the transaction ------------------------------------------------------------------------

    def _write(self, author: str, work: Callable[[_Job], T]) -> tuple[_Job, T]:
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

    def _try_to_write(self, author: str, work: Callable[[_Job], T]) -> tuple[_Job, T]:
        touched: list[str] = []
        try:
            job, result = self.archive.transact(lambda records: self._run(records, author, touched, work))
        except Exception:
            self._undo(touched)
            raise
        self._committed(job)
        self._commit_to_git(author, touched, job.changes)
        return job, result

    def _committed(self, job: _Job) -> None:
        with self._lock:
            self._pending |= self._outdated(job.head) - set(job.touched)
            self._publish(job.head)
            for path in job.touched:
                self._unsettled.pop(path, None)
                notes.forget_intent(self.disk, path)
            for change in job.changes:
                if self._base is not None:
                    self._base[change.path] = change.after.digest if change.after else None
                self._pending.discard(change.path)
            self._mark()

    def _run(
        self, records: Records, author: str, touched: list[str], work: Callable[[_Job], T]
    ) -> tuple[_Job, T]:
        with self._lock:
            if touched:  # an archive may run the work again when a transaction that others shared failed
                self._undo(touched)
                touched.clear()
            job = _Job(records, self._at_head(records), author, [], touched)
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
        """Make what a person did to a file a version of its own. Raises PolicyFileInvalid."""
        author = self._authors(self.root, [path]).get(path) or "file"

        def run(records: Records) -> _Job:
            with self._lock:
                job = _Job(records, self._at_head(records), author, [], [])
                put = self._edit_on_disk(job, path)
                if put is not None:
                    self._record(job, {path: put}, "file")
                return job

        job = self.archive.transact(run)
        self._committed(job)
        return job.changes

    def _current(
        self, job: _Job, organisation_id: str, policy_id: str, if_match: str | None
    ) -> Stored | None:
        """The policy after the edit on disk was loaded. Raises PolicyNotFound, PreconditionFailed."""
        self._load_edit_on_disk(job, organisation_id, policy_id)
        stored = _found(job.head, organisation_id, policy_id)
        if if_match not in (None, "*", stored.etag):
            raise PreconditionFailed(
                f"`{policy_id}` is at version {stored.file.version} now; read it again and repeat your change"
            )
        return stored

    def _load_edit_on_disk(self, job: _Job, organisation_id: str, policy_id: str) -> None:
        """Raises _EditFirst when a person has edited the file, PolicyFileInvalid when it does not load."""
        stored = job.head.of(organisation_id).get(policy_id)
        path = stored.file.path if stored else folder.path_for(organisation_id, policy_id)
        if path in self._to_undo:
            raise StorageError(
                f"`{shown(path)}` is not yet put right after a failed write; try again shortly"
            )
        if path in self._unsettled:
            return
        if self._edit_on_disk(job, path) is not None:
            raise _EditFirst(path, missing=False)
        missing = stored is not None and self._seen_now(path).digest is None
        if missing and self.classify(job.records, path, Seen(None), job.head.files[path]) == "edit":
            raise _EditFirst(path, missing=True)

    def _edit_on_disk(self, job: _Job, path: str) -> Put | None:
        """What a person wrote into the file since it was last compared; None when nothing, or it is gone."""
        seen = self._seen_now(path)
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

    def _seen_now(self, path: str) -> Seen:
        try:
            signature = self.disk.signature(path)
            content = self.disk.read(path)
        except OSError as error:
            raise StorageError(f"`{shown(path)}` cannot be read: {reason(error)}") from error
        return Seen(None if content is None else digest_of(content), signature, content)

    def _put(self, job: _Job, path: str, content: bytes, organisation_id: str, policy_id: str) -> Stored:
        put = Put(self._load(path, content, digest_of(content)), digest_of(content), content)
        problems = self.refuse_set(job.head, {path: put})
        if problems:
            raise DocumentError(problems)
        if self.disk.is_link(path):
            raise StorageError(f"`{shown(path)}` is a link, which is not replaced; edit the file it leads to")
        self._touch(job, path, put.digest)
        self.disk.replace(path, content)
        self._record(job, {path: put})
        return job.head.of(organisation_id)[policy_id]

    def _touch(self, job: _Job, path: str, after: str | None) -> None:
        """Remember what the file was, before this transaction first changes it. Raises Again when somebody
        changed it since we compared it with the archive."""
        current = job.head.files.get(path)
        seen = self._seen_now(path)
        known = {current.digest if current else None}
        if self._base is not None:
            known.add(self._base.get(path))
        if seen.digest not in known and seen.digest not in {d for _, d in job.records.history(path)}:
            raise Again
        self._unsettled.setdefault(path, seen.content)
        job.touched.append(path)
        notes.write_intent(self.disk, Intent(path, current.digest if current else None, after, job.author))

    def _record(self, job: _Job, edits: Mapping[str, Put | None], source: Source = "api") -> None:
        head, changes = history.record(
            job.records,
            job.head,
            edits,
            origin=lambda _path: (source, job.author),
            at=self._clock(),
        )
        job.head = head
        job.changes += changes

    def _undo(self, touched: list[str]) -> None:
        """Put back what the files were before the transaction that failed."""
        with self._lock:
            for path in touched:
                if path in self._unsettled:
                    self._put_back(path, self._unsettled.pop(path))
                    notes.forget_intent(self.disk, path)

    def _free_id(self, job: _Job, organisation_id: str, name: str) -> str:
        """An id that no policy has or had, so that the new one starts at version 1."""
        stem = slug(name)
        number = 1
        while True:
            policy_id = stem if number == 1 else f"{stem}-{number}"
            path = folder.path_for(organisation_id, policy_id)
            taken = job.records.last_version(organisation_id, policy_id) or policy_id in job.head.of(
                organisation_id
            )
            if not taken and self._seen_now(path).digest is None:
                return policy_id
            number += 1

    def _commit_to_git(self, author: str, touched: list[str], changes: list[Change]) -> None:
        if self._commit is None:
            return
        for path in dict.fromkeys(touched):
            after = next((change.after for change in reversed(changes) if change.path == path), None)
            what = f"version {after.version}" if after else "deleted"
            name = path.rpartition("/")[2].removesuffix(".yaml")
            try:
                self._commit(self.root, path, author, f"policy {name}: {what}")
            except Exception:
                log.exception("the commit of `%s` failed; the policy is in force all the same", path)


def _normalised(
    stored: Stored, changes: Mapping[str, Json], organisation_id: str
) -> tuple[dict[str, Json], list[str]]:
    """The sent members that change something, and the removed ones. Raises DocumentError."""
    policy_id = stored.policy.policy_id
    if changes.get("policyId", policy_id) != policy_id:
        message = "`policyId` cannot be changed; create a new policy and delete this one"
        raise DocumentError([Problem(message, "/policyId", "read_only")])
    old = policy_as_json(stored.policy)
    old.pop("version", None)
    removed = [key for key, value in changes.items() if value is None and key in REMOVABLE]
    merged = {key: value for key, value in (old | dict(changes)).items() if key not in removed}
    new = policy_as_json(policy_from_json(merged, policy_id=policy_id, organisation_id=organisation_id))
    sent = {
        key: value
        for key, value in changes.items()
        if key not in removed and key != "policyId" and not same(old.get(key), new.get(key))
    }
    return sent, [key for key in removed if not same(old.get(key), new.get(key))]


def _written(job: _Job, stored: Stored | None) -> Written:
    return Written(job.head, stored, tuple(job.changes))


def _found(snapshot: Snapshot, organisation_id: str, policy_id: str) -> Stored:
    stored = snapshot.of(organisation_id).get(policy_id)
    if stored is None:
        raise _not_found(policy_id)
    return stored


def _not_found(policy_id: str) -> PolicyNotFound:
    return PolicyNotFound(f"there is no policy `{policy_id}`")
