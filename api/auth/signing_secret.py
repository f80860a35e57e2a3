"""The secret that signs access tokens: the configured one, else a random one kept in the data folder.

Whoever reads it can be anybody, so it is written with mode 0600 and refused when others may read it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from api.settings import Settings, SettingsError

FILE: Final = "jwt-secret"
SHORTEST: Final = 32
"""Bytes."""


def signing_secret(settings: Settings) -> bytes:
    """The secret's bytes; made at the first call. Raises SettingsError when it must not be used."""
    if settings.jwt_secret:
        return settings.jwt_secret.encode()
    path = settings.data_dir / FILE
    make_data_folder(settings.data_dir)
    try:
        if not path.exists():
            _create(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        secret = path.read_text(encoding="ascii").strip().encode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"the signing secret `{path}` cannot be used: {reason}") from None
    if os.name != "nt" and mode & 0o077:
        raise SettingsError(
            f"the signing secret `{path}` may be read by other users of this machine (mode {mode:04o}); "
            f"run `chmod 600 {path}`, or set GOVERNANCE_JWT_SECRET where the file system has no modes"
        )
    if len(secret) < SHORTEST:
        raise SettingsError(
            f"the signing secret `{path}` is shorter than {SHORTEST} bytes; delete the file to get a new one "
            "(everybody logs in again)"
        )
    return secret


def make_data_folder(folder: Path) -> None:
    """The data folder, closed to other users when it is new; raises SettingsError when it cannot be made."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"the data folder `{folder}` cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"the data folder `{folder}` cannot be written; change its owner or mode")


def _create(path: Path) -> None:
    # Written aside, flushed and linked into place, so that of several starting processes one wins and none
    # ever reads half a secret.
    aside = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)
