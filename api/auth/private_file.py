"""A file that holds a secret of this installation: made once, mode 0600, refused when others may read it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from api.settings import SettingsError


def kept(path: Path, what: str, make: Callable[[], str], otherwise: str) -> str:
    """The text of the file, made when it is not there. `what` names it in errors, and `otherwise` says what
    to do where the file system has no modes. Raises SettingsError when it must not be used."""
    make_data_folder(path.parent)
    try:
        if not path.exists():
            create(path, make())
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{what} `{path}` cannot be used: {reason}") from None
    if os.name != "nt" and mode & 0o077:
        raise SettingsError(
            f"{what} `{path}` may be read by other users of this machine (mode {mode:04o}); "
            f"run `chmod 600 {path}`{otherwise}"
        )
    return text


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
    ever reads half a secret. Raises OSError."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)
