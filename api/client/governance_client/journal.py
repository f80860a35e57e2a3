"""Calls that were let through while the service was away, and what it did not take before a process ended,
kept on disk until it has them all.

Each process appends to a file of its own, one event a line, and holds a lock on it while it lives; what a
process left behind is adopted by the next one that gets the lock. An event is sent with the id that stands in
the file, so that it is recorded once however often it is sent; a file goes when all of it is recorded.

INVARIANT: `append` returns after the event is on disk, or raises OSError. A line without an end was never
answered for, so no call was let through by it. What the service refuses to record is kept in `refused.jsonl`.

Programs share the folder, each with a key of its own: a file is adopted by who has its key, also after a
rotation (`client_key.py`). What is refused for the key alone stays.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import os
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from governance_client.client_key import ClientKey, digest
from governance_client.events import ClientEvent, new_id
from governance_client.payloads import members, plainly
from governance_client.report_queue import FOR_THE_KEY, Settled, kept_there
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

REFUSED: Final = "refused.jsonl"
_UNCLEAR: Final = (
    "what a program has left of this run, or of one that it goes on from, waits in %s, and nobody can tell "
    "whether it had this key: start one with the key that it had once more, or take that file away"
)
_CONFLICT: Final = 409
_Kept = tuple[ClientEvent, Settled]
_PLAIN: Final = ("run.started", "tool.completed", "tool.failed")
"""What is told plainly where the service cannot read it; a call is not, as that would be another one."""
_NO_EVENT: Final = (ValueError, RecursionError)
_READ: Final = os.O_RDWR | getattr(os, "O_BINARY", 0)
_APPEND: Final = _READ | os.O_APPEND | os.O_CREAT


@dataclass(slots=True, eq=False)
class _JournalFile:
    """One open and locked file. `waiting` counts its events that are not recorded yet."""

    path: Path
    descriptor: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0
    sealed: bool = False
    """Nothing more is written to it, so it goes with its last event."""
    closed: bool = False
    left: bool = False
    """Something of it is for another key, so that it stays."""
    is_own: bool = True
    """It says that it was written with this key."""

    def settled(self, event: ClientEvent, status: int, why: str) -> None:
        """An event was answered for good. Raises OSError where a refusal cannot be kept: it waits on."""
        with self.lock:
            if self.closed:
                return  # whoever adopts it will be answered the same
            if status in FOR_THE_KEY or (status == _CONFLICT and not self.is_own):
                self.left = True
            elif status != 200:
                _keep_refused(self.path.parent / REFUSED, event, why)
            self.waiting -= 1
            try:
                if self.waiting == 0 and not self.sealed and not self.left:
                    os.ftruncate(self.descriptor, 0)
                self.remove_if_done()
            except OSError as error:  # whoever adopts the file will be answered the same
                log.error("the journal %s cannot be cleared: %s", self.path, error)

    def remove_if_done(self) -> None:
        """A sealed file of which all is recorded; one that stays is free for others."""
        if self.waiting == 0 and self.sealed:
            if not self.left:
                self.path.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self.descriptor)


@dataclass(slots=True, eq=False)
class _OthersFile:
    """One that is only read: of a process that still runs, a key that was replaced, or nobody knows whose."""

    path: Path
    _read: tuple[int, int] = (-1, -1)
    """Its size and its time, as whoever holds it empties it and begins anew."""
    _runs: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    """Ids of events."""

    def runs(self) -> set[str]:
        """Those that it tells of; it is read again where it has changed. Raises OSError."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return set()  # all of it was recorded meanwhile
        if self._read != (now := (found.st_size, found.st_mtime_ns)):
            self._read, self._runs = now, {event.run_id for event in self._events()}
        return self._runs

    def fresh(self, runs: Collection[str]) -> list[ClientEvent]:
        """What it tells of these runs, unless it was told before. Raises OSError."""
        events = self._events() if not self.runs().isdisjoint(runs) else []
        found = [each for each in events if each.run_id in runs and each.event_id not in self._told]
        self._told.update(each.event_id for each in found)
        return found

    def _events(self) -> list[ClientEvent]:
        found = []
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            with contextlib.suppress(*_NO_EVENT):
                found.append(_event(line))
        return found


class OfflineJournal:
    """See the module; the journal of one process and agent in a folder that others share."""

    def __init__(self, settings: ClientSettings, agent_id: str, key: ClientKey) -> None:
        self._folder, self._key = settings.journal, key
        self._prefix = digest(f"{settings.url}\n{agent_id}") + "-"
        self._mine: set[Path] = set()
        """What this process has written or adopted."""
        self._others: dict[Path, _OthersFile] = {}
        self.unread = ""
        """Why one could not be read at the last look, which may be of any run."""
        self.is_closed = False
        self._lock = threading.Lock()
        self._writing: _JournalFile | None = None
        self._open: list[_JournalFile] = []

    def append(self, events: Sequence[ClientEvent]) -> list[Settled]:
        """Put events on disk, in order; for each of them, whom to tell what became of it. Raises OSError."""
        with self._lock:
            if self._writing is None:
                self._writing = self._new()
            file = self._writing
        with file.lock:
            if file.closed:  # its descriptor may be another file's by now
                raise OSError(f"the journal {file.path} was closed meanwhile")
            before = os.fstat(file.descriptor).st_size
            try:
                _write(file.descriptor, b"".join(event.content + b"\n" for event in events))
            except OSError:
                self._abandon(file, before)
                raise
            file.waiting += len(events)
        return [partial(file.settled, event) for event in events]

    def adopt(self, runs: Collection[str] = (), own: Collection[str] = ()) -> list[_Kept]:
        """What processes that are gone have left behind, what those that still run hold of these runs, which
        go on here, and what a replaced key has left of those that do by their `own` names: each file's in its
        order, and by their times. Raises OSError."""
        found = []
        for path, is_mine in self._files().items():
            try:
                found.append(self._found(path, is_mine, runs, own))
            except OSError as error:
                self._is_unread(path, error)
        return list(heapq.merge(*found, key=lambda kept: kept[0].at))

    def unclear(self, runs: Collection[str]) -> dict[str, str]:
        """Those of them of which anything is left of which nobody can tell yet whose it is, and why nothing
        can be decided of each. Raises OSError."""
        files, self.unread = self._files(), ""
        for path in self._others.keys() - files:
            del self._others[path]
        nobodys = [path for path, is_mine in files.items() if is_mine is None] if runs else []
        return {run_id: _UNCLEAR % path for path in nobodys for run_id in self._told(path).intersection(runs)}

    def _found(
        self, path: Path, is_mine: bool | None, runs: Collection[str], own: Collection[str]
    ) -> list[_Kept]:
        if path in self._mine or is_mine is None:
            return []
        if is_mine:
            try:
                if (file := _locked(path, _READ)) is not None:
                    return self._adopted(file)
            except OSError:
                if not runs:
                    raise  # else it can perhaps be read, though not be written
        else:
            runs = own if self._key.is_replaced(self._tag(path)) else ()
        return [(event, kept_there) for event in self._other(path).fresh(runs)] if runs else []

    def _told(self, path: Path) -> set[str]:
        try:
            return self._other(path).runs()
        except OSError as error:
            self._is_unread(path, error)
            return set()

    def _is_unread(self, path: Path, error: OSError) -> None:
        """What another user of the system has left there is of no run of this one."""
        log.error("the journal %s cannot be read: %s", path, error)
        if not isinstance(error, PermissionError):
            self.unread = f"what a program has left of its runs cannot be read: {error}"

    def _files(self) -> dict[Path, bool | None]:
        """Whether each was written with this key; names of before do not say so. Raises OSError."""
        paths = sorted(self._folder.glob(f"{self._prefix}*.jsonl")) if self._folder.is_dir() else []
        known = {tag: self._key.has(tag) for tag in set(map(self._tag, paths)) if tag}
        return {path: known.get(self._tag(path), True) for path in paths}

    def _tag(self, path: Path) -> str:
        first = path.name.removeprefix(self._prefix).partition("-")[0]
        return first[1:] if first.startswith("k") else ""

    def _other(self, path: Path) -> _OthersFile:
        return self._others.setdefault(path, _OthersFile(path))

    def _adopted(self, file: _JournalFile) -> list[_Kept]:
        """What it tells, for this one to tell, unless this one was closed meanwhile. Raises OSError."""
        with self._lock:
            if self.is_closed:
                file.close()
                return []
            file.is_own = bool(self._tag(file.path))
            self._remember(file)
        try:
            return _left(file)
        except OSError:
            self._mine.discard(file.path)
            file.close()
            raise

    def close(self) -> None:
        """Leave what is not recorded to the next process."""
        with self._lock:
            self._writing, self.is_closed = None, True
        for file in self._open:
            with file.lock:
                file.sealed = True
                if not file.closed:
                    file.remove_if_done()
                file.close()

    def after_fork(self) -> None:
        """In the child: the files are the parent's, which must not stay locked when that one dies."""
        self._lock, self._writing = threading.Lock(), None
        self._mine, self._others, self.unread = set(), {}, ""
        for file in self._open:
            file.lock = threading.Lock()
            file.close()

    def _abandon(self, file: _JournalFile, size: int) -> None:
        """What could not be written was let through by nobody; later events get another file."""
        with contextlib.suppress(OSError):
            os.ftruncate(file.descriptor, size)
        file.sealed = True
        file.remove_if_done()
        with self._lock:
            self._writing = None

    def _remember(self, file: _JournalFile) -> None:
        self._mine.add(file.path)
        self._open = [*(each for each in self._open if not each.closed), file]

    def _new(self) -> _JournalFile:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{self._prefix}k{self._key.tag}-{os.getpid()}-{new_id()}.jsonl"
        file = _locked(path, _APPEND | os.O_EXCL)
        if file is None:
            raise OSError(f"the new journal {path} is locked by somebody else")
        self._remember(file)
        _sync_folder(self._folder)
        return file


def _left(file: _JournalFile) -> list[_Kept]:
    with os.fdopen(os.dup(file.descriptor), "rb") as reader:
        lines = reader.read().split(b"\n")
    half = lines.pop()
    if half:
        log.warning("%s ends in half a line, of what was never answered for", file.path)
    file.sealed = True
    events = []
    for line in lines:
        try:
            events.append(_event(line))
        except _NO_EVENT as error:
            log.error("a line of %s is no event (%s); it is kept in %s", file.path, error, REFUSED)
            _write_to(file.path.parent / REFUSED, _refusal(line.decode(errors="replace"), str(error)))
    file.waiting = len(events)
    file.remove_if_done()
    return [(event, partial(file.settled, event)) for event in events]


def _event(line: bytes) -> ClientEvent:
    said = json.loads(line)
    try:
        event_id, run_id, event_type = (str(said[name]) for name in ("eventId", "runId", "eventType"))
    except (KeyError, TypeError):
        raise ValueError("`eventId`, `runId` or `eventType` is missing") from None
    metadata = said.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    named = (told.get(name) for name in ("continuesRunId", "parentRunId"))
    before = (each for each in named if isinstance(each, str) and each != run_id)
    made = ClientEvent(event_id, event_type, (*before, run_id), line, None, str(said.get("timestamp")))
    return replace(made, plainer=partial(_plainer, made)) if event_type in _PLAIN else made


def _plainer(event: ClientEvent) -> ClientEvent:
    """Under the same id, as nothing is recorded under it yet, so that it is recorded once however often."""
    said = json.loads(event.content, object_pairs_hook=members)
    told = said.get("metadata")
    plain = plainly(told if isinstance(told, dict) else {})
    content = json.dumps({**said, "metadata": plain}, ensure_ascii=False)
    return replace(event, content=content.encode(), plainer=None)


def _keep_refused(path: Path, event: ClientEvent, why: str) -> None:
    log.error("the service refuses what it was told late (%s); it is kept in %s", why, path)
    _write_to(path, _refusal(json.loads(event.content), why))


def _refusal(event: Any, why: str) -> bytes:
    return json.dumps({"why": why, "event": event}, ensure_ascii=False).encode() + b"\n"


def _write_to(path: Path, line: bytes) -> None:
    descriptor = os.open(path, _APPEND, 0o600)
    try:
        _write(descriptor, line)
    finally:
        os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    written = os.write(descriptor, content)
    if written != len(content):
        raise OSError(f"only {written} of {len(content)} bytes were written")
    os.fsync(descriptor)


def _locked(path: Path, flags: int) -> _JournalFile | None:
    """The file, locked; None when somebody else has it, or has just removed it."""
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    if _lock(descriptor) and os.fstat(descriptor).st_nlink > 0:
        return _JournalFile(path, descriptor)
    os.close(descriptor)
    return None


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return os.lseek(descriptor, 0, os.SEEK_SET) == 0

    def _sync_folder(folder: Path) -> None:
        """A folder cannot be synced there."""

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _sync_folder(folder: Path) -> None:
        """The new file's name is on disk, too."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
