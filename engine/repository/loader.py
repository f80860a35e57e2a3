"""From bytes to documents: one file's document, and the snapshot at the archive's head, each loaded once.

It trusts what was checked before (the cache) and else the archive's exact bytes. It reads no disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.conditions.settings import NO_SETTINGS
from engine.documents.detectors import load_detector
from engine.documents.policy import load_policy
from engine.documents.presets import load_pack, load_preset
from engine.documents.settings import load_settings
from engine.documents.tool_sets import load_versioned
from engine.errors import DocumentError, NewerDocuments, Problem, RefusedToStart
from engine.model import Detector, OrganisationSettings, Policy, ToolSet
from engine.repository.archive import FileRecord, Records
from engine.repository.cache import DocumentCache
from engine.repository.snapshot import Document, Snapshot, ordered
from engine.worktree.disk import EVERY, shown
from engine.worktree.markers import Marker
from engine.worktree.observer import FileState, Progress
from engine.worktree.paths import Kind, Place, place_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document that was read, and where it stands."""

    place: Place
    document: Document
    declared_version: int | None = None

    @property
    def kind(self) -> Kind:
        return self.place.kind


@dataclass(frozen=True, slots=True)
class Put:
    """A document that a file now says, and its exact bytes."""

    loaded: Loaded
    digest: str
    content: bytes


class Past(NamedTuple):
    """What was in force in one organisation at a revision."""

    revision: int
    policies: list[Policy]
    tool_sets: tuple[ToolSet, ...]
    settings: OrganisationSettings


def load(path: str, content: bytes) -> Loaded:
    """Raises DocumentError with every problem of the file by itself. Examples of policies that need to know
    the tools are for `consistency`."""
    place = place_of(path)
    file = shown(path)
    if place.kind == "preset":
        preset = load_preset(content, file)
        folder = path.split("/")[1]
        if preset.category != folder:
            message = (
                f"`category` is `{preset.category}`, but the folder is `{shown(folder)}`; make them the same"
            )
            raise DocumentError([Problem(message, "/category", "wrong_folder", file)])
        return Loaded(place, preset)
    if place.kind == "pack":
        return Loaded(place, load_pack(content, file))
    if place.kind == "toolSet":
        return Loaded(place, *load_versioned(content, file, place.organisation_id))
    if place.kind == "detector":
        return Loaded(place, *load_detector(content, file, place.organisation_id))
    if place.kind == "settings":
        return Loaded(place, *load_settings(content, file))
    document = load_policy(content, file, organisation_id=place.organisation_id)
    return Loaded(place, document.policy, document.declared_version)


def knows(records: Records, mine: Snapshot | Marker) -> bool:
    """Whether that is of this archive's past; not that of a commit that it lost."""
    return records.recorded_at(mine.revision) == mine.recorded_at


_DOES_NOT_LOAD = (
    "the last good set was made by another version of the service and does not load in this one; mend these "
    "files in the policies folder, or put them there again, and start once more (what is not wanted any more "
    "can be removed after that)"
)


class DocumentLoader:
    """Makes snapshots of what an archive holds."""

    def __init__(self, cache: DocumentCache) -> None:
        self._cache = cache
        self._outdated: dict[str, tuple[str, tuple[Problem, ...]]] = {}

    def restored(
        self,
        records: Records,
        disk: Mapping[str, FileState],
        progress: Progress | None = None,
    ) -> Snapshot:
        """The last good set, from the cache, from equal bytes on disk, or from the archive's own bytes. A
        document that only an earlier version took is what its file says by now, see `refuse_left`."""
        contents = {state.digest: state.content for state in disk.values() if state.content}
        changes: dict[str, tuple[FileRecord, Document] | None] = {}
        problems: list[Problem] = []
        files = records.files()
        for number, (path, record) in enumerate(files.items(), 1):
            if progress is not None and number % EVERY == 0:
                progress("restoring", number, len(files))
            try:
                changes[path] = (record, self.document(records, record, contents.get(record.digest)))
            except DocumentError as error:
                try:
                    changes[path] = (record, self._mended(path, record, disk))
                except DocumentError as still:
                    problems += still.problems or error.problems
                else:
                    self._outdated[path] = (record.digest, error.problems)
        if problems:
            raise RefusedToStart(_DOES_NOT_LOAD, problems)
        revision, at = records.head()
        return Snapshot().changed(revision, at, changes)

    @staticmethod
    def _mended(path: str, record: FileRecord, disk: Mapping[str, FileState]) -> Document:
        """Raises DocumentError, without a problem where the file says the same as ever or is gone."""
        state = disk.get(path)
        if state is None or state.content is None or state.digest == record.digest:
            raise DocumentError(())
        return load(path, state.content).document

    def is_outdated(self, record: FileRecord) -> bool:
        """Whether only an earlier version took it, and the file says something else by now."""
        return self._outdated.get(record.path, ("",))[0] == record.digest

    def refuse_left(self, snapshot: Snapshot, problems: Sequence[Problem]) -> None:
        """Raises RefusedToStart where a mended file is no edit that counts: what it says decides nothing
        before it is on record."""
        left = [
            each
            for path, (digest, of) in self._outdated.items()
            if path in snapshot.files and snapshot.files[path].digest == digest
            for each in of
        ]
        if left:
            raise RefusedToStart(_DOES_NOT_LOAD, problems or left)
        self._outdated.clear()

    def document(self, records: Records, record: FileRecord, content: bytes | None = None) -> Document:
        """The document of a record; `content` saves asking the archive. Raises DocumentError."""
        if record.kind == "policy":
            cached = self._cache.get(
                record.digest, record.document_id, record.organisation_id, record.version
            )
            if cached is not None:
                return cached
        document = self.put(
            record.path, content or records.blob(record.digest), record.digest
        ).loaded.document
        return (
            replace(document, version=record.version)
            if isinstance(document, Policy | ToolSet | Detector | OrganisationSettings)
            else document
        )

    def put(self, path: str, content: bytes, digest: str) -> Put:
        """A file's document, remembered for the next start. Raises DocumentError."""
        loaded = load(path, content)
        if isinstance(loaded.document, Policy):
            self._cache.put(digest, loaded.document)
        return Put(loaded, digest, content)

    def policies_at(self, records: Records, organisation_id: str, moment: int | str) -> Past | None:
        """What was in force at a revision or an ISO 8601 UTC time; None: no such revision."""
        revision = moment if isinstance(moment, int) else records.revision_at(moment)
        if not 0 < revision <= records.head()[0]:
            return None
        policies: list[Policy] = []
        tool_sets: dict[str, ToolSet] = {}
        settings = NO_SETTINGS
        for path, record in records.files_at(revision).items():
            own = record.kind in ("policy", "settings") and record.organisation_id == organisation_id
            if own or record.kind == "toolSet":
                document = self.document(records, record)
                if isinstance(document, Policy):
                    policies.append(document)
                elif isinstance(document, ToolSet):
                    tool_sets[path] = document
                elif isinstance(document, OrganisationSettings):
                    settings = document
        return Past(revision, policies, ordered(tool_sets, organisation_id), settings)

    def save(self, snapshot: Snapshot) -> None:
        """Keep what was checked for the next start."""
        self._cache.save(record.digest for record in snapshot.files.values())

    def at_head(self, records: Records, mine: Snapshot) -> Snapshot:
        """The snapshot at the archive's head, made from `mine` and what changed since."""
        revision, at = records.head()
        if (revision, at) == (mine.revision, mine.recorded_at):
            return mine
        try:
            if not knows(records, mine):
                # Ours is of a commit that never came to be, or of another database: start from nothing.
                return self.restored(records, {})
            changes: dict[str, tuple[FileRecord, Document] | None] = {}
            for path, record in records.changed_since(mine.revision).items():
                changes[path] = None if record is None else (record, self.document(records, record))
        except DocumentError as error:
            raise NewerDocuments(
                f"revision {revision} has a document that this version of the service cannot load, so "
                f"upgrade this node: {error}"
            ) from error
        return mine.changed(revision, at, changes)
