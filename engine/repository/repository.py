"""The policies folder and the API as two writers of one history.

Composed of a worktree (the files), an archive (the history), and the sequence that keeps the two level
(`sync.py`, with journal and merge base). What is decided here is which bytes an API write puts into which
file: only the changed members' spans are replaced, so that comments and order stay, and what the caller may
change. It must not know SQL or HTTP.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from engine.documents import policy_file
from engine.documents.edit import edit, refuse_surrogates
from engine.documents.ids import slug
from engine.documents.policy import policy_from_json
from engine.errors import (
    DocumentError,
    PolicyExists,
    PolicyNotFound,
    PreconditionFailed,
    Problem,
    VersionNotFound,
)
from engine.model import Json
from engine.repository import preset_history
from engine.repository.accepted import Commit, ToGit
from engine.repository.archive import Archive, Records, VersionRecord
from engine.repository.cache import DocumentCache
from engine.repository.loader import DocumentLoader, Past
from engine.repository.plan import Guard, Plan
from engine.repository.snapshot import Snapshot, Stored
from engine.repository.sync import Applied, Authors, Sync, WriteResult
from engine.worktree import git, paths
from engine.worktree.disk import Disk, Pause
from engine.worktree.observer import Part, Progress
from engine.worktree.worktree import Worktree

log = logging.getLogger("governance.policies")

T = TypeVar("T")

MOST_OF_ONE_NAME: Final = 10_000
"""Policies whose ids are made of the same name."""


class Repository:
    """One folder and one archive. Safe to use from several threads.

    Writes raise PolicyFileInvalid and StorageError beside what each one names.
    """

    def __init__(
        self,
        root: Path,
        archive: Archive,
        *,
        clock: Callable[[], str],
        disk: Disk | None = None,
        authors: Authors = git.authors,
        commit: Commit | None = None,
        note_commit: Commit | None = None,
        cache: DocumentCache | None = None,
        nanoseconds: Callable[[], int] = time.time_ns,
        installation: str = "",
    ) -> None:
        """`clock` gives ISO 8601 UTC text; of `nanoseconds` and `installation` see Worktree, of `commit` and
        `note_commit` ToGit."""
        self.archive = archive
        self.worktree = Worktree(disk or Disk(root), nanoseconds, installation)
        self._documents = DocumentLoader(cache or DocumentCache())
        self._guard: Guard | None = None
        self.sync = Sync(self.worktree, archive, self._documents, clock=clock, authors=authors)
        self._to_git = ToGit(self.worktree.root, commit, note_commit)
        self.sync.current.on_written = self._to_git.note

    @property
    def root(self) -> Path:
        return self.worktree.root

    @property
    def snapshot(self) -> Snapshot:
        """What is in force."""
        return self.sync.current.snapshot

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the disk's state is not in force; empty when it is."""
        return self.sync.current.problems

    @property
    def warnings(self) -> list[Problem]:
        """Files that look like documents and are not read, notes that cannot be kept, who else is here, and a
        git that nobody sees. INVARIANT: no disk is asked, since who asks for this must not wait for one."""
        seen, occupancy = self.worktree.observer, self.worktree.occupancy
        of_git = [each for each in seen.unseen_git if each not in self.problems]
        return [*seen.overlooked, *self.sync.current.unmarked, *occupancy.problems, *of_git]

    # ---- files and other writers -----------------------------------------------------------------------

    def start(self, progress: Progress | None = None) -> Applied:
        """Load the last good set, then whatever the disk says on top of it.

        Raises RefusedToStart when the disk is not good and there is no last good set either: with an empty
        set everything would be allowed.
        """
        return self.sync.start(progress)

    def apply_files(self, hints: Iterable[str] | None = None) -> Applied:
        """Bring the archive up to the disk, and stale files up to the archive; all edits are one batch.

        `hints` are paths that may have changed, None looks at all. Raises what the archive raises; then
        nothing has changed.
        """
        applied = self.sync.apply_files(hints)
        self._to_git.commit(applied.changes)  # of an API write whose process died, what was completed now
        return applied

    def differing(self, reread: Part, pause: Pause = lambda: None) -> set[str]:
        """Look at all of the disk in passing: the paths that are not as in force. Nothing of them is applied,
        since it may be half of a batch.

        `reread` is the part of the files that is read again whatever their times say. Raises what the archive
        or `pause` raises.
        """
        return self.sync.differing(reread, pause)

    def follow(self) -> Snapshot:
        """Take over what other processes and nodes have committed. Touches no disk; the next `apply_files`
        brings the files up to date. Raises NewerDocuments when one does not load here."""
        return self.sync.follow()

    # ---- reading ---------------------------------------------------------------------------------------

    def policy(self, organisation_id: str, policy_id: str) -> Stored:
        """Raises PolicyNotFound."""
        return _found(self.snapshot, organisation_id, policy_id)

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        """All versions, newest first, also of a deleted policy. Raises PolicyNotFound."""
        found = self.archive.view(lambda records: records.versions(organisation_id, policy_id))
        if not found:
            raise _not_found(policy_id)
        return found

    def policies_at(self, organisation_id: str, moment: int | str) -> Past | None:
        """Policies and tools in force at a revision or an ISO 8601 UTC time; None: no such revision."""
        return self.archive.view(
            lambda records: self._documents.policies_at(records, organisation_id, moment)
        )

    def preset_upgrade(self, organisation_id: str, policy_id: str) -> preset_history.UpgradeOffer:
        """What the preset of a policy, as it is now, would change. Raises PolicyNotFound, PresetNotFound."""

        def read(records: Records) -> preset_history.UpgradeOffer:
            head = self._documents.at_head(records, self.snapshot)
            return preset_history.offer(records, head, _found(head, organisation_id, policy_id))

        return self.archive.view(read)

    # ---- writing ---------------------------------------------------------------------------------------

    def create(
        self, body: Mapping[str, Json], *, author: str, organisation_id: str = "default"
    ) -> WriteResult[Stored]:
        """A new policy from the API's shape; without `policyId` it gets a free one made from its name.

        Raises DocumentError, PolicyExists.
        """
        result = self.create_many([body], author=author, organisation_id=organisation_id)
        return WriteResult(result.stored[0], result.changes)

    def create_many(
        self,
        bodies: Sequence[Mapping[str, Json]],
        *,
        author: str,
        organisation_id: str = "default",
        changes: Mapping[str, Mapping[str, Json]] = MappingProxyType({}),
    ) -> WriteResult[list[Stored]]:
        """Several new policies, and changes of others by id, in one revision, all or none. Raises what
        `create` and `update` do."""
        for body in (*bodies, *changes.values()):
            refuse_surrogates(dict(body))
        for body in bodies:
            policy_from_json(body, organisation_id=organisation_id)
        if not bodies and not changes:
            return WriteResult([])

        def operation(plan: Plan) -> list[Stored]:
            contents: dict[str, tuple[str, bytes]] = {}
            for body in bodies:
                policy_id = self._new_id(plan, organisation_id, body, contents)
                path = paths.path_for(organisation_id, policy_id)
                version = plan.records.last_version(organisation_id, policy_id) + 1
                contents[policy_id] = path, policy_file.created(policy_id, version, body)
            for policy_id, sent in changes.items():
                stored = self._current(plan, organisation_id, policy_id, None)
                if (content := _changed(plan, stored, sent)) is not None:
                    contents[policy_id] = stored.file.path, content
            self.sync.put(plan, dict(contents.values()))
            return [plan.head.of(organisation_id)[policy_id] for policy_id in contents]

        return self.write(author, operation)

    def _new_id(
        self, plan: Plan, organisation_id: str, body: Mapping[str, Json], taken: Collection[str]
    ) -> str:
        if "policyId" not in body:
            return self._free_id(plan, organisation_id, body["name"], taken)
        policy_id: str = body["policyId"]
        self._load_edit(plan, organisation_id, policy_id)
        if policy_id in plan.head.of(organisation_id) or policy_id in taken:
            raise PolicyExists(f"there is a policy `{policy_id}` already; choose another `policyId`")
        return policy_id

    def update(
        self,
        organisation_id: str,
        policy_id: str,
        changes: Mapping[str, Json],
        *,
        author: str,
        if_match: str | None = None,
    ) -> WriteResult[Stored]:
        """Change the sent members only; null removes an optional one.

        Raises DocumentError, PolicyNotFound, PreconditionFailed.
        """
        refuse_surrogates(dict(changes))

        def operation(plan: Plan) -> Stored:
            stored = self._current(plan, organisation_id, policy_id, if_match)
            return self._change(plan, stored, changes)

        return self.write(author, operation)

    def upgrade(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> WriteResult[Stored]:
        """Take over what `preset_upgrade` offers; `if_match` may name the offer or the policy.

        Raises PresetNotFound, DocumentError when the outcome would not be good, and what `update` does.
        """

        def operation(plan: Plan) -> Stored:
            stored = self._current(plan, organisation_id, policy_id, None)
            offer = preset_history.offer(plan.records, plan.head, stored)
            if if_match not in (None, "*", stored.etag, offer.etag):
                raise PreconditionFailed(
                    f"`{policy_id}` or its preset has changed since; look at the upgrade again and repeat it"
                )
            if offer.upgrade.problems:
                raise DocumentError(offer.upgrade.problems)
            return self._change(plan, stored, offer.upgrade.sent)

        return self.write(author, operation)

    def delete(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> WriteResult[None]:
        """Remove the policy and its file; its versions stay readable.

        Raises PolicyNotFound, PreconditionFailed.
        """

        def operation(plan: Plan) -> None:
            stored = self._current(plan, organisation_id, policy_id, if_match)
            self.sync.remove(plan, stored.file.path)

        return self.write(author, operation)

    def rollback(
        self, organisation_id: str, policy_id: str, version: int, *, author: str, if_match: str | None = None
    ) -> WriteResult[Stored]:
        """Write an old version's exact file again, as a new version; brings a deleted policy back.

        Raises DocumentError when the old state is not valid any more, VersionNotFound and what `update` does.
        """

        def operation(plan: Plan) -> Stored:
            past = plan.records.versions(organisation_id, policy_id)
            if not past:
                raise _not_found(policy_id)
            wanted = next((each for each in past if each.version == version), None)
            if wanted is None:
                raise VersionNotFound(
                    f"`{policy_id}` has no version {version}; its newest is {past[0].version}"
                )
            if policy_id in plan.head.of(organisation_id):
                stored = self._current(plan, organisation_id, policy_id, if_match)
                if stored.file.version == version:
                    return stored
                path = stored.file.path
            else:
                self._load_edit(plan, organisation_id, policy_id)
                path = paths.path_for(organisation_id, policy_id)
            number = plan.records.last_version(organisation_id, policy_id) + 1
            content = edit(plan.records.blob(wanted.digest), {"version": number})
            return self._put(plan, path, content, organisation_id, policy_id)

        return self.write(author, operation)

    def guarded(self, guard: Guard) -> Repository:
        """The same, but each write asks first, by what it would do to files; what `guard` raises stops it."""
        other = copy.copy(self)
        other._guard = guard
        return other

    def write(self, author: str, operation: Callable[[Plan], T]) -> WriteResult[T]:
        """Run an operation in a transaction of its own, and commit to git what it wrote."""
        result = self.sync.write(author, operation, self._guard)
        self._to_git.commit(result.changes)
        return result

    # ---- inside the transaction ------------------------------------------------------------------------

    def _current(self, plan: Plan, organisation_id: str, policy_id: str, if_match: str | None) -> Stored:
        """The policy after the edit on disk was loaded. Raises PolicyNotFound, PreconditionFailed."""
        self._load_edit(plan, organisation_id, policy_id)
        stored = _found(plan.head, organisation_id, policy_id)
        if if_match not in (None, "*", stored.etag):
            raise PreconditionFailed(
                f"`{policy_id}` is at version {stored.file.version} now; read it again and repeat your change"
            )
        return stored

    def _load_edit(self, plan: Plan, organisation_id: str, policy_id: str) -> None:
        stored = plan.head.of(organisation_id).get(policy_id)
        self.sync.load_edit(plan, stored.file.path if stored else paths.path_for(organisation_id, policy_id))

    def _put(self, plan: Plan, path: str, content: bytes, organisation_id: str, policy_id: str) -> Stored:
        self.sync.put(plan, {path: content})
        return plan.head.of(organisation_id)[policy_id]

    def _change(self, plan: Plan, stored: Stored, changes: Mapping[str, Json]) -> Stored:
        """The policy with these members set, null removing; nothing is written when it is so already."""
        content = _changed(plan, stored, changes)
        if content is None:
            return stored
        policy = stored.policy
        return self._put(plan, stored.file.path, content, policy.organisation_id, policy.policy_id)

    def _free_id(self, plan: Plan, organisation_id: str, name: str, others: Collection[str]) -> str:
        """An id that no policy has or had, so that the new one starts at version 1."""
        stem = slug(name)
        for number in range(1, MOST_OF_ONE_NAME + 1):
            policy_id = stem if number == 1 else f"{stem}-{number}"
            if policy_id in others or policy_id in plan.head.of(organisation_id):
                continue
            path = paths.path_for(organisation_id, policy_id)
            if not plan.records.last_version(organisation_id, policy_id) and self.worktree.observer.is_free(
                path
            ):
                return policy_id
        raise PolicyExists(f"{number:,} policies have or had ids made of this name; choose a `policyId`")


def _changed(plan: Plan, stored: Stored, changes: Mapping[str, Json]) -> bytes | None:
    """The file of a policy with these members set; None where it is so already."""
    policy = stored.policy
    version = plan.records.last_version(policy.organisation_id, policy.policy_id) + 1
    return plan.once(
        ("changed", stored.file.path, stored.file.digest, version, json.dumps(changes, default=dict)),
        lambda: policy_file.changed(plan.records.blob(stored.file.digest), policy, version, changes),
    )


def _found(snapshot: Snapshot, organisation_id: str, policy_id: str) -> Stored:
    stored = snapshot.of(organisation_id).get(policy_id)
    if stored is None:
        raise _not_found(policy_id)
    return stored


def _not_found(policy_id: str) -> PolicyNotFound:
    return PolicyNotFound(f"there is no policy `{policy_id}`")
