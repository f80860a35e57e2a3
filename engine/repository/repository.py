"""The policies folder and the API as two writers of one history: the side of the API.

An API write is its own batch: it loads the edit that lies on disk first (as its own version), then applies
the sent members on top, changing only their spans in the file, swaps the file in one rename and records the
version, all inside one transaction. What a failed write did to the file is undone.

How a write and its record stay together is `writes`; the side of the disk is `reconcile`. It must not know
SQL or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from engine.model import Json, Policy
from engine.repository import preset_history
from engine.repository.archive import Change, Records, VersionRecord
from engine.repository.snapshot import Snapshot, Stored
from engine.repository.write import Job, Writes
from engine.worktree import paths

REMOVABLE: Final = frozenset(
    {"description", "presetId", "scope", "mode", "rateLimit", "approval", "failurePolicy", "examples"}
)
"""Members that an API change removes by sending null."""


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


@dataclass(frozen=True, slots=True)
class Offer:
    """What upgrading a policy to its preset would do. `etag` names this state of both."""

    stored: Stored
    preset: Preset
    upgrade: Upgrade

    @property
    def etag(self) -> str:
        return f"{self.stored.etag}-{self.preset.digest[:16]}"


class Repository(Writes):
    """One folder and one archive. Safe to use from several threads."""

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
                self._library.document(records, record)
                for record in records.files_at(revision).values()
                if record.kind == "policy" and record.organisation_id == organisation_id
            ]
            return revision, [document for document in documents if isinstance(document, Policy)]

        return self.archive.view(read)

    def preset_upgrade(self, organisation_id: str, policy_id: str) -> Offer:
        """What the preset of a policy, as it is now, would change. Raises PolicyNotFound, PresetNotFound."""

        def read(records: Records) -> Offer:
            head = self._library.at_head(records, self._snapshot)
            return _offer(records, head, _found(head, organisation_id, policy_id))

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

        def work(job: Job) -> list[Stored]:
            return [self._create(job, organisation_id, body) for body in bodies]

        job, stored = self._write(author, work)
        return WrittenMany(job.head, tuple(stored or ()), tuple(job.changes))

    def _create(self, job: Job, organisation_id: str, body: Mapping[str, Json]) -> Stored:
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
        return self._put(job, paths.path_for(organisation_id, policy_id), content, organisation_id, policy_id)

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

        def work(job: Job) -> Stored | None:
            stored = self._current(job, organisation_id, policy_id, if_match)
            if stored is None:
                return None
            return self._change(job, stored, changes)

        return _written(*self._write(author, work))

    def upgrade(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> Written:
        """Take over what `preset_upgrade` offers; `if_match` may name the offer or the policy.

        Raises PresetNotFound, DocumentError when the outcome would not be good, and what `update` does.
        """

        def work(job: Job) -> Stored | None:
            stored = self._current(job, organisation_id, policy_id, None)
            if stored is None:
                return None
            offer = _offer(job.records, job.head, stored)
            if if_match not in (None, "*", stored.etag, offer.etag):
                raise PreconditionFailed(
                    f"`{policy_id}` or its preset has changed since; look at the upgrade again and repeat it"
                )
            if offer.upgrade.problems:
                raise DocumentError(offer.upgrade.problems)
            return self._change(job, stored, offer.upgrade.sent)

        return _written(*self._write(author, work))

    def delete(
        self, organisation_id: str, policy_id: str, *, author: str, if_match: str | None = None
    ) -> Written:
        """Remove the policy and its file; its versions stay readable.

        Raises PolicyNotFound, PolicyFileInvalid, PreconditionFailed, StorageError.
        """

        def work(job: Job) -> None:
            stored = self._current(job, organisation_id, policy_id, if_match)
            if stored is None:
                return
            path = stored.file.path
            self.disk.remove(path, self._touch(job, path, None))
            self._record(job, {path: None})

        return _written(*self._write(author, work))

    def rollback(
        self, organisation_id: str, policy_id: str, version: int, *, author: str, if_match: str | None = None
    ) -> Written:
        """Write an old version's exact file again, as a new version; brings a deleted policy back.

        Raises DocumentError when the old state is not valid any more, VersionNotFound and what `update` does.
        """

        def work(job: Job) -> Stored | None:
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
            path = stored.file.path if stored else paths.path_for(organisation_id, policy_id)
            return self._put(job, path, content, organisation_id, policy_id)

        return _written(*self._write(author, work))

    # ---- inside the transaction ------------------------------------------------------------------------

    def _current(self, job: Job, organisation_id: str, policy_id: str, if_match: str | None) -> Stored | None:
        """The policy after the edit on disk was loaded. Raises PolicyNotFound, PreconditionFailed."""
        self._load_edit_on_disk(job, organisation_id, policy_id)
        stored = _found(job.head, organisation_id, policy_id)
        if if_match not in (None, "*", stored.etag):
            raise PreconditionFailed(
                f"`{policy_id}` is at version {stored.file.version} now; read it again and repeat your change"
            )
        return stored

    def _change(self, job: Job, stored: Stored, changes: Mapping[str, Json]) -> Stored:
        """The policy with these members set, null removing; nothing is written when it is so already."""
        organisation_id, policy_id = stored.policy.organisation_id, stored.policy.policy_id
        sent, removed = _normalised(stored, changes, organisation_id)
        if not sent and not removed:
            return stored
        source = job.records.blob(stored.file.digest)
        sent["version"] = job.records.last_version(organisation_id, policy_id) + 1
        content = edit(source, sent, removed)
        return self._put(job, stored.file.path, content, organisation_id, policy_id)

    def _free_id(self, job: Job, organisation_id: str, name: str) -> str:
        """An id that no policy has or had, so that the new one starts at version 1."""
        stem = slug(name)
        number = 1
        while True:
            policy_id = stem if number == 1 else f"{stem}-{number}"
            path = paths.path_for(organisation_id, policy_id)
            taken = job.records.last_version(organisation_id, policy_id) or policy_id in job.head.of(
                organisation_id
            )
            if not taken and self.disk.look(path) is None:
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


def _offer(records: Records, head: Snapshot, stored: Stored) -> Offer:
    return Offer(stored, *preset_history.offered(records, head, stored.policy))


def _written(job: Job, stored: Stored | None) -> Written:
    return Written(job.head, stored, tuple(job.changes))


def _found(snapshot: Snapshot, organisation_id: str, policy_id: str) -> Stored:
    stored = snapshot.of(organisation_id).get(policy_id)
    if stored is None:
        raise _not_found(policy_id)
    return stored


def _not_found(policy_id: str) -> PolicyNotFound:
    return PolicyNotFound(f"there is no policy `{policy_id}`")
