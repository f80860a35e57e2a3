"""What the disk says: which files are there, and their exact bytes, read again only when they may differ.

Decides when a file's times are proof enough that it has not changed, and how long a problem of the disk
stands: until that path is looked at again. It knows no history and no documents.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.documents.document import digest_of
from engine.errors import DocumentError, PolicyFileInvalid, Problem, StorageError
from engine.worktree import git_state
from engine.worktree import paths as paths_
from engine.worktree.disk import EVERY, Disk, Pause, Signature, reason, settled, shown, unreadable

Progress = Callable[[str, int, int], None]
"""Told now and then of long work: what is being done, how many of how many are through it."""

Part = tuple[int, int]
"""One of how many parts of all files: `(0, 1)` is all of them, `(2, 10)` the third tenth."""

_OF_TESTS: Final = re.compile(rb"kind\W{1,4}PolicyTest\b")
_LIKE_TESTS: Final = (
    "this is not in force: a name that ends in `_test.yaml` is that of tests, and it is no `PolicyTest`; "
    "rename it so that it ends in another way, or remove it"
)


@dataclass(slots=True)
class FileState:
    """A path on disk; no digest when there is no file."""

    digest: str | None
    signature: Signature | None = None
    content: bytes | None = None


@dataclass(slots=True)
class Observed:
    """What the disk says; `full` when all of it was looked at. A refused path is not in `disk`."""

    full: bool
    disk: dict[str, FileState] = field(default_factory=dict)
    refused: dict[str, Problem] = field(default_factory=dict)
    no_folder: list[Problem] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    """Paths of files that are there, read or not."""
    folders: set[str] = field(default_factory=set)

    @property
    def problems(self) -> list[Problem]:
        return [*self.no_folder, *dict.fromkeys(self.refused.values())]


class DiskChanged(Exception):
    """The disk changed while we looked; start over."""


class Observer:
    """Looks at one disk. Safe to use from several threads."""

    def __init__(self, disk: Disk, nanoseconds: Callable[[], int]) -> None:
        """`nanoseconds` is the same clock as the file system's."""
        self._disk = disk
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Signature, str]] = {}
        self._tests: dict[str, tuple[Signature, bool]] = {}
        # INVARIANT: a problem stays here until its path, or all of the disk, is looked at again.
        self._standing: dict[str, Problem] = {}
        self.overlooked: list[Problem] = []
        """What looks like a document and is not read, by the last look at all of the disk."""
        self.folders: frozenset[str] = frozenset()
        """Those of that look."""
        self.unseen_git: list[Problem] = []
        """That nobody can tell what git is in the middle of, by that look."""

    def forget(self, part: Part) -> None:
        """Read this part of the files again next time, whatever their times say."""
        number, parts = part
        with self._lock:
            for path in [each for each in self._known if hash(each) % parts == number]:
                del self._known[path]

    @property
    def barred(self) -> bool:
        """True while a folder could not be looked into, so that only a look at all of the disk tells more."""
        with self._lock:
            return any(not paths_.ours(path) for path in self._standing)

    def observe(
        self,
        hints: Iterable[str] | None,
        expected: set[str],
        progress: Progress | None = None,
        pause: Pause = lambda: None,
    ) -> Observed:
        """Look at the hinted paths, or at all; `expected` paths that are not there are reported as gone."""
        seen = Observed(hints is None, no_folder=self.missing_folder())
        if hints is None:
            listing = self._disk.scan(pause)
            named = [path for path in listing.files if path.endswith(paths_.TEST)]
            mistaken = [each for path in named if (each := self._mistaken(path, listing.files[path]))]
            self.overlooked = [*listing.overlooked, *mistaken]
            self.folders = frozenset(listing.folders)
            self.unseen_git = git_state.out_of_sight(self._disk.root)
            seen.refused, seen.folders = listing.refused, listing.folders
            found = {path: each for path, each in listing.files.items() if not paths_.ignored(path)}
            wanted = {path for path in expected - found.keys() if not _covered(path, seen.refused)}
            self._find(wanted, found, seen)
        else:
            found = {}
            with self._lock:
                standing = dict(self._standing)
            paths = {*hints, *expected, *standing}
            wanted = {path for path in paths if paths_.ours(path) and not paths_.ignored(path)}
            seen.refused = {path: each for path, each in standing.items() if path not in wanted}
            self._find(wanted, found, seen)
        self._read(found, seen, progress, pause)
        with self._lock:
            if not seen.full:
                standing = {path: each for path, each in self._standing.items() if path not in wanted}
                seen.refused = standing | seen.refused
            self._standing = dict(seen.refused)
        return seen

    def expect(self, paths: Iterable[str], seen: Observed) -> None:
        """Look for these as well, after all of the disk was looked at."""
        found: dict[str, Signature] = {}
        wanted = set(paths) - seen.present
        self._find({path for path in wanted if not _covered(path, seen.refused)}, found, seen)
        self._read(found, seen, None)
        with self._lock:
            self._standing |= seen.refused

    def _find(self, paths: Iterable[str], found: dict[str, Signature], seen: Observed) -> None:
        """Sort paths into found, refused and gone."""
        for path in sorted(paths):
            each = self._disk.look(path)
            if each is None:
                seen.disk[path] = FileState(None)
            elif isinstance(each, Problem):
                seen.refused[path] = each
            else:
                found[path] = each

    def _read(
        self,
        found: dict[str, Signature],
        seen: Observed,
        progress: Progress | None,
        pause: Pause = lambda: None,
    ) -> None:
        for number, (path, signature) in enumerate(sorted(found.items()), 1):
            if number % EVERY == 0:
                pause()
            try:
                seen.disk[path] = self._look(path, signature)
            except OSError as error:
                seen.refused[path] = unreadable(path, error)
            if progress is not None and number % EVERY == 0:
                progress("reading", number, len(found))
        seen.present |= found.keys()
        # Once more: it may have gone while we looked, and what was in it only seemed to be deleted.
        seen.no_folder = seen.no_folder or self.missing_folder()

    def missing_folder(self) -> list[Problem]:
        return missing_folder(self._disk.root)

    def _look(self, path: str, signature: Signature) -> FileState:
        known = self._known.get(path)
        if known is not None and known[0] == signature:
            return FileState(known[1], signature)
        now = self._nanoseconds()
        content = self._disk.read(path)
        if content is None:
            return FileState(None)
        digest = digest_of(content)
        with self._lock:
            self._known.pop(path, None)
            if settled(signature, now):
                self._known[path] = (signature, digest)
        return FileState(digest, signature, content)

    def _mistaken(self, path: str, signature: Signature) -> Problem | None:
        """A problem when a file is named like a policy test but holds none: somebody may take it for a
        policy, and nobody enforces it."""
        known = self._tests.get(path)
        if known is None or known[0] != signature:
            now, content = self._nanoseconds(), None
            with contextlib.suppress(OSError):
                content = self._disk.read(path)
            known = signature, content is None or bool(_OF_TESTS.search(content))
            if settled(signature, now):
                self._tests[path] = known
        return None if known[1] else Problem(_LIKE_TESTS, "", "not-read", shown(path))

    def content(self, path: str, seen: FileState) -> bytes:
        """The bytes that were seen. Raises DiskChanged when the file has changed since, DocumentError."""
        if seen.content is None:
            try:
                seen.content = self._disk.read(path)
            except OSError as error:
                raise DocumentError([unreadable(path, error)]) from None
            if seen.content is None or digest_of(seen.content) != seen.digest:
                raise DiskChanged
        return seen.content

    def now(self, path: str) -> FileState:
        """One file as it is at this moment. Raises StorageError, PolicyFileInvalid."""
        found = self._disk.look(path)
        if isinstance(found, Problem):
            raise PolicyFileInvalid(f"`{shown(path)}` cannot be used; mend it first: {found}", [found])
        if found is None:
            return FileState(None)
        try:
            content = self._disk.read(path)
        except OSError as error:
            raise StorageError(f"`{shown(path)}` cannot be read: {reason(error)}") from error
        return FileState(None if content is None else digest_of(content), found, content)

    def emptied(self, folder: str) -> str:
        """This folder, or the next above it that is there, if nothing but what is hidden lies in it; else no
        name."""
        while folder:
            try:
                with os.scandir(self._disk.path(folder)) as entries:
                    return "" if any(each.name[:1] != "." for each in entries) else folder
            except (FileNotFoundError, NotADirectoryError):
                folder = folder.rpartition("/")[0]
            except OSError:
                return ""  # told of elsewhere
        return ""

    def is_free(self, path: str) -> bool:
        """Whether nothing stands there. Raises StorageError when nobody can tell, which another name in the
        same folder would not change."""
        found = self._disk.look(path)
        linked = os.path.islink(self._disk.path(path))  # noqa: PTH114 - the other one may raise
        if isinstance(found, Problem) and not linked and found.code in ("unreadable", "linked_folder"):
            raise StorageError(f"`{shown(path)}` cannot be looked at: {found.message}")
        return found is None

    def still(self, path: str, digest: str | None) -> None:
        """Raises DiskChanged when the file is not this any more, StorageError, PolicyFileInvalid."""
        if self.now(path).digest != digest:
            raise DiskChanged


def _covered(path: str, refused: Mapping[str, Problem]) -> bool:
    """True when the path or a folder above it is refused already, which says enough."""
    parts = path.split("/")
    return "" in refused or any("/".join(parts[:end]) in refused for end in range(1, len(parts) + 1))


def missing_folder(root: Path) -> list[Problem]:
    """A problem when the folder of policies is not there."""
    name = shown(str(root / "policies"))
    if os.path.isdir(root / "policies"):  # noqa: PTH112 - the other one may raise
        return []
    message = f"there is no folder `{name}`; make it (it may be empty): no policies means that all is allowed"
    return [Problem(message, "", "no_folder", name)]
