"""What hooks could not tell the service, kept on disk until it has it: one line each, in their order.

INVARIANT: `append` returns after the line is on disk, or raises OSError; a line goes only when the service
has recorded it, or has refused it, in which case it is kept in `refused.jsonl`. Hooks run side by side:
whoever tells of lines holds the lock of its key, as long as the service takes, whoever writes or takes away
lines another one, for a moment, so that who has something to keep waits for nobody that tells.

Hosts and projects share it, each with a key of its own, also of other organisations and services: an entry
says by a digest whose it is (`key`), and at which service (`url`). As what that one knows the key, by its
organisation and its id, which a rotation leaves as they are, is noted beside, once it has said so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from api.hosts.report import Unreadable, decoded
from api.hosts.table import NAMES, host

WAITING: Final = "waiting.jsonl"
REFUSED: Final = "refused.jsonl"
_TELLING: Final = "lock"
_WRITING: Final = "lock.lines"
LEAST_ROOM: Final = 4 << 20
"""Bytes on the disk: more than an output that the service takes."""
_TEXTS: Final = ("host", "agentId", "callId", "at", "input")
_NO_ENTRY: Final = "line"
OTHER_KEY: Final = ""
"""The `key` of an entry that has turned out to be of another than it was written with."""
_KEY: Final = "key"
Send = Callable[[dict[str, Any]], str | None]
"""Tells the service of one entry; returns why it is refused, or nothing; None: it stays, with the `key` that
it has then. Raises OSError when the service is away."""


class Untaken(Exception):
    """An entry that is not taken, nor refused for what it says, so that it stays, and with it all that are of
    the same agent or run (`whose`). INVARIANT: it keeps no others waiting: hosts share a journal, and each
    may have a key for its own agent."""

    def __init__(self, why: str, whose: str) -> None:
        super().__init__(why)
        self.whose = whose


def tag_of(key: str) -> str:
    """What entries of an API key have as `key`; nobody gets it from that."""
    return sha256(key.encode()).hexdigest()[:16]


def whose(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Agent and run that an entry tells of; the run is empty where nobody can say."""
    agent, name, raw = f"agent {entry['agentId']}", entry["host"], entry["input"].encode()
    try:
        return agent, run_name(host(name).read(decoded(raw)).run_id if name in NAMES else "")
    except Unreadable:
        return agent, ""


def run_name(run_id: str) -> str:
    return run_id and f"run {run_id}"


class Owner:
    """The key that a hook has, and which entries of a folder are of it."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.folder, self.url, self.tag = folder, url, tag_of(key)
        self._ids: dict[str, dict[str, str]] = {}
        self.key_id = self._known_as(self.tag, url)

    def keep(self, key_id: str) -> None:
        """As what the service knows the key, also after a rotation; empty: it does not say, as an older one,
        and what it has said before stands."""
        if not key_id:
            return
        self.key_id = key_id
        if self._noted(self.tag).get(self.url) != key_id:
            with contextlib.suppress(OSError), _locked(self.folder, _WRITING):  # it says so again
                self._ids.pop(self.tag)  # a hook of another service may have noted more
                self._noted(self.tag)[self.url] = key_id
                _replace(self._note(self.tag), [self._noted(self.tag)])

    def has(self, entry: Mapping[str, Any]) -> bool | None:
        """Whether an entry is of this key, also with a secret that it had before; None: nobody can tell.
        Two hooks of one session may have keys of two organisations, each with a run of its name; in one
        organisation only one key has it, so there it was replaced."""
        tag, url = entry.get("key", self.tag), entry.get("url", self.url)
        if (tag, url) == (self.tag, self.url):
            return True
        mine, theirs = self.key_id, self._known_as(tag, url)
        if not mine or not theirs:
            return None
        is_replaced = url == self.url and theirs.partition("/")[0] == mine.partition("/")[0]
        return theirs == mine or (None if is_replaced else False)

    def has_to_ask(self, runs: set[str]) -> bool:
        """Whether something of another key waits, of these runs, or while the service has not said yet who
        this is: another one may have the same key. INVARIANT: then nothing is decided, nor told of them,
        before it has, as after a rotation, or where a file is damaged."""
        mine, is_known = (self.tag, self.url), self.url in self._noted(self.tag)
        left = (each for each in waiting(self.folder) if (each.get("key"), each.get("url")) != mine)
        return any(not is_known or not runs.isdisjoint(whose(each)) for each in left)

    def look_again(self) -> None:
        """At the notes of those of which nothing was known: their hooks may have been told meanwhile."""
        self._ids = {tag: ids for tag, ids in self._ids.items() if ids}

    def _known_as(self, tag: str, url: str) -> str:
        ids = self._noted(tag)
        only = next(iter(ids.values())) if len(set(ids.values())) == 1 else ""  # the service may have moved
        return ids.get(url, only)

    def _noted(self, tag: str) -> dict[str, str]:
        """As what services know a key, by their addresses: several may have been given the same."""
        if tag not in self._ids:
            try:
                found = json.loads(self._note(tag).read_bytes())
            except (OSError, ValueError, RecursionError):
                found = None
            ids = found.items() if isinstance(found, dict) else ()
            self._ids[tag] = {url: str(key_id) for url, key_id in ids}
        return self._ids[tag]

    def _note(self, tag: str) -> Path:
        return self.folder / f"{_KEY}-{tag}"


def append(folder: Path, entry: dict[str, Any]) -> None:
    with _locked(folder, _WRITING):
        _write(folder / WAITING, entry)


def need_room(folder: Path) -> None:
    """Raises OSError where nothing could be appended."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, folder / WAITING):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    space = os.statvfs(folder)
    if space.f_blocks and space.f_bavail * space.f_frsize < LEAST_ROOM:  # some file systems do not say
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def is_empty(folder: Path) -> bool:
    try:
        return (folder / WAITING).stat().st_size == 0
    except OSError:
        return True


def waiting(folder: Path) -> list[dict[str, Any]]:
    """What waits to be told, oldest first."""
    return [] if is_empty(folder) else [each for each in _entries(folder / WAITING) if _NO_ENTRY not in each]


def replay(folder: Path, send: Send, go_on: Callable[[], bool], tag: str = "") -> bool:
    """Tell the service of what waits, oldest first, as long as `go_on` says so. False: another hook with the
    same key (`tag`) is at it, or an older one, which takes lines away by their number."""
    with (
        contextlib.suppress(BlockingIOError),
        _locked(folder, _TELLING, fcntl.LOCK_SH | fcntl.LOCK_NB),
        _locked(folder, f"{_TELLING}-{tag}", fcntl.LOCK_EX | fcntl.LOCK_NB),
    ):
        with _locked(folder, _WRITING):
            found = list(_entries(folder / WAITING))
        now: dict[str, dict[str, Any] | None] = {}  # what has become of some; None: told
        try:
            for entry in found:
                if not go_on():
                    break
                name, key = _named(entry), entry.get("key")
                why = send(entry) if _NO_ENTRY not in entry else "it is no entry of the journal"
                if why:
                    with _locked(folder, _WRITING):
                        _write(folder / REFUSED, {**entry, "refused": why})
                if why is not None or entry.get("key") != key:
                    now[name] = entry if why is None else None
        finally:
            if now:
                with _locked(folder, _WRITING):  # others have put more there, or taken theirs away
                    left = (now.get(_named(each), each) for each in list(_entries(folder / WAITING)))
                    _replace(folder / WAITING, filter(None, left))
        return True
    return False


def _named(entry: Mapping[str, Any]) -> str:
    """By which an entry is known again, whoever has told whose it is meanwhile."""
    return json.dumps({**entry, "key": None}, sort_keys=True)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """A line without an end was never answered for, since whoever wrote it died before it was on disk. One
    that is no entry stops none that come after it."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _entry(line)


def _entry(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    said = found if isinstance(found, dict) else {}
    is_entry = "decidedOffline" in said and all(isinstance(said.get(name), str) for name in _TEXTS)
    return said if is_entry else {_NO_ENTRY: line.decode("utf-8", "replace")}


def _write(path: Path, entry: dict[str, Any]) -> None:
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "r+b", buffering=0) as file:  # noqa: PTH123 - opened with a mode of its own
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.ftruncate(descriptor, _whole(descriptor, size))
        written = file.write(line)
        if written != len(line):
            raise OSError("the journal cannot be written whole")
        os.fsync(descriptor)
    if new:
        _sync_folder(path.parent)


def _whole(descriptor: int, size: int) -> int:
    """Where the last whole line ends."""
    return os.pread(descriptor, size, 0).rfind(b"\n") + 1


def _replace(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    temporary.touch(0o600)
    with temporary.open("wb") as file:
        for entry in entries:
            file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(folder: Path, name: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Raises BlockingIOError when another hook has the lock and this one is not to wait."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
