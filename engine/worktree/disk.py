"""The disk, as the repository uses it: list, read, replace atomically, remove.

Decides what counts as a file of ours (hidden and `_` names do not) and what is refused to be read at all:
folders named like documents, devices, links out of the folder. It is also the seam for fault tests: every
step that can fail in its own way is one method.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.errors import Problem, StorageError
from engine.worktree.ownership import made_folder, new_file

MAX_READ: Final = (1 << 20) + 1
RACY_NANOSECONDS: Final = 2_000_000_000
"""A file changed so shortly before it was read may change again within one tick of the file system's clock,
so its signature is not trusted (git calls this racy)."""

Signature = tuple[int, int, int, int]
"""Inode, size, time of the last write, time of the last change; the latter cannot be set by users."""

Pause = Callable[[], None]
"""Called now and then during long work; what it raises ends the work."""

EVERY: Final = 100
"""Files between two pauses, or two words on progress."""

_ALMOST: Final = re.compile(r"(.+?)\.(?:ya?ml[^/]+|yam|ymal|yalm)", re.IGNORECASE | re.DOTALL)
"""`hold.yaml.txt`, `hold.yml~`, `hold.yam`."""

LastLook = Callable[[], None]
"""Raises when a file is not any more what it was when it was decided to change it."""


LEFT_SECONDS: Final = 60.0
"""So old, a temporary note is of a process that died."""


@dataclass(slots=True)
class Listing:
    """Every YAML file under the folder, and what could not be looked at."""

    files: dict[str, Signature] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    refused: dict[str, Problem] = field(default_factory=dict)
    """What is there but is no file of ours, or cannot be looked at, by path."""
    almost: dict[str, str] = field(default_factory=dict)
    """Files whose names are nearly those of documents, and the names that they nearly have."""

    @property
    def problems(self) -> list[Problem]:
        return list(self.refused.values())

    @property
    def overlooked(self) -> list[Problem]:
        """What looks like a document and is not read, save copies that lie beside the document itself."""
        return [_not_read(path) for path, name in self.almost.items() if name not in self.files]


class Disk:
    """File operations under one folder; paths are relative, with `/`."""

    def __init__(self, root: Path) -> None:
        self.root = Path.cwd() / root

    def path(self, relative: str) -> Path:
        return self.root / relative

    def identity(self) -> tuple[int, int] | None:
        """Which folder it is, however it is named; None where it is missing or empty."""
        try:
            status = self.root.stat()
            return (status.st_dev, status.st_ino) if any(self.root.iterdir()) else None
        except OSError:
            return None

    # ---- reading ---------------------------------------------------------------------------------------

    def scan(self, pause: Pause = lambda: None) -> Listing:
        """Walk the folder. Never follows a linked folder, never opens anything."""
        listing = Listing()
        met = 0
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(self.root / folder) as entries:
                    for entry in sorted(entries, key=lambda each: each.name):
                        if met % EVERY == 0:
                            pause()
                        met += 1
                        if entry.name.startswith((".", "_")):
                            continue
                        relative = f"{folder}/{entry.name}" if folder else entry.name
                        self._enter(entry, relative, listing, pending)
            except OSError as error:
                if folder and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    continue  # it has just gone, which a look at each of its files confirms
                where = shown(folder or str(self.root))
                message = f"the folder `{where}` cannot be read: {reason(error)}"
                listing.refused[folder] = Problem(message, "", "unreadable", where)
        return listing

    def _enter(self, entry: os.DirEntry[str], relative: str, listing: Listing, pending: list[str]) -> None:
        try:
            if _document(entry.name):
                found = self._judge(relative, entry.stat(follow_symlinks=False))
                if isinstance(found, Problem):
                    listing.refused[relative] = found
                else:
                    listing.files[relative] = found
            elif entry.is_dir():
                if entry.is_symlink():
                    listing.refused[relative] = _linked_folder(relative)
                else:
                    listing.folders.add(relative)
                    pending.append(relative)
            elif near := _ALMOST.fullmatch(relative):
                listing.almost[relative] = f"{near[1]}.yaml"
        except FileNotFoundError:
            return
        except OSError as error:
            if _document(entry.name) or error.errno == errno.ELOOP:
                listing.refused[relative] = unreadable(relative, error)

    def look(self, relative: str) -> Signature | Problem | None:
        """What stands at the path of a document; a problem where a scan would have one.

        INVARIANT: None, which ends a policy, only when nothing at all stands there: not for a link that
        leads nowhere, not for what may not be looked at.
        """
        parts = relative.split("/")
        try:
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                mode = (self.root / above).lstat().st_mode
                if stat.S_ISLNK(mode):
                    return _linked_folder(above)
                if not stat.S_ISDIR(mode):
                    return None
                if _document(above):
                    return _like_a_document(above)
            status = (self.root / relative).lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return unreadable(relative, error)
        return self._judge(relative, status)

    def _judge(self, relative: str, status: os.stat_result) -> Signature | Problem:
        """`status` is of the path itself, links not followed."""
        linked = stat.S_ISLNK(status.st_mode)
        if linked:
            try:
                status = (self.root / relative).stat()
            except FileNotFoundError:
                return _link_to_nothing(relative, self.root)
            except OSError as error:
                return unreadable(relative, error)
        if stat.S_ISDIR(status.st_mode):
            return _like_a_document(relative)
        if not stat.S_ISREG(status.st_mode):
            return Problem("this is not a regular file; remove it", "", "not_a_file", shown(relative))
        if linked and not self._inside(relative):
            message = "this link leads out of the policies folder; put the file itself here"
            return Problem(message, "", "link_outside", shown(relative))
        return signature_of(status)

    def _inside(self, relative: str) -> bool:
        root = os.path.realpath(self.root)
        return os.path.commonpath([root, os.path.realpath(self.root / relative)]) == root

    def read(self, relative: str) -> bytes | None:
        """The bytes of a file, one more than allowed at most; None when there is none. Raises OSError."""
        try:
            handle = os.open(f"{self.root}/{relative}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            pieces: list[bytes] = []
            left = MAX_READ
            while left and (piece := os.read(handle, min(left, 1 << 20))):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)
        finally:
            os.close(handle)

    def is_link(self, relative: str) -> bool:
        return (self.root / relative).is_symlink()

    # ---- writing ---------------------------------------------------------------------------------------

    def replace(self, relative: str, content: bytes, last_look: LastLook = lambda: None) -> None:
        """Put content into a file in one rename; after it returns, the content survives a power cut.

        `last_look` is taken when all that takes time is done, right before the rename. Raises StorageError,
        or what `last_look` raises, with nothing changed.
        """
        target = self.root / relative
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            self.make_folder(target.parent)
            self.write_temporary(temporary, content)
            with contextlib.suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            last_look()
            self.rename(temporary, target)
        except Exception as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            if not isinstance(error, OSError):
                raise
            raise StorageError(f"`{shown(relative)}` cannot be written: {reason(error)}") from error
        with contextlib.suppress(OSError):
            self.sync_folder(target.parent)

    def remove(self, relative: str, last_look: LastLook = lambda: None) -> None:
        """Remove a file if it is there. Raises StorageError, or what `last_look` raises."""
        target = self.root / relative
        last_look()
        try:
            self.unlink(target)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"`{shown(relative)}` cannot be removed: {reason(error)}") from error
        with contextlib.suppress(OSError):
            self.sync_folder(target.parent)

    def make_folder(self, folder: Path) -> None:
        made_folder(folder)

    def write_temporary(self, path: Path, content: bytes) -> None:
        mode = 0o644
        try:
            handle = new_file(path, mode)
        except FileExistsError:  # a crash has left it
            path.unlink()
            handle = new_file(path, mode)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
            self.sync_file(handle)
        finally:
            os.close(handle)

    def sync_file(self, handle: int) -> None:
        os.fsync(handle)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, target: Path) -> None:
        target.unlink()

    def sync_folder(self, folder: Path) -> None:
        flush_names(folder)

    def note(self, relative: str, content: bytes) -> None:
        """Keep a note of our own beside the documents. Raises StorageError."""
        target = self.root / relative
        temporary = target.with_name(f"{target.name}.{secrets.token_hex(6)}.tmp")
        try:
            if not target.parent.is_dir():
                self.root.stat()  # a folder that is gone is not made anew: it may be about to come back
                made_folder(target.parent)
                (target.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            with os.fdopen(new_file(temporary, 0o666), "wb") as file:
                file.write(content)
            temporary.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise StorageError(f"`{shown(relative)}` cannot be written: {reason(error)}") from error

    def rename_note(self, relative: str, new: str) -> None:
        """Give a note another name in the same folder."""
        with contextlib.suppress(OSError):
            (self.root / relative).replace(self.root / new)

    def is_read_only(self) -> bool:
        """Nobody writes into the folder here, by the API either."""
        return not os.access(self.root, os.W_OK)

    def notes(self, relative: str) -> list[str]:
        """The names of the notes in a folder of ours; none where it cannot be read."""
        try:
            return [each.name for each in (self.root / relative).iterdir()]
        except OSError:
            return []

    def forget(self, relative: str) -> None:
        """Remove a note."""
        with contextlib.suppress(OSError):
            (self.root / relative).unlink()

    def clean(self, folders: Iterable[str]) -> None:
        """Remove temporary files that a crash left behind, in these folders of ours."""
        for folder in folders:
            with contextlib.suppress(OSError):
                for left in (self.root / folder).glob(".*.yaml.*.tmp"):
                    left.unlink()
        with contextlib.suppress(OSError):
            for left in self.root.glob(".governance/*.tmp"):
                if left.stat().st_mtime < time.time() - LEFT_SECONDS:  # else another process writes it now
                    left.unlink()


def flush_names(folder: Path) -> None:
    """What was made, renamed or removed in it outlives a power cut. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def signature_of(status: os.stat_result) -> Signature:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def settled(signature: Signature, now_ns: int) -> bool:
    """True when an equal signature later means equal content."""
    return max(signature[2], signature[3]) < now_ns - RACY_NANOSECONDS


def shown(path: str) -> str:
    """A path as text that can be printed on one line, whatever bytes it holds."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def listed(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def listed_paths(paths: Sequence[str], most: int) -> str:
    """The same of paths."""
    return listed([f"`{shown(path)}`" for path in paths], most)


def unreadable(path: str, error: OSError) -> Problem:
    return Problem(f"this cannot be read: {reason(error)}", "", "unreadable", shown(path))


def _document(name: str) -> bool:
    """Also with blanks behind the ending, which are easily overlooked."""
    return name.rstrip().lower().endswith((".yaml", ".yml", ".json"))


def _not_read(path: str) -> Problem:
    message = "this looks like a document and is not read; rename it so that it ends in `.yaml`, or remove it"
    return Problem(message, "", "not-read", shown(path))


def _link_to_nothing(path: str, root: Path) -> Problem:
    try:
        target = shown(str((root / path).readlink()))
    except OSError as error:
        return unreadable(path, error)
    message = f"this is a link to `{target}`, where nothing is; put that back, or remove the link"
    return Problem(message, "", "unreadable", shown(path))


def _linked_folder(path: str) -> Problem:
    message = "linked folders are not followed; put the files themselves here"
    return Problem(message, "", "linked_folder", shown(path))


def _like_a_document(path: str) -> Problem:
    message = "this is a folder, but named like a document; rename it"
    return Problem(message, "", "not_a_file", shown(path))


def reason(error: OSError) -> str:
    """The system's reason, lower case, without paths or numbers."""
    return (error.strerror or "the system does not say why").lower()
