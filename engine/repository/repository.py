"""The policies folder and the API as two writers of one history.

Composed of a worktree (the files), an archive (the history), and the sequence that keeps the two level
(`sync.py`, with journal and merge base). What is decided here is which bytes an API write puts into which
file: only the changed members' spans are replaced, so that comments and order stay, and what the caller may
change. It must not know SQL or HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from engine.documents.edit import dump, edit, refuse_surrogates, same
from engine.documents.policy import API_VERSION, policy_as_json, policy_from_json, slug
from engine.documents.preset_upgrade import Upgrade
from engine.documents.presets import Preset
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
from engine.repository.archive import Archive, FileChange, Records, VersionRecord
from engine.repository.cache import DocumentCache
from engine.repository.loader import DocumentLoader, Past
from engine.repository.plan import Plan
from engine.repository.snapshot import Snapshot, Stored
from engine.repository.sync import Applied, Authors, Sync, WriteResult
from engine.worktree import git, paths
from engine.worktree.disk import Disk, Pause
from engine.worktree.observer import Part, Progress
from engine.worktree.worktree import Worktree

log = logging.getLogger("governance.policies")

T = TypeVar("T")

REMOVABLE: Final = frozenset(
    {"description", "message", "presetId", "presetParameters", "scope", "mode", "rateLimit", "approval"}
    | {"failurePolicy", "examples"}
)
"""Members that an API change removes by sending null."""

Commit = Callable[[Path, str, str, str], object]
"""Called as `commit(root, path, author, message)` after an API write."""


@dataclass(frozen=True, slots=True)
class UpgradeOffer:
    """What upgrading a policy to its preset would do. `etag` names this state of both."""

    stored: Stored
    preset: Preset
    upgrade: Upgrade

    @property
    def etag(self) -> str:
        return f"{self.stored.etag}-{self.preset.digest[:16]}"


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
        cache: DocumentCache | None = None,
        nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clock` gives ISO 8601 UTC text, `nanoseconds` the same clock as the file system's."""
        self.archive = archive
        self.worktree = Worktree(disk or Disk(root), nanoseconds)
        self._documents = DocumentLoader(cache or DocumentCache())
        self._commit = commit
        self.sync = Sync(self.worktree, archive, self._documents, clock=clock, authors=authors)

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
    def overlooked(self) -> list[Problem]:
        """Files that look like documents and are not read."""
        return self.worktree.observer.overlooked

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
        return self.sync.apply_files(hints)

    def differing(self, reread: Part, pause: Pause = lambda: None) -> set[str]:
        """Look at all of the disk in passing: the paths that are not as in force. Nothing of them is applied,
        since it may be half of a batch.

        `reread` is the part of the files that is read again whatever their times say. Raises what the archive
        or `pause` raises.
        """
        return self.sync.differing(reread, pause)

    def follow(self) -> Snapshot:
        """Take over what other processes and nodes have committed. Touches no disk; the next `apply_files`
        brings the files up to date. Raises RepositoryError when a newer document does not load here."""
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

    def preset_upgrade(self, organisation_id: str, policy_id: str) -> UpgradeOffer:
        """What the preset of a policy, as it is now, would change. Raises PolicyNotFound, PresetNotFound."""

        def read(records: Records) -> UpgradeOffer:
            head = self._documents.at_head(records, self.snapshot)
            return _offer(records, head, _found(head, organisation_id, policy_id))

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
        self, bodies: Sequence[Mapping[str, Json]], *, author: str, organisation_id: str = "default"
    ) -> WriteResult[list[Stored]]:
        """Several new policies in one revision each, all or none. Raises what `create` does."""
        for body in bodies:
            refuse_surrogates(dict(body))
            policy_from_json(body, organisation_id=organisation_id)
        if not bodies:
            return WriteResult([])
        return self._write(
            author, lambda plan: [self._create(plan, organisation_id, body) for body in bodies]
        )

    def _create(self, plan: Plan, organisation_id: str, body: Mapping[str, Json]) -> Stored:
        if "policyId" in body:
            policy_id: str = body["policyId"]
            self._load_edit(plan, organisation_id, policy_id)
            if policy_id in plan.head.of(organisation_id):
                raise PolicyExists(f"there is a policy `{policy_id}` already; choose another `policyId`")
        else:
            policy_id = self._free_id(plan, organisation_id, body["name"])
        version = plan.records.last_version(organisation_id, policy_id) + 1
        document = {"apiVersion": API_VERSION, "kind": "Policy", "policyId": policy_id, "version": version}
        members = {key: value for key, value in body.items() if key != "policyId" and value is not None}
        content = dump(document | {"enabled": True} | members).encode()
        return self._put(
            plan, paths.path_for(organisation_id, policy_id), content, organisation_id, policy_id
        )

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

        return self._write(author, operation)

    def upgrade(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> WriteResult[Stored]:
        """Take over what `preset_upgrade` offers; `if_match` may name the offer or the policy.

        Raises PresetNotFound, DocumentError when the outcome would not be good, and what `update` does.
        """

        def operation(plan: Plan) -> Stored:
            stored = self._current(plan, organisation_id, policy_id, None)
            offer = _offer(plan.records, plan.head, stored)
            if if_match not in (None, "*", stored.etag, offer.etag):
                raise PreconditionFailed(
                    f"`{policy_id}` or its preset has changed since; look at the upgrade again and repeat it"
                )
            if offer.upgrade.problems:
                raise DocumentError(offer.upgrade.problems)
            return self._change(plan, stored, offer.upgrade.sent)

        return self._write(author, operation)

    def delete(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> WriteResult[None]:
        """Remove the policy and its file; its versions stay readable.

        Raises PolicyNotFound, PreconditionFailed.
        """

        def operation(plan: Plan) -> None:
            stored = self._current(plan, organisation_id, policy_id, if_match)
            self.sync.remove(plan, stored.file.path)

        return self._write(author, operation)

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

        return self._write(author, operation)

    def _write(self, author: str, operation: Callable[[Plan], T]) -> WriteResult[T]:
        result = self.sync.write(author, operation)
        if self._commit is not None:
            last = {change.path: change for change in result.changes if change.source == "api"}
            for change in last.values():
                self._commit_to_git(self._commit, change)
        return result

    def _commit_to_git(self, commit: Commit, change: FileChange) -> None:
        what = f"version {change.after.version}" if change.after else "deleted"
        try:
            commit(self.root, change.path, change.author, f"policy {change.subject.document_id}: {what}")
        except Exception:
            log.exception("the commit of `%s` failed; the policy is in force all the same", change.path)

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
        self.sync.put(plan, path, content)
        return plan.head.of(organisation_id)[policy_id]

    def _change(self, plan: Plan, stored: Stored, changes: Mapping[str, Json]) -> Stored:
        """The policy with these members set, null removing; nothing is written when it is so already."""
        organisation_id, policy_id = stored.policy.organisation_id, stored.policy.policy_id
        sent, removed = _normalised(stored, changes, organisation_id)
        if not sent and not removed:
            return stored
        source = plan.records.blob(stored.file.digest)
        sent["version"] = plan.records.last_version(organisation_id, policy_id) + 1
        content = edit(source, sent, removed)
        return self._put(plan, stored.file.path, content, organisation_id, policy_id)

    def _free_id(self, plan: Plan, organisation_id: str, name: str) -> str:
        """An id that no policy has or had, so that the new one starts at version 1."""
        stem = slug(name)
        number = 1
        while True:
            policy_id = stem if number == 1 else f"{stem}-{number}"
            path = paths.path_for(organisation_id, policy_id)
            taken = plan.records.last_version(organisation_id, policy_id) or policy_id in plan.head.of(
                organisation_id
            )
            if not taken and self.worktree.disk.look(path) is None:
                return policy_id
            number += 1


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


def _offer(records: Records, head: Snapshot, stored: Stored) -> UpgradeOffer:
    return UpgradeOffer(stored, *preset_history.offered(records, head, stored.policy))


def _found(snapshot: Snapshot, organisation_id: str, policy_id: str) -> Stored:
    stored = snapshot.of(organisation_id).get(policy_id)
    if stored is None:
        raise _not_found(policy_id)
    return stored


def _not_found(policy_id: str) -> PolicyNotFound:
    return PolicyNotFound(f"there is no policy `{policy_id}`")
