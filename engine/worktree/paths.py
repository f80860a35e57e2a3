"""The policies folder: which path holds what.

Decides the meaning of a path: `policies/**/<policyId>.yaml`, `tools/**/<toolSetId>.yaml`,
`detectors/**/<detectorId>.yaml`, `organisations/<organisationId>/**` with `tools/**` and `detectors/**` in
it, `settings/<organisationId>.yaml`, `presets/<category>/`, `packs/`. It reads no disk and no document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engine.errors import DocumentError, Problem
from engine.worktree.disk import shown

Kind = Literal["policy", "preset", "pack", "toolSet", "detector", "settings"]
KIND_WORDS: Final[Mapping[Kind, str]] = {"toolSet": "tool set", "settings": "settings of"}
"""How a person is told of one; the others as they are called here."""

DEFAULT: Final = "default"
FOLDERS: Final = ("policies", "organisations", "presets", "packs", "tools", "detectors", "settings")
LIBRARY: Final = "tools/library/"
"""Where the shipped sets of tools are."""
_OF_FOLDERS: Final[Mapping[str, Kind]] = {"tools": "toolSet", "detectors": "detector"}
"""What stands in a folder of everybody's, and in that of an organisation's own."""
_ID: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
TEST: Final = "_test.yaml"


@dataclass(frozen=True, slots=True)
class Place:
    """What a path says about its file."""

    kind: Kind
    organisation_id: str
    document_id: str


def ignored(path: str) -> bool:
    """Tests are for `governance test`; other JSON than in the folders of documents is somebody else's."""
    folder = path.partition("/")[0]
    return path.endswith(TEST) or (path.endswith(".json") and folder not in FOLDERS)


def ours(path: str) -> bool:
    """True for the path of a file that could be a document: no part of it is hidden or starts with `_`."""
    parts = path.split("/")
    documents = path.rstrip().lower().endswith((".yaml", ".yml", ".json"))
    return documents and not any(part[:1] in (".", "_", "") for part in parts)


def place_of(path: str) -> Place:
    """Raises DocumentError for a file that has no place here."""
    if not path.isprintable():
        raise _misplaced(path, "the name of a file or folder has unprintable characters; rename it")
    *folders, name = path.split("/")
    stem, dot, ending = name.rpartition(".")
    if name != name.strip() or stem != stem.rstrip():
        raise _misplaced(path, f"the name `{shown(name)}` has blanks at its ends; rename the file")
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
        kind: Kind = _OF_FOLDERS.get(folders[2], "policy") if folders[2:] else "policy"
        return Place(kind, organisation_id, stem)
    if top == "presets" and len(folders) == 2:
        return Place("preset", DEFAULT, stem)
    if top == "packs" and len(folders) == 1:
        return Place("pack", DEFAULT, stem)
    if top in _OF_FOLDERS:
        return Place(_OF_FOLDERS[top], DEFAULT, stem)
    if top == "settings" and len(folders) == 1:
        if not _ID.fullmatch(stem):
            raise _misplaced(path, f"`{shown(stem)}` is no organisation id, which names a file of settings")
        return Place("settings", stem, stem)
    raise _misplaced(
        path,
        "a document belongs into `policies/`, `organisations/<organisationId>/`, `presets/<category>/`, "
        "`packs/`, `tools/`, `detectors/` or `settings/`; move it, or put `_` before its name to have it "
        "ignored",
    )


def path_of_settings(organisation_id: str) -> str:
    """Where an organisation's settings stand. Raises DocumentError."""
    path_for(organisation_id, "settings")
    return f"settings/{organisation_id}.yaml"


def path_of(kind: Kind, organisation_id: str, document_id: str) -> str:
    """Where the API puts a new set of tools or a new detector. Raises DocumentError."""
    path_for(organisation_id, document_id)
    above = "" if organisation_id == DEFAULT else f"organisations/{organisation_id}/"
    folder = next(folder for folder, each in _OF_FOLDERS.items() if each == kind)
    return f"{above}{folder}/{document_id}.yaml"


def declares_tools(path: str) -> bool:
    """True where a set of tools stands, or would."""
    return path.startswith("tools/") or "/tools/" in path


def path_for(organisation_id: str, policy_id: str) -> str:
    """Where the API puts a new policy. Raises DocumentError for an organisation that cannot name a folder."""
    if not _ID.fullmatch(organisation_id):
        raise DocumentError([Problem(f"`{shown(organisation_id)}` is no organisation id", "", "wrong_form")])
    folder = "policies" if organisation_id == DEFAULT else f"organisations/{organisation_id}"
    return f"{folder}/{policy_id}.yaml"


def _misplaced(path: str, message: str) -> DocumentError:
    return DocumentError([Problem(message, "", "misplaced", shown(path))])
