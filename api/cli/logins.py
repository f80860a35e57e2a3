"""Who is logged in to which service from this machine: tokens in one file, mode 0600, until they expire.

The file is `governance/logins.json` below `$XDG_STATE_HOME`, which is `~/.local/state` where it is not set. A
file that others may read is refused, not mended: its tokens may be known already.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from api.cli.terminal import USAGE, CommandError


@dataclass(frozen=True, slots=True)
class Login:
    """One person at one service."""

    token: str
    email: str
    role: str
    expires: float
    """Seconds since the epoch, by the clock of this machine."""

    @property
    def is_over(self) -> bool:
        return self.expires <= time.time()


def path() -> Path:
    """Raises CommandError."""
    state = os.environ.get("XDG_STATE_HOME") or ""
    # A relative one counts as not set, by the specification of XDG.
    try:
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError:
        said = (
            "you have no home folder on this machine; set XDG_STATE_HOME, or GOVERNANCE_TOKEN for this once"
        )
        raise CommandError(said, USAGE) from None
    return base / "governance" / "logins.json"


def check() -> None:
    """Before anybody is asked for anything. Raises CommandError where no login can be kept."""
    _read()


def find(url: str) -> Login | None:
    """The login to this service, over or not. Raises CommandError."""
    entry = _read().get(url)
    try:
        return None if entry is None else _login(**entry)
    except TypeError:
        raise CommandError(f"`{path()}` cannot be read; remove it and log in again", USAGE) from None


def _login(token: str, email: str, role: str, expires: float) -> Login:
    if not all(isinstance(each, str) for each in (token, email, role)) or not isinstance(
        expires, int | float
    ):
        raise TypeError
    return Login(token, email, role, expires)


def keep(url: str, login: Login) -> None:
    _write(_read() | {url: asdict(login)})


def forget(url: str) -> bool:
    """Whether there was one."""
    found = _read()
    if url not in found:
        return False
    del found[url]
    _write(found)
    return True


def _read() -> dict[str, Any]:
    file = path()
    try:
        with file.open(encoding="utf-8") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if os.name != "nt" and mode & 0o077:
                raise CommandError(
                    f"`{file}` may be read by other users of this machine (mode {mode:04o}); remove it, "
                    "log in again, and change your password if others may have read it",
                    USAGE,
                )
            found = json.load(opened)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandError(f"`{file}` cannot be read: {error.strerror}", USAGE) from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandError(f"`{file}` cannot be read; remove it and log in again", USAGE)
    return found


def _write(logins: dict[str, Any]) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    file = path()
    aside = file.with_name(f".{file.name}-{secrets.token_hex(6)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(logins, opened, indent=2)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
    except OSError as error:
        raise CommandError(f"`{file}` cannot be written: {error.strerror}", USAGE) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
