"""Calls that were let through while the service was away, kept on disk until it has them all.

Each process appends to a file of its own, one event a line, and holds a lock on it while it lives; what a
process left behind is adopted by the next one that gets the lock. An event is sent with the id that stands in
the file, so that it is recorded once however often it is sent; a file goes when all of it is recorded.

INVARIANT: `append` returns after the event is on disk, or raises OSError. A line without an end was never
answered for, so no call was let through by it. What the service refuses to record is kept in `refused.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from governance_client.events import ClientEvent, new_id
from governance_client.report_queue import Settled
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

REFUSED: Final = "refused.jsonl"
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@dataclass(slots=True, eq=False)
class _JournalFile:
    """One open and locked file. `waiting` counts its events that are not recorded yet."""

    path: Path
    descriptor: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: int = 0
    sealed: bool = False
    """Nothing more is written to it, so it goes with its last event."""

    def settled(self, event: ClientEvent, status: int, why: str) -> None:
        """An event was answered for good."""
        if status != 200:
            _keep_refused(self.path.parent / REFUSED, event, why)
        with self.lock:
            self.waiting -= 1
            if self.waiting == 0:
                self._empty()

    def _empty(self) -> None:
        if self.sealed:
            self.path.unlink(missing_ok=True)
            os.close(self.descriptor)
        else:
            os.ftruncate(self.descriptor, 0)


class OfflineJournal:
    """See the module; the journal of one process and agent in a folder that others share."""

    def __init__(self, settings: ClientSettings, agent_id: str) -> None:
        self._folder = settings.journal
        whose = hashlib.sha256(f"{settings.url}\n{agent_id}".encode()).hexdigest()[:16]
        self._prefix = f"{whose}-"
        self._lock = threading.Lock()
        self._own: _JournalFile | None = None

    def append(self, events: Sequence[ClientEvent]) -> list[Settled]:
        """Put events on disk, in order; for each of them, whom to tell what became of it. Raises OSError."""
        with self._lock:
            if self._own is None:
                self._own = self._new()
            file = self._own
        with file.lock:
            try:
                _write(file.descriptor, b"".join(_line(event) for event in events))
            except OSError:
                # What it has may end in half a line; later events get a new file.
                file.sealed = True
                with self._lock:
                    self._own = None
                raise
            file.waiting += len(events)
        return [_telling(file, event) for event in events]

    def adopt(self) -> Iterator[tuple[ClientEvent, Settled]]:
        """The events that processes which are gone have left behind, in order."""
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob(f"{self._prefix}*.jsonl")):
            try:
                file = _locked(path, os.O_RDWR)
            except OSError as error:
                log.error("the journal %s cannot be read: %s", path, error)
                continue
            if file is not None:
                yield from _left(file)

    def close(self) -> None:
        """Leave what is not recorded to the next process."""
        with self._lock:
            file, self._own = self._own, None
        if file is None:
            return
        with file.lock:
            if file.waiting == 0:
                file.path.unlink(missing_ok=True)
            os.close(file.descriptor)

    def _new(self) -> _JournalFile:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{self._prefix}{os.getpid()}-{new_id()}.jsonl"
        file = _locked(path, _APPEND | os.O_EXCL)
        if file is None:
            raise OSError(f"the new journal {path} is locked by somebody else")
        _sync_folder(self._folder)
        return file


def _left(file: _JournalFile) -> Iterator[tuple[ClientEvent, Settled]]:
    with os.fdopen(os.dup(file.descriptor), "rb") as reader:
        lines = reader.read().split(b"\n")
    half = lines.pop()
    if half:
        log.warning("%s ends in half a line, of a call that was not let through", file.path)
    file.sealed = True
    events = []
    for line in lines:
        try:
            events.append(_event(line))
        except ValueError as error:
            log.error("a line of %s is no event (%s); it is kept in %s", file.path, error, REFUSED)
            _write_to(file.path.parent / REFUSED, _refusal(line.decode(errors="replace"), str(error)))
    file.waiting = len(events)
    if not events:
        file.path.unlink(missing_ok=True)
        os.close(file.descriptor)
    yield from ((event, _telling(file, event)) for event in events)


def _telling(file: _JournalFile, event: ClientEvent) -> Settled:
    return lambda status, why: file.settled(event, status, why)


def _line(event: ClientEvent) -> bytes:
    return event.content + b"\n"


def _event(line: bytes) -> ClientEvent:
    said = json.loads(line)
    try:
        event_id, run_id, event_type = (str(said[name]) for name in ("eventId", "runId", "eventType"))
    except (KeyError, TypeError):
        raise ValueError("`eventId`, `runId` or `eventType` is missing") from None
    return ClientEvent(event_id, event_type, (run_id,), line)


def _keep_refused(path: Path, event: ClientEvent, why: str) -> None:
    log.error("the service refuses a call that was made while it was away (%s); it is kept in %s", why, path)
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
