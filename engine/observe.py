"""What the disk says: which files are there, and their exact bytes, read again only when they may differ.

Decides when a file's times are proof enough that it has not changed. It knows no history and no documents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from engine import folder
from engine.disk import Disk, Signature, reason, settled, shown
from engine.documents import digest_of
from engine.errors import DocumentError, Problem, StorageError

Progress = Callable[[str, int, int], None]
"""Told now and then of long work: what is being done, how many of how many are through it."""

EVERY: Final = 100
"""Documents between two words on progress."""


@dataclass(slots=True)
class Seen:
    """A path on disk; no digest when there is no file."""

    digest: str | None
    signature: Signature | None = None
    content: bytes | None = None


@dataclass(slots=True)
class Observed:
    """What the disk says; `full` when all of it was looked at."""

    disk: dict[str, Seen]
    problems: list[Problem]
    full: bool = True
    present: set[str] = field(default_factory=set)
    """Paths that are there, read or not."""
    folders: set[str] = field(default_factory=set)


class Again(Exception):
    """The disk changed while we looked; start over."""


class Observer:
    """Looks at one disk. Safe to use from several threads."""

    def __init__(self, disk: Disk, nanoseconds: Callable[[], int]) -> None:
        """`nanoseconds` is the same clock as the file system's."""
        self._disk = disk
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Signature, str]] = {}

    def forget(self) -> None:
        """Read every file again next time."""
        with self._lock:
            self._known.clear()

    def observe(
        self, hints: Iterable[str] | None, expected: set[str], progress: Progress | None = None
    ) -> Observed:
        """Look at the hinted paths, or at all; `expected` paths that are not there are reported as gone."""
        problems = self.missing_folder()
        known = set(expected)
        folders: set[str] = set()
        if hints is None:
            listing = self._disk.scan()
            problems += listing.problems
            folders = listing.folders
            found = {path: each for path, each in listing.files.items() if not folder.ignored(path)}
        else:
            known = {path for path in {*hints, *expected} if folder.ours(path) and not folder.ignored(path)}
            found = {path: each for path in known if (each := self._disk.signature(path)) is not None}
        disk: dict[str, Seen] = {path: Seen(None) for path in known - found.keys()}
        for number, (path, signature) in enumerate(sorted(found.items()), 1):
            seen = self._look(path, signature, problems)
            if seen is not None:
                disk[path] = seen
            if progress is not None and number % EVERY == 0:
                progress("reading", number, len(found))
        return Observed(disk, problems, hints is None, set(found), folders)

    def missing_folder(self) -> list[Problem]:
        """A problem when the folder of policies is not there."""
        name = shown(str(self._disk.root / "policies"))
        if (self._disk.root / "policies").is_dir():
            return []
        message = (
            f"there is no folder `{name}`; make it (it may be empty): no policies means that all is allowed"
        )
        return [Problem(message, "", "no_folder", name)]

    def _look(self, path: str, signature: Signature, problems: list[Problem]) -> Seen | None:
        known = self._known.get(path)
        if known is not None and known[0] == signature:
            return Seen(known[1], signature)
        now = self._nanoseconds()
        try:
            content = self._disk.read(path)
        except OSError as error:
            problems.append(_unreadable(path, error))
            return None
        if content is None:
            return Seen(None)
        digest = digest_of(content)
        with self._lock:
            self._known.pop(path, None)
            if settled(signature, now):
                self._known[path] = (signature, digest)
        return Seen(digest, signature, content)

    def content(self, path: str, seen: Seen) -> bytes:
        """The bytes that were seen. Raises Again when the file has changed since, DocumentError."""
        if seen.content is None:
            try:
                seen.content = self._disk.read(path)
            except OSError as error:
                raise DocumentError([_unreadable(path, error)]) from None
            if seen.content is None or digest_of(seen.content) != seen.digest:
                raise Again
        return seen.content

    def now(self, path: str) -> Seen:
        """One file as it is at this moment. Raises StorageError."""
        try:
            signature = self._disk.signature(path)
            content = self._disk.read(path)
        except OSError as error:
            raise StorageError(f"`{shown(path)}` cannot be read: {reason(error)}") from error
        return Seen(None if content is None else digest_of(content), signature, content)


def _unreadable(path: str, error: OSError) -> Problem:
    return Problem(f"this cannot be read: {reason(error)}", "", "unreadable", shown(path))
