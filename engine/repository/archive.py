"""What the repository asks of the place where history is kept; the engine knows no database.

An archive holds exact bytes by digest, every version a policy ever had, the set of files in force at the
newest revision (the last good set), and a log of which path changed at which revision.

INVARIANT: `transact` is the only way to change anything, and one transaction runs at a time over all
threads, processes and nodes. Everything of one transaction is kept, or nothing. Either method raises
ArchiveUnavailable when it cannot be used now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from engine.model import Json
from engine.worktree.paths import Kind

T = TypeVar("T")

Source = Literal["api", "file"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file in force. `path` is relative to the policies folder; `version` is 0 for presets and packs."""

    path: str
    kind: Kind
    organisation_id: str
    document_id: str
    digest: str
    version: int
    revision: int
    created_at: str
    updated_at: str
    source: Source

    @property
    def etag(self) -> str:
        """Names exactly this state of the document."""
        return f"{self.version}-{self.digest[:16]}"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that changed: `after` is what is in force now, None when nothing is; one of the two is there.
    `state` is the policy (the contract's shape) that came or went.

    `new_version` says that a version is archived: false for presets, packs, and files that only moved.
    `moved` marks the old path of a file that moved: its policy lives on.
    """

    path: str
    before: FileRecord | None
    after: FileRecord | None
    source: Source
    author: str
    state: Json = None
    new_version: bool = False
    moved: bool = False

    @property
    def subject(self) -> FileRecord:
        """The record that says what kind of document this is about."""
        record = self.after or self.before
        assert record is not None
        return record


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a policy. `archived_at` and `archived_by` are None while it is the current one;
    `deleted` says that it ended by deletion."""

    organisation_id: str
    policy_id: str
    version: int
    revision: int
    path: str
    digest: str
    state: Json
    source: Source
    created_at: str
    created_by: str
    archived_at: str | None = None
    archived_by: str | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One version of a set of tools, or of settings, and its exact bytes."""

    version: int
    revision: int
    digest: str
    source: Source
    created_at: str
    created_by: str
    content: bytes


class Records(Protocol):
    """The archive from inside a transaction, or from inside a consistent view (then without `record`)."""

    @property
    def shared(self) -> bool:
        """Whether there may be other folders that follow this history."""

    def head(self) -> tuple[int, str]:
        """The newest revision and when it was recorded; `(0, "")` before the first."""

    def recorded_at(self, revision: int) -> str | None:
        """When that revision was recorded (empty for 0); None when it never was. Times are told apart by
        microseconds, so that revision and time name one commit for ever, also after a restored backup."""

    def files(self) -> dict[str, FileRecord]:
        """The last good set, by path."""

    def changed_since(self, revision: int) -> dict[str, FileRecord | None]:
        """The paths that changed after that revision, as they are now; None: gone."""

    def files_at(self, revision: int) -> dict[str, FileRecord]:
        """The files that were in force at a revision (`created_at` and `updated_at` are when it put them)."""

    def revision_at(self, moment: str) -> int:
        """The newest revision recorded at or before an ISO 8601 UTC time; 0 when there was none."""

    def history(self, path: str) -> list[tuple[int, str | None]]:
        """Every (revision, digest) of a path, oldest first; None: removed at that revision."""

    def source(self, path: str) -> Source | None:
        """Which writer changed or removed this path last; None: neither."""

    def preset_history(self, preset_id: str) -> list[tuple[int, str]]:
        """Every (revision, digest) that a preset had, oldest first, wherever its file was; no removals."""

    def last_version_of(self, kind: Kind, organisation_id: str, document_id: str) -> int:
        """The highest version number that this document, which is no policy, ever had; 0 when there is
        none."""

    def last_version(self, organisation_id: str, policy_id: str) -> int:
        """The highest version number that this policy ever had, deleted or not; 0 when there is none."""

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        """All versions, newest first."""

    def versions_of(self, kind: Kind, organisation_id: str, document_id: str) -> list[DocumentVersion]:
        """All versions of a document that is no policy, newest first."""

    def blob(self, digest: str) -> bytes:
        """Exact bytes. Raises KeyError."""

    def record(
        self, revision: int, at: str, changes: Sequence[FileChange], blobs: Mapping[str, bytes]
    ) -> None:
        """Keep the changes of one revision: bytes, versions, the last good set and the log of changes.

        The version before a new one, or before a removal, gets `archived_at` and `archived_by`.
        """


class Archive(Protocol):
    """Where history is kept."""

    def transact(self, work: Callable[[Records], T]) -> T:
        """Run `work` in the one writing transaction and commit; what it raises undoes the transaction.

        Returns only after the commit. Must not be called from inside `work`.
        """

    def view(self, work: Callable[[Records], T]) -> T:
        """Run `work` on a consistent view; never waits for a transaction that is open elsewhere."""
