"""Whether a set of documents fits together.

Refuses sets in which two files say the same id, or a pack names a preset that is not there, and batches that
leave an organisation nothing of several policies. It knows nothing of one document's own faults, those are
found when it is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from engine.documents.presets import Pack, Preset
from engine.errors import Problem
from engine.repository.loader import Loaded
from engine.repository.snapshot import Snapshot
from engine.worktree.disk import shown
from engine.worktree.paths import Place


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


def refuse_emptied(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """Files that are gone all at once are rather lost than deleted, and without them everything is allowed.
    The last policy alone may go, so who means it takes two steps."""
    gone = Counter(
        record.organisation_id
        for path, loaded in edits.items()
        if loaded is None and (record := head.files.get(path)) and record.kind == "policy"
    )
    come = {loaded.place.organisation_id for loaded in edits.values() if loaded and loaded.kind == "policy"}
    return [
        Problem(
            f"the files of all {count} policies of organisation `{organisation_id}` are gone at once, and"
            " without them everything would be allowed; put them back. If you mean it, keep one until the"
            " others are out of force, and then remove that one",
            "",
            "all_gone",
            "policies" if organisation_id == "default" else f"organisations/{organisation_id}/policies",
        )
        for organisation_id, count in gone.items()
        if count > 1 and count == len(head.of(organisation_id)) and organisation_id not in come
    ]


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
