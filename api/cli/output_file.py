"""A file that a command writes: whole or not at all, never over a file that nobody gave up, and never over
one of the service itself."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from api.cli.terminal import USAGE, CommandError

if TYPE_CHECKING:
    from api.settings import Settings

BESIDE = ("-wal", "-shm", "-journal", ".lock", ".senders", ".policies", ".copied")
"""What SQLite and the service keep beside the database."""


@contextlib.contextmanager
def output_file(target: Path, settings: Settings, *, force: bool) -> Iterator[Path]:
    """Where to write; it gets the name of the target at the end. Raises CommandError."""
    if str(target) == "-":
        raise CommandError("this is written to a file, not to a pipe; name one", USAGE)
    _refuse_own(target, settings)
    if target.exists() and not target.is_file():
        raise CommandError(f"`{target}` is no file; name one", USAGE)
    if target.exists() and not force:
        raise CommandError(f"`{target}` exists; give --force to replace it")
    aside = target.with_name(f".{target.name}-{secrets.token_hex(6)}")
    try:
        # It holds secrets or what agents did: nobody else may read it.
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(target)
    except OSError as error:
        raise CommandError(f"`{target}` cannot be written: {error.strerror}") from None
    finally:
        for each in (aside, Path(f"{aside}-journal")):  # which SQLite leaves beside a copy that failed
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)


def _refuse_own(target: Path, settings: Settings) -> None:
    from api.audit import installation_key, mark
    from api.auth import signing_secret
    from api.database.sqlite.files import resolved

    own = [settings.data_dir / name for name in (signing_secret.FILE, mark.FILE)]
    own.append(installation_key.key_file(settings))
    if settings.database.startswith("sqlite:///"):
        database = Path(settings.database.removeprefix("sqlite:///"))
        own += [database, *(Path(f"{resolved(database)}{ending}") for ending in BESIDE)]
    real = Path(os.path.realpath(target))
    if real in {Path(os.path.realpath(path)) for path in own}:
        raise CommandError(f"`{target}` is a file of the service itself; give another name", USAGE)
    if real.is_relative_to(os.path.realpath(settings.policies_dir)):
        raise CommandError(f"`{target}` lies in the policies folder; give another place", USAGE)
