"""A file that holds a secret of this installation: made once, mode 0600, refused when others may read it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from api.settings import SettingsError
from engine.worktree.disk import flush_names
from engine.worktree.ownership import new_file

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def kept(path: Path, what: str, make: Callable[[], str], otherwise: str) -> str:
    """The text of the file, made when it is not there. `what` names it in errors, and `otherwise` says what
    to do where the file system has no modes. Raises SettingsError when it must not be used."""
    try:
        if not path.exists():
            make_data_folder(path.parent)
            create(path, make())
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # to read a pipe would wait for somebody who writes
            raise SettingsError(f"{what} `{path}` cannot be used: it is no file; take it away")
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        if isinstance(error, PermissionError):
            reason = f"{reason}; give it to the user of the service"
        raise SettingsError(f"{what} `{path}` cannot be used: {reason}") from None
    mode = stat.S_IMODE(found.st_mode)
    if os.name != "nt" and is_open(mode, found.st_uid, os.getuid()):
        raise SettingsError(
            f"{what} `{path}` may be read by other users of this machine (mode {mode:04o}); "
            f"run `chmod 600 {path}`; where the file system has no modes, {otherwise}"
        )
    return text


def is_open(mode: int, owner: int, user: int) -> bool:
    """Whether others than this user may read a file of theirs. What root hands to a group, such as a
    credential of systemd or a mounted secret, that group alone may read."""
    return bool(mode & (0o037 if owner == 0 and user != 0 else 0o077))


def make_data_folder(folder: Path) -> None:
    """The data folder, closed to other users and to git when it is new. Raises SettingsError when it cannot
    be made."""
    if folder.is_symlink() and not folder.exists():
        raise SettingsError(
            f"the data folder `{folder}` is a link to `{folder.readlink()}`, which is not there"
        )
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"the data folder `{folder}` is no folder")
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            create(folder / ".gitignore", "*")
    except OSError as error:
        raise SettingsError(f"the data folder `{folder}` cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"the data folder `{folder}` cannot be written; change its owner or mode")


def create(path: Path, text: str) -> None:
    """Written aside, flushed and linked into place, so that of several starting processes one wins and none
    ever reads half a secret. Where the file system has no links (exFAT, some network shares), only one wins.
    Raises OSError."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    _written(aside, text)
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileExistsError):
            _written(path, text)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in it survive a power cut, where the file system can do that."""
    with contextlib.suppress(OSError):
        flush_names(folder)


def _written(path: Path, text: str) -> None:
    """A file that was not there before. Raises OSError."""
    descriptor = new_file(path)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
