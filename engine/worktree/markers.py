"""What the repository writes down beside the documents, in a hidden folder that git is told to ignore.

Two notes: the marker says at which revision the folder last agreed with the archive; an intent says which API
write is about to change which file, so that after a crash between the rename and the commit the write is
known for what it is. They lie in the folder itself, because they are about it and must travel with it.

A marker that cannot be written is told of: it stays at an older revision, by which an edit may be taken for
an old file. No API write begins whose intent cannot be written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final

from engine.worktree.disk import Disk

FOLDER: Final = ".governance"
MARKER: Final = f"{FOLDER}/base.json"


@dataclass(frozen=True, slots=True)
class Marker:
    """Disk and archive agreed at this revision, which was recorded at that time."""

    revision: int
    recorded_at: str


@dataclass(frozen=True, slots=True)
class Intent:
    """An API write of `author` turns a file from one digest into another; None: no file."""

    path: str
    before: str | None
    after: str | None
    author: str


def read_marker(disk: Disk) -> Marker | None:
    note = _read(disk, MARKER)
    if isinstance(note.get("revision"), int) and isinstance(note.get("recorded_at"), str):
        return Marker(note["revision"], note["recorded_at"])
    return None


def write_marker(disk: Disk, marker: Marker) -> None:
    """Raises StorageError."""
    disk.note(MARKER, json.dumps(asdict(marker)).encode())


def read_intent(disk: Disk, path: str) -> Intent | None:
    note = _read(disk, _name(path))
    if note.get("path") != path or not isinstance(note.get("author"), str):
        return None
    return Intent(path, note.get("before"), note.get("after"), note["author"])


def write_intent(disk: Disk, intent: Intent) -> None:
    """Raises StorageError."""
    disk.note(_name(intent.path), json.dumps(asdict(intent)).encode())


def forget_intent(disk: Disk, path: str) -> None:
    disk.forget(_name(path))


def forget_intents(disk: Disk, settled: Collection[str]) -> None:
    """Forget what was settled, for instance the intents of writes that died before they changed anything."""
    for name in disk.notes(FOLDER):
        if name.startswith("write-") and name.endswith(".json"):
            path = _read(disk, f"{FOLDER}/{name}").get("path")
            if path is None or path in settled:
                disk.forget(f"{FOLDER}/{name}")


def _name(path: str) -> str:
    return f"{FOLDER}/write-{sha256(os.fsencode(path)).hexdigest()[:24]}.json"


def _read(disk: Disk, relative: str) -> dict[str, Any]:
    try:
        note = json.loads(disk.read(relative) or b"{}")
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
