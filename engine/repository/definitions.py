"""Writes and versions of what is no policy and decides calls too: tool sets, and settings of organisations.

Decides which bytes an API write puts into which file, as `repository` does for policies; the sequence of a
write is the same. It must not know SQL or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.conditions.settings import NO_SETTINGS
from engine.documents.edit import dump, edit, refuse_surrogates
from engine.documents.policy import API_VERSION
from engine.documents.settings import check_settings, settings_document
from engine.errors import PreconditionFailed, ToolSetExists, ToolSetNotFound
from engine.model import Json, OrganisationSettings, ToolSet
from engine.repository.archive import DocumentVersion, FileRecord
from engine.repository.plan import Plan
from engine.repository.repository import Repository
from engine.repository.snapshot import Snapshot
from engine.repository.sync import WriteResult
from engine.worktree import paths
from engine.worktree.paths import Kind


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The settings of an organisation, and their file; None while they have none."""

    settings: OrganisationSettings
    file: FileRecord | None

    @property
    def etag(self) -> str:
        return etag(self.file)


@dataclass(frozen=True, slots=True)
class StoredTools:
    """A set of tools in force and its file."""

    tool_set: ToolSet
    file: FileRecord

    @property
    def etag(self) -> str:
        return etag(self.file)


def etag(file: FileRecord | None) -> str:
    """Names exactly this state of a document; `0` is that there is none."""
    return "0" if file is None else f"{file.version}-{file.digest[:16]}"


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


def stored_tools(snapshot: Snapshot, organisation_id: str, tool_set_id: str) -> StoredTools:
    """A set of tools of the organisation's own; `default` has those that count everywhere. Raises
    ToolSetNotFound."""
    path = snapshot.path_of("toolSet", organisation_id, tool_set_id)
    if path is None:
        raise ToolSetNotFound(f"there is no set of tools `{tool_set_id}` of this organisation's own")
    return StoredTools(snapshot.tool_sets[path], snapshot.files[path])


def create_tools(
    repository: Repository,
    organisation_id: str,
    tool_set_id: str,
    members: Mapping[str, Json],
    *,
    author: str,
) -> WriteResult[StoredTools]:
    """A new set of tools. Raises DocumentError, ToolSetExists."""
    refuse_surrogates(dict(members))

    def operation(plan: Plan) -> StoredTools:
        path, file = tools_file(repository, plan, organisation_id, tool_set_id)
        if file is not None:
            raise ToolSetExists(
                f"there is a set of tools `{tool_set_id}` already; choose another `toolSetId`"
            )
        version = plan.records.last_version_of("toolSet", organisation_id, tool_set_id) + 1
        head = {"apiVersion": API_VERSION, "kind": "ToolSet", "toolSetId": tool_set_id, "version": version}
        repository.sync.put(plan, {path: dump(head | dict(members)).encode()})
        return stored_tools(plan.head, organisation_id, tool_set_id)

    return repository.write(author, operation)


def change_tools(
    repository: Repository,
    organisation_id: str,
    tool_set_id: str,
    changes: Mapping[str, Json],
    *,
    author: str,
    if_match: str | None = None,
) -> WriteResult[StoredTools]:
    """Change the sent members only; null removes an optional one. Raises ToolSetNotFound, DocumentError,
    PreconditionFailed."""
    refuse_surrogates(dict(changes))

    def operation(plan: Plan) -> StoredTools:
        path, _ = tools_file(repository, plan, organisation_id, tool_set_id)
        current = stored_tools(plan.head, organisation_id, tool_set_id)
        _match(if_match, current.file, f"`{tool_set_id}`")
        sent = {key: value for key, value in changes.items() if value is not None}
        before = plan.records.blob(current.file.digest)
        content = edit(before, sent, [key for key, value in changes.items() if value is None])
        if content == before:
            return current
        version = plan.records.last_version_of("toolSet", organisation_id, tool_set_id) + 1
        repository.sync.put(plan, {path: edit(content, {"version": version})})
        return stored_tools(plan.head, organisation_id, tool_set_id)

    return repository.write(author, operation)


def delete_tools(
    repository: Repository,
    organisation_id: str,
    tool_set_id: str,
    *,
    author: str,
    if_match: str | None = None,
) -> WriteResult[None]:
    """Remove a set of tools; its versions stay readable. Raises ToolSetNotFound, PreconditionFailed, and
    DocumentError where examples of policies do not hold without it."""

    def operation(plan: Plan) -> None:
        path, file = tools_file(repository, plan, organisation_id, tool_set_id)
        stored_tools(plan.head, organisation_id, tool_set_id)
        _match(if_match, file, f"`{tool_set_id}`")
        repository.sync.remove(plan, path)

    return repository.write(author, operation)


def tools_file(
    repository: Repository, plan: Plan, organisation_id: str, tool_set_id: str
) -> tuple[str, FileRecord | None]:
    """The file of a set of tools, after the edit on disk was loaded."""
    path = plan.head.path_of("toolSet", organisation_id, tool_set_id)
    path = path or paths.path_of_tools(organisation_id, tool_set_id)
    repository.sync.load_edit(plan, path)
    return path, plan.head.files.get(path)


def versions_of(
    repository: Repository, kind: Kind, organisation_id: str, document_id: str
) -> list[DocumentVersion]:
    """All versions, newest first, also of a document that is gone; none of one that never was."""
    return repository.archive.view(lambda records: records.versions_of(kind, organisation_id, document_id))


def _match(if_match: str | None, file: FileRecord | None, what: str) -> None:
    if if_match not in (None, "*", etag(file)):
        at = "not there" if file is None else f"at version {file.version}"
        raise PreconditionFailed(f"{what}: {at} now; read again and repeat your change")
