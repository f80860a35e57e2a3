"""Writing one revision: version numbers, file records, what the archive is told.

Decides when a file makes a new version (new bytes do, a mere move does not) and that numbers go on after a
deletion. It reads no disk.

INVARIANT: version numbers of a policy, a set of tools, a detector or settings are gapless and increasing
over its whole life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.documents.policy import policy_as_json
from engine.model import Detector, OrganisationSettings, Policy, ToolSet
from engine.repository.archive import FileChange, FileRecord, Records, Source
from engine.repository.loader import Put
from engine.repository.snapshot import Document, Snapshot

Attribution = tuple[Source, str]
"""Through what a change came, and whose it is."""


def record(
    records: Records,
    head: Snapshot,
    edits: Mapping[str, Put | None],
    *,
    attribution: Callable[[str], Attribution],
    at: str,
) -> tuple[Snapshot, tuple[FileChange, ...]]:
    """Put the edits (None: removed) into the archive as one revision; returns the snapshot it makes."""
    revision = head.revision + 1
    gone = {
        (old.kind, old.organisation_id, old.document_id): old
        for path, each in edits.items()
        if each is None and (old := head.files.get(path)) is not None
    }
    changes: list[FileChange] = []
    moved: set[str] = set()
    documents: dict[str, tuple[FileRecord, Document] | None] = dict.fromkeys(edits)
    for path, put in edits.items():
        if put is None:
            continue
        place, document = put.loaded.place, put.loaded.document
        before = head.files.get(path) or gone.get((place.kind, place.organisation_id, place.document_id))
        if before is not None and before.path != path:
            moved.add(before.path)
        fresh = before is None or before.digest != put.digest
        version = before.version if before is not None else 0
        if isinstance(document, Policy):
            if fresh:
                version = records.last_version(place.organisation_id, place.document_id) + 1
            document = replace(document, version=version)
        elif isinstance(document, ToolSet | Detector | OrganisationSettings):
            if fresh:
                version = records.last_version_of(place.kind, place.organisation_id, place.document_id) + 1
            document = replace(document, version=version)
        after = FileRecord(
            path=path,
            kind=place.kind,
            organisation_id=place.organisation_id,
            document_id=place.document_id,
            digest=put.digest,
            version=version,
            revision=revision,
            created_at=before.created_at if before else at,
            updated_at=at if fresh or before is None else before.updated_at,
            source=attribution(path)[0],
        )
        documents[path] = (after, document)
        state = policy_as_json(document) if isinstance(document, Policy) else None
        new_version = fresh and state is not None
        changes.append(FileChange(path, before, after, *attribution(path), state, new_version))
    for path, put in edits.items():
        old = head.files.get(path)
        if put is None and old is not None:
            last = head.of(old.organisation_id).get(old.document_id) if old.kind == "policy" else None
            state = policy_as_json(last.policy) if last else None
            changes.append(FileChange(path, old, None, *attribution(path), state, moved=path in moved))
    blobs = {put.digest: put.content for put in edits.values() if put is not None}
    records.record(revision, at, changes, blobs)
    return head.changed(revision, at, documents), tuple(changes)
