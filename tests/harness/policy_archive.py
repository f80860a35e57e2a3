"""An archive in memory, with real transactions: what `work` does is kept at its end or not at all.

Several repositories may share one, as the nodes of one service share a database. `before_commit` and
`after_commit` are hooks for fault tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from engine.repository.archive import DocumentVersion, FileChange, FileRecord, Source, VersionRecord
from engine.worktree.paths import Kind

T = TypeVar("T")


@dataclass
class State:
    revisions: list[str] = field(default_factory=list)
    files: dict[str, FileRecord] = field(default_factory=dict)
    log: list[tuple[int, str, FileRecord | None]] = field(default_factory=list)
    versions: dict[tuple[str, str], list[VersionRecord]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    authors: dict[tuple[int, str], str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    shared: bool = True

    def copy(self) -> State:
        versions = {key: list(each) for key, each in self.versions.items()}
        rest = (dict(self.blobs), dict(self.authors), dict(self.sources))
        return State(list(self.revisions), dict(self.files), list(self.log), versions, *rest, self.shared)


class MemoryRecords:
    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def shared(self) -> bool:
        return self.state.shared

    def head(self) -> tuple[int, str]:
        return len(self.state.revisions), self.state.revisions[-1] if self.state.revisions else ""

    def recorded_at(self, revision: int) -> str | None:
        if revision == 0:
            return ""
        return self.state.revisions[revision - 1] if 0 < revision <= len(self.state.revisions) else None

    def files(self) -> dict[str, FileRecord]:
        return dict(self.state.files)

    def changed_since(self, revision: int) -> dict[str, FileRecord | None]:
        return {path: record for at, path, record in self.state.log if at > revision}

    def files_at(self, revision: int) -> dict[str, FileRecord]:
        found = {path: record for at, path, record in self.state.log if at <= revision}
        return {path: record for path, record in found.items() if record is not None}

    def revision_at(self, moment: str) -> int:
        return sum(at <= moment for at in self.state.revisions)

    def history(self, path: str) -> list[tuple[int, str | None]]:
        path.encode()  # a database keeps texts only
        return [(at, record and record.digest) for at, each, record in self.state.log if each == path]

    def source(self, path: str) -> Source | None:
        return self.state.sources.get(path)

    def preset_history(self, preset_id: str) -> list[tuple[int, str]]:
        return [
            (at, record.digest)
            for at, _, record in self.state.log
            if record is not None and (record.kind, record.document_id) == ("preset", preset_id)
        ]

    def last_version_of(self, kind: Kind, organisation_id: str, document_id: str) -> int:
        found = self.versions_of(kind, organisation_id, document_id)
        return found[0].version if found else 0

    def versions_of(self, kind: Kind, organisation_id: str, document_id: str) -> list[DocumentVersion]:
        found: dict[int, DocumentVersion] = {}
        for revision, path, record in self.state.log:
            if record is None or record.kind != kind or record.version in found:
                continue
            if (record.organisation_id, record.document_id) == (organisation_id, document_id):
                found[record.version] = DocumentVersion(
                    record.version,
                    revision,
                    record.digest,
                    record.source,
                    self.state.revisions[revision - 1],
                    self.state.authors[revision, path],
                    self.state.blobs[record.digest],
                )
        return [found[version] for version in sorted(found, reverse=True)]

    def last_version(self, organisation_id: str, policy_id: str) -> int:
        found = self.state.versions.get((organisation_id, policy_id))
        return found[-1].version if found else 0

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        return list(reversed(self.state.versions.get((organisation_id, policy_id), [])))

    def blob(self, digest: str) -> bytes:
        return self.state.blobs[digest]

    def record(
        self, revision: int, at: str, changes: Sequence[FileChange], blobs: Mapping[str, bytes]
    ) -> None:
        assert revision == len(self.state.revisions) + 1, "revisions have no gaps"
        assert changes, "a revision changes something"
        self.state.revisions.append(at)
        self.state.blobs |= blobs
        for change in changes:
            self._record(revision, at, change)

    def _record(self, revision: int, at: str, change: FileChange) -> None:
        self.state.log.append((revision, change.path, change.after))
        self.state.authors[revision, change.path] = change.author
        self.state.sources[change.path] = change.source
        subject = change.subject
        versions = self.state.versions.setdefault((subject.organisation_id, subject.document_id), [])
        if change.after is None:
            self.state.files.pop(change.path, None)
        else:
            self.state.files[change.path] = change.after
        ends = change.new_version or (change.after is None and not change.moved)
        if subject.kind == "policy" and ends and versions and versions[-1].archived_at is None:
            versions[-1] = replace(
                versions[-1], archived_at=at, archived_by=change.author, deleted=change.after is None
            )
        if change.new_version:
            assert change.after is not None
            assert change.after.version == (versions[-1].version if versions else 0) + 1, "a gap"
            versions.append(
                VersionRecord(
                    organisation_id=subject.organisation_id,
                    policy_id=subject.document_id,
                    version=change.after.version,
                    revision=revision,
                    path=change.path,
                    digest=change.after.digest,
                    state=change.state,
                    source=change.source,
                    created_at=at,
                    created_by=change.author,
                )
            )


class MemoryArchive:
    def __init__(self) -> None:
        self.state = State()
        self._writing = threading.Lock()
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    def transact(self, work: Callable[[MemoryRecords], T]) -> T:
        with self._writing:
            state = self.state.copy()
            result = work(MemoryRecords(state))
            self.before_commit()
            self.state = state
        self.after_commit()
        return result

    @property
    def busy(self) -> bool:
        """True while a transaction is open."""
        return self._writing.locked()

    def view(self, work: Callable[[MemoryRecords], T]) -> T:
        return work(MemoryRecords(self.state))
