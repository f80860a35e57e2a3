"""Calls that were let through while the service was away, and what it did not take before a process ended,
kept on disk until it has them all.

Each process appends to a file of its own, one event a line, and holds a lock on it while it lives; what a
process left behind is adopted by the next one that gets the lock. An event is sent with the id that stands in
the file, so that it is recorded once however often it is sent; a file goes when all of it is recorded.

INVARIANT: `append` returns after the event is on disk, or raises OSError. A line without an end was never
answered for, so no call was let through by it. What the service refuses to record is kept in `refused.jsonl`.

Programs share the folder, each with a key of its own, also of other organisations: a file is adopted by who
has its key. With another key, as after a rotation, only what it tells of runs that are known to be of that
one is, and stays unless it is taken. What is refused for the key alone stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from governance_client.events import ClientEvent, new_id
from governance_client.payloads import plainly
from governance_client.report_queue import FOR_THE_KEY, Settled
from governance_client.settings import ClientSettings

log = logging.getLogger("governance_client")

REFUSED: Final = "refused.jsonl"
_CONFLICT: Final = 409
_Calls = Mapping[str, Collection[str]]
"""By run, the calls whose outcomes are told, of those that the service has decided."""
_OUTCOMES: Final = ("tool.completed", "tool.failed")
_PLAIN: Final = ("run.started", *_OUTCOMES)
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
    """It was written with the key of this process."""

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
    """One that another key has left. INVARIANT: it is locked for nobody, so that whoever has its key may tell
    of it at any time, and goes only when all of it is recorded, and nobody writes to it any more."""

    path: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    told: set[str] = field(default_factory=set)
    """Runs of which this process tells."""
    _read: tuple[int, _Calls] = (-1, {})
    _size: int = 0
    _done: set[bytes] = field(default_factory=set)
    _rest: set[bytes] = field(default_factory=set)

    def calls(self) -> _Calls:
        """Read once, as long as nothing is written to it. Raises OSError."""
        if self._read[0] != (size := self.path.stat().st_size):
            self._read = size, _calls_in(self.path)
        return self._read[1]

    def events(self) -> list[ClientEvent]:
        lines = (content := self.path.read_bytes()).split(b"\n")[:-1]
        self._size, self._rest = len(content), set(lines) - self._done
        found = []
        for line in lines:
            with contextlib.suppress(*_NO_EVENT):
                found.append(_event(line))
        return found

    def settled(self, event: ClientEvent, status: int, why: str) -> None:
        with self.lock:
            if status in (*FOR_THE_KEY, _CONFLICT):
                return
            if status != 200:
                _keep_refused(self.path.parent / REFUSED, event, why)
            self._done.add(event.content)
            self._rest.discard(event.content)
            with contextlib.suppress(OSError):  # it is told again
                if not self._rest and (file := _locked(self.path, _READ)) is not None:
                    if os.fstat(file.descriptor).st_size == self._size:
                        self.path.unlink(missing_ok=True)
                    file.close()


class OfflineJournal:
    """See the module; the journal of one process and agent in a folder that others share."""

    def __init__(self, settings: ClientSettings, agent_id: str) -> None:
        self._folder = settings.journal
        whose = hashlib.sha256(f"{settings.url}\n{agent_id}".encode()).hexdigest()[:16]
        self._prefix = f"{whose}-"
        self._own = f"{whose}-k{hashlib.sha256(settings.api_key.encode()).hexdigest()[:16]}-"
        self._adopted: set[Path] = set()
        self._of_others: dict[Path, _OthersFile] = {}
        self._closed = False
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

    def adopt(self, runs: Collection[str] = ()) -> Iterator[tuple[ClientEvent, Settled]]:
        """The events that processes which are gone have left behind, in order; of other keys those of these
        runs."""
        for path in self._files():
            try:
                if self._is_anothers(path):
                    found = self._of_runs(path, runs) if runs else []
                elif path in self._adopted or (file := _locked(path, _READ)) is None or not self._has(file):
                    found = []
                else:
                    file.is_own = path.name.startswith(self._own)
                    found = _left(file)
            except OSError as error:
                log.error("the journal %s cannot be read: %s", path, error)
            else:
                yield from found

    def _of_runs(self, path: Path, runs: Collection[str]) -> list[tuple[ClientEvent, Settled]]:
        """What another key has left of these runs, unless it was told before."""
        file = self._of_others.setdefault(path, _OthersFile(path))
        with file.lock:
            fresh = [run_id for run_id in file.calls() if run_id in runs and run_id not in file.told]
            events = file.events() if fresh else []
            file.told.update(fresh)
        return [(event, partial(file.settled, event)) for event in events if event.run_id in fresh]

    def of_others(self, runs: Collection[str] | None = None) -> dict[str, set[str]]:
        """The runs, of these or of all, of which other keys have left what was not told yet, and the calls of
        each whose outcomes that tells."""
        found: dict[str, set[str]] = {}
        try:
            left = list(filter(self._is_anothers, self._files()))
        except OSError as error:
            log.error("the journal cannot be read: %s", error)
            left = []
        for path in set(self._of_others.copy()) - set(left):
            self._of_others.pop(path, None)
        for path in left:
            file = self._of_others.setdefault(path, _OthersFile(path))
            with contextlib.suppress(OSError), file.lock:
                for run_id, calls in file.calls().items():
                    if (runs is None or run_id in runs) and run_id not in file.told:
                        found.setdefault(run_id, set()).update(calls)
        return found

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._prefix}*.jsonl")) if self._folder.is_dir() else []

    def _has(self, file: _JournalFile) -> bool:
        """Whether an adopted file is this one's to tell of, unless it was closed meanwhile."""
        with self._lock:
            if self._closed:
                file.close()
                return False
            self._adopted.add(file.path)
            self._remember(file)
            return True

    def _is_anothers(self, path: Path) -> bool:
        """Whether another key has left it; names of before do not say so."""
        return path.name.startswith(f"{self._prefix}k") and not path.name.startswith(self._own)

    def close(self) -> None:
        """Leave what is not recorded to the next process."""
        with self._lock:
            self._writing, self._closed = None, True
        for file in self._open:
            with file.lock:
                file.sealed = True
                if not file.closed:
                    file.remove_if_done()
                file.close()

    def after_fork(self) -> None:
        """In the child: the files are the parent's, which must not stay locked when that one dies."""
        self._lock, self._writing = threading.Lock(), None
        self._adopted, self._of_others = set(), {}
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
        self._open = [*(each for each in self._open if not each.closed), file]

    def _new(self) -> _JournalFile:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{self._own}{os.getpid()}-{new_id()}.jsonl"
        file = _locked(path, _APPEND | os.O_EXCL)
        if file is None:
            raise OSError(f"the new journal {path} is locked by somebody else")
        self._remember(file)
        _sync_folder(self._folder)
        return file


def _left(file: _JournalFile) -> list[tuple[ClientEvent, Settled]]:
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


def _calls_in(path: Path) -> _Calls:
    found: dict[str, set[str]] = {}
    offline: set[str] = set()
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(*_NO_EVENT):
            said = json.loads(line)
            event = _event_of(said, line)
            calls = found.setdefault(event.run_id, set())
            if event.event_type.startswith("tool.") and isinstance(about := said.get("metadata"), dict):
                (calls if event.event_type in _OUTCOMES else offline).add(str(about.get("toolCallId")))
    return {run_id: calls - offline for run_id, calls in found.items()}


def _event(line: bytes) -> ClientEvent:
    return _event_of(json.loads(line), line)


def _event_of(said: Any, line: bytes) -> ClientEvent:
    try:
        event_id, run_id, event_type = (str(said[name]) for name in ("eventId", "runId", "eventType"))
    except (KeyError, TypeError):
        raise ValueError("`eventId`, `runId` or `eventType` is missing") from None
    metadata = said.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    named = (told.get(name) for name in ("continuesRunId", "parentRunId"))
    before = (each for each in named if isinstance(each, str) and each != run_id)
    made = ClientEvent(event_id, event_type, (*before, run_id), line)
    return replace(made, plainer=partial(_plainer, made, said, told)) if event_type in _PLAIN else made


def _plainer(event: ClientEvent, said: dict[str, Any], told: dict[str, Any]) -> ClientEvent:
    """Under the same id, as nothing is recorded under it yet, so that it is recorded once however often."""
    content = json.dumps({**said, "metadata": plainly(told)}, ensure_ascii=False)
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
