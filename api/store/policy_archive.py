"""The archive of policies in the database: versions, exact bytes, the last good set, the log of revisions.

Implements `engine.repository.archive.Archive` on the service's one writing transaction, so that a change of
policies, its audit record and its webhook rows are kept together or not at all, and so that writers of all
threads, processes and nodes stand in one line. It decides nothing about files or versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from api.clock import Clock, Ids
from api.database.connection import Database, marks
from api.database.lanes.policy_mark import POLICY_MARK, policy_mark
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.store.notifications import channels
from engine.documents.yaml import read
from engine.repository.archive import DocumentVersion, FileChange, FileRecord, Source, VersionRecord
from engine.worktree.paths import Kind

T = TypeVar("T")

FILE_COLUMNS = (
    *("path", "kind", "organisation_id", "document_id", "digest", "version", "revision"),
    *("created_at", "updated_at", "source"),
)
CHANGE_COLUMNS = (
    *("revision", "path", "at", "kind", "organisation_id", "document_id", "digest", "version"),
    *("created_at", "updated_at", "source", "author"),
)
VERSION_COLUMNS = (
    *("organisation_id", "policy_id", "version", "revision", "path", "digest", "state", "source"),
    *("created_at", "created_by", "archived_at", "archived_by", "deleted"),
)
AT_ONCE = 500
"""Values in one statement; both databases take more."""


class SqlRecords:
    """`engine.repository.archive.Records` on the open transaction or view."""

    def __init__(self, store: Database, transaction: Transaction | None) -> None:
        self._store = store
        self._transaction = transaction

    # ---- reading ---------------------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        return not self._store.is_sqlite  # whose processes all have the one folder beside it

    def head(self) -> tuple[int, str]:
        rows = self._store.rows("SELECT revision, at FROM policy_changes ORDER BY revision DESC LIMIT 1")
        return (int(rows[0][0]), rows[0][1]) if rows else (0, "")

    def recorded_at(self, revision: int) -> str | None:
        if revision == 0:
            return ""
        rows = self._store.rows("SELECT at FROM policy_changes WHERE revision = ? LIMIT 1", (revision,))
        return rows[0][0] if rows else None

    def files(self) -> dict[str, FileRecord]:
        columns = ", ".join(FILE_COLUMNS)
        return {row[0]: FileRecord(*row) for row in self._store.rows(f"SELECT {columns} FROM policy_files")}

    def changed_since(self, revision: int) -> dict[str, FileRecord | None]:
        return self._folded("WHERE revision > ?", revision)

    def files_at(self, revision: int) -> dict[str, FileRecord]:
        found = self._folded("WHERE revision <= ?", revision)
        return {path: record for path, record in found.items() if record is not None}

    def _folded(self, where: str, revision: int) -> dict[str, FileRecord | None]:
        """The last entry of each path in a part of the log."""
        columns = ", ".join(FILE_COLUMNS)
        rows = self._store.rows(
            f"SELECT {columns} FROM policy_changes {where} ORDER BY revision", (revision,)
        )
        return {row[0]: FileRecord(*row) if row[4] is not None else None for row in rows}

    def revision_at(self, moment: str) -> int:
        rows = self._store.rows("SELECT MAX(revision) FROM policy_changes WHERE at <= ?", (moment,))
        return int(rows[0][0] or 0)

    def history(self, path: str) -> list[tuple[int, str | None]]:
        rows = self._store.rows(
            "SELECT revision, digest FROM policy_changes WHERE path = ? ORDER BY revision", (path,)
        )
        return [(int(revision), digest) for revision, digest in rows]

    def source(self, path: str) -> Source | None:
        newest = "SELECT source FROM policy_changes WHERE path = ? ORDER BY revision DESC LIMIT 1"
        rows = self._store.rows(newest, (path,))
        return rows[0][0] if rows else None

    def preset_history(self, preset_id: str) -> list[tuple[int, str]]:
        rows = self._store.rows(
            "SELECT revision, digest FROM policy_changes WHERE kind = ? AND document_id = ? "
            "AND digest IS NOT NULL ORDER BY revision",
            ("preset", preset_id),
        )
        return [(int(revision), digest) for revision, digest in rows]

    def last_version_of(self, kind: Kind, organisation_id: str, document_id: str) -> int:
        rows = self._store.rows(
            "SELECT MAX(version) FROM policy_changes WHERE kind = ? AND organisation_id = ? "
            "AND document_id = ?",
            (kind, organisation_id, document_id),
        )
        return int(rows[0][0] or 0)

    def last_version(self, organisation_id: str, policy_id: str) -> int:
        rows = self._store.rows(
            "SELECT MAX(version) FROM policy_versions WHERE organisation_id = ? AND policy_id = ?",
            (organisation_id, policy_id),
        )
        return int(rows[0][0] or 0)

    def versions(self, organisation_id: str, policy_id: str) -> list[VersionRecord]:
        columns = ", ".join(VERSION_COLUMNS)
        rows = self._store.rows(
            f"SELECT {columns} FROM policy_versions WHERE organisation_id = ? AND policy_id = ? "
            "ORDER BY version DESC",
            (organisation_id, policy_id),
        )
        return [_version(dict(zip(VERSION_COLUMNS, row, strict=True))) for row in rows]

    def versions_of(self, kind: Kind, organisation_id: str, document_id: str) -> list[DocumentVersion]:
        rows = self._store.rows(
            "SELECT version, MIN(revision) FROM policy_changes WHERE kind = ? AND organisation_id = ? "
            "AND document_id = ? AND digest IS NOT NULL GROUP BY version ORDER BY version DESC",
            (kind, organisation_id, document_id),
        )
        found: list[DocumentVersion] = []
        for version, revision in rows:
            (row,) = self._store.rows(
                "SELECT c.digest, c.source, c.at, c.author, b.content FROM policy_changes c "
                "JOIN blobs b ON b.digest = c.digest WHERE c.revision = ? AND c.kind = ? "
                "AND c.organisation_id = ? AND c.document_id = ? AND c.digest IS NOT NULL",
                (revision, kind, organisation_id, document_id),
            )
            digest, source, at, author, content = row
            found.append(
                DocumentVersion(int(version), int(revision), digest, source, at, author, bytes(content))
            )
        return found

    def blob(self, digest: str) -> bytes:
        rows = self._store.rows("SELECT content FROM blobs WHERE digest = ?", (digest,))
        if not rows:
            raise KeyError(digest)
        return bytes(rows[0][0])

    # ---- writing ---------------------------------------------------------------------------------------

    def record(
        self, revision: int, at: str, changes: Sequence[FileChange], blobs: Mapping[str, bytes]
    ) -> None:
        transaction = self._transaction
        if transaction is None:
            raise RuntimeError("a view cannot record")
        if transaction.bump("policies") != revision:
            raise RuntimeError(f"revision {revision} does not follow the newest one")
        transaction.put({POLICY_MARK: policy_mark(revision, at)})
        self._put_blobs(blobs)
        self._end_versions(at, changes)
        self._put_versions(revision, at, changes)
        self._put_files(changes)
        self._put_log(revision, at, changes)
        for change in changes:
            if change.subject.kind == "policy" and not change.moved:
                _tell(transaction, revision, change)
            elif change.subject.kind in _AUDITED and not change.moved:
                _tell_document(transaction, revision, change)
            if change.subject.kind == "settings" and not change.moved:
                self._sync_channels(transaction, change)

    def _sync_channels(self, transaction: Transaction, change: FileChange) -> None:
        """Who is told of what goes by the settings that this very transaction records."""
        after = change.after
        content = {} if after is None else read(self.blob(after.digest)).root.value["settings"]
        channels.sync(
            transaction, change.subject.organisation_id, content.get("notifications", {}), change.author
        )

    def _put_blobs(self, blobs: Mapping[str, bytes]) -> None:
        known: set[str] = set()
        for part in _parts(sorted(blobs)):
            rows = self._store.rows(f"SELECT digest FROM blobs WHERE digest IN ({marks(part)})", part)
            known.update(row[0] for row in rows)
        fresh = [(digest, content) for digest, content in blobs.items() if digest not in known]
        self._store.insert_many("blobs", ("digest", "content"), fresh)

    def _end_versions(self, at: str, changes: Sequence[FileChange]) -> None:
        for change in changes:
            before = change.before
            if before is None or before.kind != "policy" or change.moved:
                continue
            if change.new_version or change.after is None:
                self._store.rows_changed(
                    "UPDATE policy_versions SET archived_at = ?, archived_by = ?, deleted = ? "
                    "WHERE organisation_id = ? AND policy_id = ? AND version = ?",
                    (
                        *(at, change.author, change.after is None),
                        *(before.organisation_id, before.document_id, before.version),
                    ),
                )

    def _put_versions(self, revision: int, at: str, changes: Sequence[FileChange]) -> None:
        rows: list[tuple[Any, ...]] = []
        for change in changes:
            after = change.after
            if change.new_version and after is not None:
                state = _text(change.state)
                rows.append(
                    (
                        *(after.organisation_id, after.document_id, after.version, revision, change.path),
                        *(after.digest, state, change.source, at, change.author, None, None, False),
                    )
                )
        self._store.insert_many("policy_versions", VERSION_COLUMNS, rows)

    def _put_files(self, changes: Sequence[FileChange]) -> None:
        for part in _parts([change.path for change in changes]):
            self._store.rows_changed(f"DELETE FROM policy_files WHERE path IN ({marks(part)})", part)
        rows = [
            tuple(getattr(change.after, name) for name in FILE_COLUMNS) for change in changes if change.after
        ]
        self._store.insert_many("policy_files", FILE_COLUMNS, rows)

    def _put_log(self, revision: int, at: str, changes: Sequence[FileChange]) -> None:
        rows: list[tuple[Any, ...]] = []
        for change in changes:
            subject = change.subject
            digest = change.after.digest if change.after else None
            rows.append(
                (
                    *(revision, change.path, at, subject.kind, subject.organisation_id, subject.document_id),
                    *(digest, subject.version, subject.created_at, subject.updated_at),
                    *(change.source, change.author),
                )
            )
        self._store.insert_many("policy_changes", CHANGE_COLUMNS, rows)


class SqlArchive:
    """`engine.repository.archive.Archive`. With a writer, transactions share its group commits; without one
    (command line), each is its own."""

    def __init__(self, store: Database, clock: Clock, ids: Ids, writer: Writer | None = None) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._writer = writer

    def transact(self, work: Callable[[SqlRecords], T]) -> T:
        def job(transaction: Transaction) -> T:
            return work(SqlRecords(self._store, transaction))

        if self._writer is not None:
            return self._writer.write_here(job)
        with self._store.transaction():
            transaction = Transaction(self._store, self._clock(), self._ids, None)
            result = job(transaction)
            transaction.flush()
        transaction.committed()
        return result

    def view(self, work: Callable[[SqlRecords], T]) -> T:
        return self._store.read_here(self._view, work)

    def _view(self, work: Callable[[SqlRecords], T]) -> T:
        database = self._store.peewee
        if database.in_transaction():
            return work(SqlRecords(self._store, None))
        with database.atomic():
            if not self._store.is_sqlite:
                database.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return work(SqlRecords(self._store, None))


def _text(state: Any) -> str:
    """How a state is kept; its record has the sha256 of that."""
    return json.dumps(state, separators=(",", ":"))


def _version(row: dict[str, Any]) -> VersionRecord:
    return VersionRecord(**row | {"state": json.loads(row["state"]), "deleted": bool(row["deleted"])})


def _tell(transaction: Transaction, revision: int, change: FileChange) -> None:
    """One audit record, one webhook event and one hint for those who watch, in the same transaction."""
    subject = change.subject
    if change.after is None:
        what = "deleted"
    elif change.new_version:
        what = "created" if change.before is None else "updated"
    else:
        return
    name = change.state["name"] if change.state else subject.document_id
    shown = {"state": sha256(_text(change.state).encode()).hexdigest()} if change.new_version else {}
    data = {
        "policyId": subject.document_id,
        "name": name,
        "change": what,
        "version": subject.version,
        "policyRevision": revision,
        "source": change.source,
        "actor": change.author,
    }
    details = {key: data[key] for key in ("policyId", "name", "change", "version", "source")}
    organisation_id = subject.organisation_id
    transaction.audit(
        organisation_id,
        "policy.changed",
        actor=change.author,
        policyRevision=revision,
        details=details | {"digest": subject.digest} | shown,
    )
    transaction.notify(organisation_id, "policy.changed", data)
    transaction.publish(organisation_id, "policy", subject.document_id, **details)


_AUDITED = {
    "toolSet": ("tools.changed", "toolSetId"),
    "detector": ("detector.changed", "detectorId"),
    "settings": ("settings.changed", "organisationId"),
}
"""What the audit log says of documents that are no policies, and how it names them."""


def _tell_document(transaction: Transaction, revision: int, change: FileChange) -> None:
    """One audit record."""
    subject, before = change.subject, change.before
    what = "deleted" if change.after is None else "created" if before is None else "updated"
    event, name = _AUDITED[subject.kind]
    details = {name: subject.document_id, "change": what, "version": subject.version}
    transaction.audit(
        subject.organisation_id,
        event,
        actor=change.author,
        policyRevision=revision,
        details=details | {"source": change.source, "digest": subject.digest},
    )


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), AT_ONCE):
        yield values[start : start + AT_ONCE]
