"""Whose a file is that root makes: its folder's owner's.

A service runs as a user of its own, and whoever runs the machine types commands as root. What such a command
makes beside the data or the policies, that user must be able to read, write and replace.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def new_file(path: Path, mode: int = 0o600, flags: int = os.O_WRONLY) -> int:
    """A descriptor of a file that was not there before. Raises OSError, FileExistsError when it was."""
    handle = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with _removed_if_refused(path, handle):
        _hand_over(handle, path.parent)
    return handle


def new_file_like(path: Path, before: Path) -> int:
    """The same, for what is to take the place of a file: with its mode, and of its owner. Raises OSError."""
    handle = new_file(path)
    with _removed_if_refused(path, handle):
        _hand_over(handle, before)
        if os.name != "nt":
            os.fchmod(handle, stat.S_IMODE(before.stat().st_mode))
    return handle


@contextmanager
def _removed_if_refused(path: Path, handle: int) -> Iterator[None]:
    try:
        yield
    except OSError:
        os.close(handle)
        path.unlink(missing_ok=True)
        raise


def _hand_over(handle: int, like: Path) -> None:
    """An open file, or folder, that was just made, to the owner of another. INVARIANT: never one that was
    there before, which may be a link that somebody laid there. Raises OSError."""
    if os.name == "nt" or os.geteuid() != 0:
        return
    owner = like.stat()
    if owner.st_uid != 0:
        os.fchown(handle, owner.st_uid, owner.st_gid)


def made_folder(folder: Path) -> None:
    """A folder, with those above it, made where it is missing. Raises OSError."""
    if folder.is_dir():
        return
    made_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _hand_over(handle, folder.parent)
    finally:
        os.close(handle)
