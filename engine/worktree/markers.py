"""What the repository writes down beside the documents, in a hidden folder that git is told to ignore.

The marker says at which revision the folder last agreed with the archive; an intent says which API
write is about to change which file, so that after a crash between the rename and the commit the write is
known for what it is, and has another name while a write that failed cannot be undone; `replaced` are files
that gave way to what is in force although somebody may have meant them; the occupant is the installation
whose folder it is. They lie in the folder itself, because they are about it and must travel with it.

A marker that cannot be written is told of: it stays at an older revision, by which an edit may be taken for
an old file. No API write begins whose intent cannot be written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Final

from engine.worktree.disk import Disk

FOLDER: Final = ".governance"
MARKER: Final = f"{FOLDER}/base.json"
REPLACED: Final = f"{FOLDER}/replaced.json"
OCCUPANT: Final = f"{FOLDER}/installation.json"
MOST_REPLACED: Final = 10_000
_OPEN: Final = "write-"
"""How the name of an intent begins while the write is under way."""
_FAILED: Final = "failed-"
"""The same once it has failed and could not be undone yet."""
_INTENTS: Final = (_OPEN, _FAILED)


@dataclass(frozen=True, slots=True)
class Marker:
    """Disk and archive agreed at this revision, which was recorded at that time; `reached` is what files were
    brought up to since, while others differed."""

    revision: int
    recorded_at: str
    reached: Marker | None = None

    @property
    def last(self) -> Marker:
        return self.reached or self


@dataclass(frozen=True, slots=True)
class Intent:
    """An API write of `author` turns a file from one digest into another; None: no file."""

    path: str
    before: str | None
    after: str | None
    author: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file gave way to what is in force at that time; `digest` is what it became, None: it went."""

    path: str
    digest: str | None
    at: str


@dataclass(frozen=True, slots=True)
class Occupant:
    """An installation, by the id that its database has, and a machine that it runs on."""

    installation: str
    host: str


def read_marker(disk: Disk) -> Marker | None:
    note = _read(disk, MARKER)
    found, reached = _marker(note), note.get("reached")
    if found is not None and isinstance(reached, dict):
        return replace(found, reached=_marker(reached))
    return found


def _marker(note: dict[str, Any]) -> Marker | None:
    if isinstance(note.get("revision"), int) and isinstance(note.get("recorded_at"), str):
        return Marker(note["revision"], note["recorded_at"])
    return None


def is_missing(disk: Disk) -> bool:
    """Whether there is no marker, as far as anybody can tell."""
    try:
        return disk.read(MARKER) is None
    except OSError:
        return False


def write_marker(disk: Disk, marker: Marker) -> None:
    """Raises StorageError."""
    disk.note(MARKER, json.dumps(asdict(marker)).encode())


def read_replaced(disk: Disk) -> list[Replaced]:
    files = _read(disk, REPLACED).get("files")
    try:
        return [Replaced(**each) for each in files or ()]
    except TypeError:
        return []


def add_replaced(disk: Disk, found: Collection[Replaced]) -> None:
    """Raises StorageError."""
    known = {each.path: each for each in (*read_replaced(disk), *found)}
    files = [asdict(each) for each in known.values()][-MOST_REPLACED:]
    disk.note(REPLACED, json.dumps({"files": files}).encode())


def read_occupant(disk: Disk) -> Occupant | None:
    note = _read(disk, OCCUPANT)
    if isinstance(note.get("installation"), str) and isinstance(note.get("host"), str):
        return Occupant(note["installation"], note["host"])
    return None


def write_occupant(disk: Disk, occupant: Occupant) -> None:
    """Raises StorageError."""
    disk.note(OCCUPANT, json.dumps(asdict(occupant)).encode())


def read_intent(disk: Disk, path: str) -> Intent | None:
    note = _read(disk, _name(path))
    if note.get("path") != path or not isinstance(note.get("author"), str):
        return None
    return Intent(path, note.get("before"), note.get("after"), note["author"])


def read_intents(disk: Disk) -> list[Intent]:
    """Those of writes that are under way, or have died."""
    notes = (
        _read(disk, f"{FOLDER}/{name}")
        for name in sorted(disk.notes(FOLDER))
        if name.startswith(_OPEN) and name.endswith(".json")
    )
    found = (read_intent(disk, note["path"]) for note in notes if isinstance(note.get("path"), str))
    return [intent for intent in found if intent is not None]


def write_intent(disk: Disk, intent: Intent) -> None:
    """Raises StorageError."""
    disk.note(_name(intent.path), json.dumps(asdict(intent)).encode())


def forget_intent(disk: Disk, path: str) -> None:
    for kind in _INTENTS:
        disk.forget(_name(path, kind))


def give_up_intent(disk: Disk, path: str) -> None:
    """The write failed, and what it did to the file is still to be undone, also after a restart. A full disk
    has no room for a note, but takes another name."""
    disk.rename_note(_name(path), _name(path, _FAILED))


def is_failed(disk: Disk, path: str, digest: str | None) -> bool:
    """Whether what the file is now is what a write that failed has made it."""
    note = _read(disk, _name(path, _FAILED))
    return note.get("path") == path and note.get("after") == digest


def forget_intents(disk: Disk, settled: Collection[str]) -> None:
    """Forget what was settled, for instance the intents of writes that died before they changed anything."""
    for name in disk.notes(FOLDER):
        if name.startswith(_INTENTS) and name.endswith(".json"):
            path = _read(disk, f"{FOLDER}/{name}").get("path")
            if path is None or path in settled:
                disk.forget(f"{FOLDER}/{name}")


def _name(path: str, kind: str = _OPEN) -> str:
    return f"{FOLDER}/{kind}{sha256(os.fsencode(path)).hexdigest()[:24]}.json"


def _read(disk: Disk, relative: str) -> dict[str, Any]:
    try:
        note = json.loads(disk.read(relative) or b"{}")
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
