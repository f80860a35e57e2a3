"""The policies folder: which path holds what, and whether a set of documents fits together.

Decides the meaning of a path (`policies/**/<policyId>.yaml`, `organisations/<organisationId>/**`,
`presets/<category>/`, `packs/`), loads one document, and refuses sets in which two files say the same id or
a pack names a preset that is not there. It reads no disk and keeps no history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.documents.policy import load_policy
from engine.documents.presets import Pack, Preset, load_pack, load_preset
from engine.errors import DocumentError, Problem
from engine.model import Policy
from engine.repository.archive import Kind
from engine.repository.snapshot import Snapshot
from engine.worktree.disk import shown

DEFAULT: Final = "default"
_ID: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_TEST: Final = "_test.yaml"


@dataclass(frozen=True, slots=True)
class Place:
    """What a path says about its file."""

    kind: Kind
    organisation_id: str
    document_id: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document that was read, and where it stands."""

    place: Place
    document: Policy | Preset | Pack
    declared_version: int | None = None

    @property
    def kind(self) -> Kind:
        return self.place.kind


def ignored(path: str) -> bool:
    """Tests are for `governance test`; other JSON than in the folders of documents is somebody else's."""
    folder = path.partition("/")[0]
    return path.endswith(_TEST) or (path.endswith(".json") and folder not in _FOLDERS)


_FOLDERS: Final = ("policies", "organisations", "presets", "packs")


def ours(path: str) -> bool:
    """True for the path of a file that could be a document: no part of it is hidden or starts with `_`."""
    parts = path.split("/")
    documents = path.lower().endswith((".yaml", ".yml", ".json"))
    return documents and not any(part[:1] in (".", "_", "") for part in parts)


def place_of(path: str) -> Place:
    """Raises DocumentError for a file that has no place here."""
    if not path.isprintable():
        raise _misplaced(path, "the name of a file or folder has unprintable characters; rename it")
    *folders, name = path.split("/")
    stem, dot, ending = name.rpartition(".")
    if ending != "yaml" or not dot:
        raise _misplaced(path, f"documents end in `.yaml`; rename `{shown(name)}`")
    top = folders[0] if folders else ""
    if top == "policies":
        return Place("policy", DEFAULT, stem)
    if top == "organisations" and len(folders) > 1:
        organisation_id = folders[1]
        if not _ID.fullmatch(organisation_id) or organisation_id == DEFAULT:
            advice = (
                "use `policies/`" if organisation_id == DEFAULT else "use lower-case letters, digits and `-`"
            )
            raise _misplaced(path, f"`{shown(organisation_id)}` cannot be an organisation's folder; {advice}")
        return Place("policy", organisation_id, stem)
    if top == "presets" and len(folders) == 2:
        return Place("preset", DEFAULT, stem)
    if top == "packs" and len(folders) == 1:
        return Place("pack", DEFAULT, stem)
    raise _misplaced(
        path,
        "a document belongs into `policies/`, `organisations/<organisationId>/`, `presets/<category>/` "
        "or `packs/`; move it, or put `_` before its name to have it ignored",
    )


def path_for(organisation_id: str, policy_id: str) -> str:
    """Where the API puts a new policy. Raises DocumentError for an organisation that cannot name a folder."""
    if not _ID.fullmatch(organisation_id):
        raise DocumentError([Problem(f"`{shown(organisation_id)}` is no organisation id", "", "wrong_form")])
    folder = "policies" if organisation_id == DEFAULT else f"organisations/{organisation_id}"
    return f"{folder}/{policy_id}.yaml"


def load(path: str, content: bytes) -> Loaded:
    """Raises DocumentError with every problem of the file."""
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
    document = load_policy(content, file, organisation_id=place.organisation_id)
    return Loaded(place, document.policy, document.declared_version)


def refuse_set(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """What is wrong between files once these edits (None: removed) are laid over what is in force."""
    problems: list[Problem] = []
    owners: dict[Place, set[str]] = {}
    for path, loaded in edits.items():
        if loaded is not None:
            owner = head.path_of(loaded.place.kind, loaded.place.organisation_id, loaded.place.document_id)
            owners.setdefault(loaded.place, {owner} if owner and owner not in edits else set()).add(path)
    for place, paths in owners.items():
        if len(paths) > 1:
            names = " and ".join(f"`{shown(path)}`" for path in sorted(paths))
            message = f"{names} are the same {place.kind} `{place.document_id}`; keep one of them"
            problems.append(Problem(message, f"/{place.kind}Id", "duplicate_id", shown(max(paths))))
    if any((loaded or head.files[path]).kind != "policy" for path, loaded in edits.items()):
        problems += _refuse_packs(head, edits)
    return problems


def _refuse_packs(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    documents = {path: loaded.document for path, loaded in edits.items() if loaded is not None}
    packs = [pack for path, pack in head.packs_by_path().items() if path not in edits]
    packs += [document for document in documents.values() if isinstance(document, Pack)]
    gone = {
        record.document_id for path in edits if (record := head.files.get(path)) and record.kind == "preset"
    }
    presets = head.presets.keys() - gone
    presets |= {document.preset_id for document in documents.values() if isinstance(document, Preset)}
    return [
        Problem(
            f"there is no preset `{preset_id}`; add it, or remove it from the pack",
            f"/presets/{index}",
            "unknown_preset",
            pack.file,
            *pack.places[index],
        )
        for pack in packs
        for index, preset_id in enumerate(pack.presets)
        if preset_id not in presets
    ]


def _misplaced(path: str, message: str) -> DocumentError:
    return DocumentError([Problem(message, "", "misplaced", shown(path))])
