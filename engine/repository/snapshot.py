"""What is in force: an immutable set of policies, presets, packs, tool sets, detectors and settings at one
revision of the archive.

A change makes a new snapshot; whoever holds the old one is undisturbed. It knows nothing of disks,
transactions or matching.

INVARIANT: a snapshot's `files` are exactly the archive's files at its revision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from engine.conditions.settings import NO_SETTINGS
from engine.documents.presets import Pack, Preset
from engine.model import Detector, OrganisationSettings, Policy, ToolSet
from engine.repository.archive import FileRecord
from engine.worktree.paths import DEFAULT, LIBRARY, Kind, path_of_settings

Document = Policy | Preset | Pack | ToolSet | Detector | OrganisationSettings


@dataclass(frozen=True, slots=True)
class Stored:
    """A policy in force and its file."""

    policy: Policy
    file: FileRecord

    @property
    def etag(self) -> str:
        return self.file.etag


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Policies by organisation and id, presets and packs by id, tool sets and detectors by path, settings by
    organisation, and the record of every file."""

    revision: int = 0
    recorded_at: str = ""
    policies: Mapping[str, Mapping[str, Stored]] = field(default_factory=dict)
    presets: Mapping[str, Preset] = field(default_factory=dict)
    packs: Mapping[str, Pack] = field(default_factory=dict)
    tool_sets: Mapping[str, ToolSet] = field(default_factory=dict)
    detectors: Mapping[str, Detector] = field(default_factory=dict)
    settings: Mapping[str, OrganisationSettings] = field(default_factory=dict)
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    def of(self, organisation_id: str) -> Mapping[str, Stored]:
        """The policies of an organisation by id; empty when it has none."""
        return self.policies.get(organisation_id, MappingProxyType({}))

    def tools_of(self, organisation_id: str) -> tuple[ToolSet, ...]:
        """The tool sets that count in an organisation, in the order of `in_order`."""
        return ordered(self.tool_sets, organisation_id)

    def detectors_of(self, organisation_id: str) -> dict[str, str]:
        """The paths of the detectors that count in an organisation, by id, in order: its own take the place
        of everybody's."""
        found = {
            each.detector_id: path
            for owner in (DEFAULT, organisation_id)
            for path, each in self.detectors.items()
            if each.organisation_id == owner
        }
        return dict(sorted(found.items()))

    def settings_of(self, organisation_id: str) -> OrganisationSettings:
        """The settings of an organisation, which has no other's."""
        return self.settings.get(organisation_id, NO_SETTINGS)

    @property
    def count(self) -> int:
        return sum(map(len, self.policies.values()))

    @property
    def digest(self) -> str:
        """The same for equal sets of policies, tools, detectors and settings, whatever order they were loaded
        in."""
        lines = [
            f"{organisation_id}\0{policy_id}\0{stored.file.digest}\n"
            for organisation_id, policies in self.policies.items()
            for policy_id, stored in policies.items()
        ]
        lines += [f"{path}\0tools\0{self.files[path].digest}\n" for path in self.tool_sets]
        lines += [f"{path}\0detector\0{self.files[path].digest}\n" for path in self.detectors]
        paths = map(path_of_settings, self.settings)
        lines += [f"{path}\0settings\0{self.files[path].digest}\n" for path in paths]
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()

    def path_of(self, kind: Kind, organisation_id: str, document_id: str) -> str | None:
        """The file that a document stands in."""
        if kind == "policy":
            stored = self.of(organisation_id).get(document_id)
            return stored.file.path if stored else None
        if kind == "toolSet":
            sets = self.tool_sets.items()
            wanted = (document_id, organisation_id)
            return next((p for p, each in sets if (each.tool_set_id, each.organisation_id) == wanted), None)
        if kind == "detector":
            detectors = self.detectors.items()
            wanted = (document_id, organisation_id)
            return next(
                (p for p, each in detectors if (each.detector_id, each.organisation_id) == wanted), None
            )
        if kind == "settings":
            path = path_of_settings(organisation_id)
            return path if path in self.files else None
        if document_id not in (self.presets if kind == "preset" else self.packs):
            return None
        return next(
            p for p, each in self.files.items() if each.kind == kind and each.document_id == document_id
        )

    def organisations(self) -> set[str]:
        """Those that have policies, tools or detectors of their own."""
        owners = {name for name, policies in self.policies.items() if policies}
        owners |= {each.organisation_id for each in self.tool_sets.values()}
        return owners | {each.organisation_id for each in self.detectors.values()}

    def packs_by_path(self) -> dict[str, Pack]:
        return {p: self.packs[each.document_id] for p, each in self.files.items() if each.kind == "pack"}

    def changed(
        self, revision: int, recorded_at: str, changes: Mapping[str, tuple[FileRecord, Document] | None]
    ) -> Snapshot:
        """The set after files were put (record and document) or removed (None), by path."""
        policies = dict(self.policies)
        presets, packs, files = dict(self.presets), dict(self.packs), dict(self.files)
        settings = dict(self.settings)
        tool_sets = {path: each for path, each in self.tool_sets.items() if path not in changes}
        detectors = {path: each for path, each in self.detectors.items() if path not in changes}
        touched: set[str] = set()

        def own(organisation_id: str) -> dict[str, Stored]:
            if organisation_id not in touched:
                policies[organisation_id] = dict(policies.get(organisation_id, {}))
                touched.add(organisation_id)
            return policies[organisation_id]  # type: ignore[return-value]

        # Removals first: a file that moved is removed at one path and put at another.
        for path in changes:
            old = files.pop(path, None)
            if old is None:
                continue
            if old.kind == "policy":
                own(old.organisation_id).pop(old.document_id, None)
            elif old.kind == "settings":
                settings.pop(old.organisation_id, None)
            elif old.kind in ("preset", "pack"):
                (presets if old.kind == "preset" else packs).pop(old.document_id, None)
        for path, change in changes.items():
            if change is None:
                continue
            record, document = change
            files[path] = record
            if isinstance(document, Policy):
                own(record.organisation_id)[record.document_id] = Stored(document, record)
            elif isinstance(document, Preset):
                presets[record.document_id] = document
            elif isinstance(document, Pack):
                packs[record.document_id] = document
            elif isinstance(document, ToolSet):
                tool_sets[path] = document
            elif isinstance(document, Detector):
                detectors[path] = document
            else:
                settings[record.organisation_id] = document
        return Snapshot(
            revision, recorded_at, policies, presets, packs, tool_sets, detectors, settings, files
        )


def ordered(tool_sets: Mapping[str, ToolSet], organisation_id: str) -> tuple[ToolSet, ...]:
    """Those that count in an organisation, as `in_order` orders their paths."""
    return tuple(tool_sets[path] for path in in_order(tool_sets, organisation_id))


def in_order(tool_sets: Mapping[str, ToolSet], organisation_id: str) -> list[str]:
    """The paths of those that count in an organisation. Of two equal name patterns the later set's counts:
    the shipped library gives way to all others, and what is declared for everybody to the organisation's
    own."""

    counting = [
        path for path, each in tool_sets.items() if each.organisation_id in (DEFAULT, organisation_id)
    ]
    return sorted(counting, key=lambda path: (rank_of(path, tool_sets[path]), path))


def rank_of(path: str, tool_set: ToolSet) -> int:
    """Which set wins over which: of a higher rank over all those of a lower one."""
    if tool_set.organisation_id != DEFAULT:
        return 2
    return 0 if path.startswith(LIBRARY) else 1
