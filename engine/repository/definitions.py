"""Writes and versions of what is no policy: tool sets, detectors, and settings of organisations.

Decides which bytes an API write puts into which file, as `repository` does for policies; the sequence of a
write is the same. It must not know SQL or HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from engine.conditions.settings import NO_SETTINGS
from engine.documents.document import API_VERSION
from engine.documents.edit import dump, edit, refuse_surrogates
from engine.documents.settings import check_settings, settings_document
from engine.errors import (
    DetectorExists,
    DetectorNotFound,
    PreconditionFailed,
    RepositoryError,
    ToolSetExists,
    ToolSetNotFound,
)
from engine.model import Detector, Json, OrganisationSettings, ToolSet
from engine.repository.archive import DocumentVersion, FileRecord
from engine.repository.plan import Plan
from engine.repository.repository import Repository
from engine.repository.snapshot import Snapshot
from engine.repository.sync import WriteResult
from engine.worktree import paths
from engine.worktree.paths import Kind

D = TypeVar("D", ToolSet, Detector)


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The settings of an organisation, and their file; None while they have none."""

    settings: OrganisationSettings
    file: FileRecord | None

    @property
    def etag(self) -> str:
        """`0` is that they have none."""
        return "0" if self.file is None else self.file.etag


@dataclass(frozen=True, slots=True)
class Defined(Generic[D]):
    """A set of tools or a detector in force, and its file."""

    document: D
    file: FileRecord


def stored_settings(snapshot: Snapshot, organisation_id: str) -> StoredSettings:
    """What an organisation has set."""
    path = snapshot.path_of("settings", organisation_id, organisation_id)
    file = None if path is None else snapshot.files[path]
    return StoredSettings(snapshot.settings.get(organisation_id, NO_SETTINGS), file)


def put_settings(
    repository: Repository,
    organisation_id: str,
    values: Mapping[str, Json],
    *,
    author: str,
    if_match: str | None = None,
) -> WriteResult[StoredSettings]:
    """Replace all settings of an organisation, in one revision with all that reads them.

    Raises DocumentError, PreconditionFailed, and what every write does.
    """
    refuse_surrogates(dict(values))
    check_settings(values)
    path = paths.path_of_settings(organisation_id)

    def operation(plan: Plan) -> StoredSettings:
        repository.sync.load_edit(plan, path)
        current = stored_settings(plan.head, organisation_id)
        _match(if_match, current.file, "the settings")
        version = plan.records.last_version_of("settings", organisation_id, organisation_id) + 1
        if current.file is None:
            content = dump(settings_document(organisation_id, version, values)).encode()
        elif current.settings.values == values:
            return current
        else:
            content = edit(
                plan.records.blob(current.file.digest), {"settings": dict(values), "version": version}
            )
        repository.sync.put(plan, {path: content})
        return stored_settings(plan.head, organisation_id)

    return repository.write(author, operation)


@dataclass(frozen=True, slots=True)
class Definitions(Generic[D]):
    """All documents of one kind that everybody may have, and each organisation for itself.

    What `default` has counts everywhere. Where `inherits`, an organisation changes what is everybody's by a
    document of its own with the same id, which takes its place.
    """

    kind: Kind
    head: str
    """`kind` in the document."""
    id_key: str
    what: str
    found: Callable[[Snapshot], Mapping[str, D]]
    exists: type[RepositoryError]
    missing: type[RepositoryError]
    inherits: bool = False

    def stored(self, snapshot: Snapshot, organisation_id: str, document_id: str) -> Defined[D]:
        """A document of the organisation's own. Raises `missing`."""
        path = snapshot.path_of(self.kind, organisation_id, document_id)
        if path is None:
            raise self.missing(f"there is no {self.what} `{document_id}` of this organisation's own")
        return Defined(self.found(snapshot)[path], snapshot.files[path])

    def create(
        self,
        repository: Repository,
        organisation_id: str,
        document_id: str,
        members: Mapping[str, Json],
        *,
        author: str,
    ) -> WriteResult[Defined[D]]:
        """A new document. Raises DocumentError, `exists`."""
        refuse_surrogates(dict(members))

        def operation(plan: Plan) -> Defined[D]:
            path, file = self.file(repository, plan, organisation_id, document_id)
            if file is not None:
                raise self.exists(
                    f"there is a {self.what} `{document_id}` already; choose another `{self.id_key}`"
                )
            head = {
                "apiVersion": API_VERSION,
                "kind": self.head,
                self.id_key: document_id,
                "version": self._next(plan, organisation_id, document_id),
            }
            repository.sync.put(plan, {path: dump(head | dict(members)).encode()})
            return self.stored(plan.head, organisation_id, document_id)

        return repository.write(author, operation)

    def change(
        self,
        repository: Repository,
        organisation_id: str,
        document_id: str,
        changes: Mapping[str, Json],
        *,
        author: str,
        if_match: str | None = None,
    ) -> WriteResult[Defined[D]]:
        """Change the sent members only; null removes an optional one. Raises `missing`, DocumentError,
        PreconditionFailed."""
        refuse_surrogates(dict(changes))

        def operation(plan: Plan) -> Defined[D]:
            path, file = self.file(repository, plan, organisation_id, document_id)
            source = file or self._everybodys(plan, document_id)
            if source is None:
                return self.stored(plan.head, organisation_id, document_id)
            _match(if_match, source, f"`{document_id}`")
            sent = {key: value for key, value in changes.items() if value is not None}
            before = plan.records.blob(source.digest)
            content = edit(before, sent, [key for key, value in changes.items() if value is None])
            if content == before:
                return Defined(self.found(plan.head)[source.path], source)
            version = self._next(plan, organisation_id, document_id)
            repository.sync.put(plan, {path: edit(content, {"version": version})})
            return self.stored(plan.head, organisation_id, document_id)

        return repository.write(author, operation)

    def delete(
        self,
        repository: Repository,
        organisation_id: str,
        document_id: str,
        *,
        author: str,
        if_match: str | None = None,
    ) -> WriteResult[None]:
        """Remove a document; its versions stay readable. Raises `missing`, PreconditionFailed, and
        DocumentError where examples of policies do not hold without it."""

        def operation(plan: Plan) -> None:
            path, file = self.file(repository, plan, organisation_id, document_id)
            self.stored(plan.head, organisation_id, document_id)
            _match(if_match, file, f"`{document_id}`")
            repository.sync.remove(plan, path)

        return repository.write(author, operation)

    def file(
        self, repository: Repository, plan: Plan, organisation_id: str, document_id: str
    ) -> tuple[str, FileRecord | None]:
        """The file of a document, after the edit on disk was loaded."""
        path = plan.head.path_of(self.kind, organisation_id, document_id)
        path = path or paths.path_of(self.kind, organisation_id, document_id)
        repository.sync.load_edit(plan, path)
        return path, plan.head.files.get(path)

    def _everybodys(self, plan: Plan, document_id: str) -> FileRecord | None:
        path = plan.head.path_of(self.kind, paths.DEFAULT, document_id) if self.inherits else None
        return None if path is None else plan.head.files[path]

    def _next(self, plan: Plan, organisation_id: str, document_id: str) -> int:
        return plan.records.last_version_of(self.kind, organisation_id, document_id) + 1


TOOLS: Final[Definitions[ToolSet]] = Definitions(
    kind="toolSet",
    head="ToolSet",
    id_key="toolSetId",
    what="set of tools",
    found=lambda snapshot: snapshot.tool_sets,
    exists=ToolSetExists,
    missing=ToolSetNotFound,
)
DETECTORS: Final[Definitions[Detector]] = Definitions(
    kind="detector",
    head="Detector",
    id_key="detectorId",
    what="detector",
    found=lambda snapshot: snapshot.detectors,
    exists=DetectorExists,
    missing=DetectorNotFound,
    inherits=True,
)


def versions_of(
    repository: Repository, kind: Kind, organisation_id: str, document_id: str
) -> list[DocumentVersion]:
    """All versions, newest first, also of a document that is gone; none of one that never was."""
    return repository.archive.view(lambda records: records.versions_of(kind, organisation_id, document_id))


def _match(if_match: str | None, file: FileRecord | None, what: str) -> None:
    etag, at = ("0", "not there") if file is None else (file.etag, f"at version {file.version}")
    if if_match not in (None, "*", etag):
        raise PreconditionFailed(f"{what}: {at} now; read again and repeat your change")
