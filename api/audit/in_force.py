"""Which policies are in force and were before, as the log says it and as the tables do; likewise tool sets,
detectors and settings.

The tables decide: nodes take over what `policy_files` and `policy_changes` say. So whoever moves a policy
there to another version, or puts one there, has changed what is decided without changing a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from api.audit.calls_and_events import body_digest
from api.database.connection import Database
from engine.canonical_json import canonical_json
from engine.errors import DocumentError
from engine.worktree.paths import DEFAULT, place_of

Name = tuple[str, str]
POLICY: Final = "policy"
VERSION: Final = "policy version"
ORIGIN: Final = "origin of policy version"
ENDING: Final = "ending of policy version"
SHOWN: Final = "shown state of policy version"
IN_FORCE: Final = "document in force"
REVISIONS: Final = "revisions of document"
CARRIED_SINCE: Final = frozenset((ORIGIN, ENDING, IN_FORCE, REVISIONS))
"""Of these, certificates of before say nothing."""

DOCUMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "policy.changed": (POLICY, "policyId"),
    "tools.changed": ("toolSet", "toolSetId"),
    "detector.changed": ("detector", "detectorId"),
    "settings.changed": ("settings", "organisationId"),
}
"""Type of a record -> kind of the document, and the member that names it."""

_VERSIONS: Final = (
    "SELECT policy_id, version, digest, revision, created_by, source, archived_by, deleted, state"
    " FROM policy_versions WHERE organisation_id = ?"
)
_OWN: Final = "(path LIKE ? OR path = ?)"
_OF_ALL: Final = "(path NOT LIKE ? OR path = ?)"
"""Of the default organisation is what lies in nobody's folder."""
_FILES: Final = "SELECT path, kind, organisation_id, document_id, version, digest FROM policy_files WHERE "
_CHANGES: Final = (
    "SELECT path, kind, organisation_id, document_id, version, digest, revision, author, source"
    " FROM policy_changes WHERE "
)
_BLOBS: Final = (
    "SELECT DISTINCT c.digest, b.content FROM policy_changes c LEFT JOIN blobs b ON b.digest = c.digest"
    " WHERE c.digest IS NOT NULL AND "
)
_KINDS: Final = frozenset(kind for kind, _ in DOCUMENTS.values())


def of_tables(store: Database, organisation_id: str) -> dict[Name, tuple[Any, ...]]:
    """Of each version what it is, whose, and how it ended; of each document which version is in force, and
    how it came to that, revision by revision."""
    found: dict[Name, tuple[Any, ...]] = {}
    versions = store.rows(_VERSIONS, (organisation_id,))
    for policy_id, version, digest, revision, author, source, ended_by, deleted, state in versions:
        name = f"{policy_id} {version}"
        found[VERSION, name] = (digest,)
        found[ORIGIN, name] = (revision, author, source)
        found[ENDING, name] = (ended_by, bool(deleted))
        found[SHOWN, name] = (body_digest(state),)
    for row in store.rows(*_of(_FILES, organisation_id)):
        if (read := _read(row, organisation_id)) is not None:
            document, said = read
            found[IN_FORCE, document] = said
    for document, revisions in _revisions(store, organisation_id).items():
        for revision, (now, *by) in revisions.items():
            found[REVISIONS, document] = _after(found.get((REVISIONS, document)), now, revision, *by)
    return found


def blobs(store: Database, organisation_id: str) -> list[tuple[Any, ...]]:
    """Digest and content of all that was ever in force; no content: it is gone."""
    return store.rows(*_of(_BLOBS, organisation_id))


def _of(statement: str, organisation_id: str) -> tuple[str, tuple[str, str]]:
    """INVARIANT: by the path, as whoever loads a file goes: what a row says beside it could be anything."""
    if organisation_id == DEFAULT:
        return statement + _OF_ALL, ("organisations/%", "")
    return statement + _OWN, (f"organisations/{organisation_id}/%", f"settings/{organisation_id}.yaml")


def _read(row: tuple[Any, ...], organisation_id: str) -> tuple[str, tuple[Any, ...]] | None:
    """The name of the document of a row, and of it version and digest, and what the row says wrongly of its
    path; None: it is another organisation's, or no record is about it."""
    path, *identity, version, digest = row[:6]
    try:
        place = place_of(str(path))
    except DocumentError:
        return str(path), (version, digest)
    if place.organisation_id != organisation_id or place.kind not in _KINDS:
        return None
    right = [place.kind, place.organisation_id, place.document_id]
    said = (version, digest) if identity == right else (version, digest, *identity)
    return f"{place.kind} {place.document_id}", said


def _revisions(store: Database, organisation_id: str) -> dict[str, dict[int, list[Any]]]:
    """Document -> revision -> what it was from then on (None: it went away), by whom and through what."""
    statement, own = _of(_CHANGES, organisation_id)
    found: dict[str, dict[int, list[Any]]] = {}
    for row in store.rows(f"{statement} ORDER BY revision", own):
        if (read := _read(row, organisation_id)) is not None:
            name, said = read
            of_one = found.setdefault(name, {})
            # Of a file that moved two rows tell: it went, and it came.
            if said[1:] != (None,):
                of_one[row[6]] = [said, *row[7:]]
            else:
                of_one.setdefault(row[6], [None, *row[7:]])
    return found


def of_record(
    record: Mapping[str, Any], state: Mapping[Name, tuple[Any, ...]]
) -> Iterator[tuple[Name, tuple[Any, ...] | None]]:
    """What a record that a document changed says of things; None: there is no such thing any more. `state` is
    what was said of all things before."""
    details, revision = record["details"], record.get("policyRevision", 0)
    kind, member = DOCUMENTS[record["type"]]
    document_id, version = details[member], details["version"]
    now = None if details["change"] == "deleted" else (version, details["digest"])
    if kind == POLICY:
        yield from _of_version(record, f"{document_id} {version}", f"{document_id} {version - 1}", state)
    name = f"{kind} {document_id}"
    yield (IN_FORCE, name), now
    by, known = (record.get("actor"), details["source"]), state.get((REVISIONS, name))
    if known is None and (version, details["change"]) != (1, "created"):
        known = (None, None)  # how it came to this was told by records that are gone, and not carried
    yield (REVISIONS, name), _after(known, now, revision, *by)


def is_told_version(document: str, found: tuple[Any, ...], state: Mapping[Name, tuple[Any, ...]]) -> bool:
    """Whether it is some version that records told of; of others than policies nobody knows."""
    kind, _, document_id = document.partition(" ")
    return kind != POLICY or state.get((VERSION, f"{document_id} {found[0]}")) == tuple(found[1:])


def agrees(name: Name, found: tuple[Any, ...] | None, said: tuple[Any, ...] | None) -> bool:
    """Whether a thing is what was said of it; of revisions of which not all were heard, the last counts."""
    if name[0] == REVISIONS and found is not None and said is not None and said[0] is None:
        return found[1:] == said[1:]
    return found == said


def _of_version(
    record: Mapping[str, Any], name: str, before: str, state: Mapping[Name, tuple[Any, ...]]
) -> Iterator[tuple[Name, tuple[Any, ...] | None]]:
    details, author = record["details"], record.get("actor")
    if details["change"] == "deleted":
        yield (ENDING, name), (author, True)
        return
    yield (VERSION, name), (details["digest"],)
    yield (ORIGIN, name), (record.get("policyRevision"), author, details["source"])
    yield (ENDING, name), (None, False)
    if "state" in details:
        yield (SHOWN, name), (details["state"],)
    if state.get((ENDING, before)) == (None, False):
        yield (ENDING, before), (author, False)


def _after(known: tuple[Any, ...] | None, now: tuple[Any, ...] | None, *how: Any) -> tuple[Any, ...]:
    """What a document came to by a revision: the sha256 of all revisions so far (None: not all are known),
    and what it is. That its file moved is no change."""
    before, *was = known or ("", None)
    if known is not None and was == [now]:
        return known
    if before is None:
        return None, now
    return sha256(canonical_json([before, now, *how])).hexdigest(), now
