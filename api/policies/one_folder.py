"""With the embedded database all processes have one policies folder: what differs in it from what is in force
is an edit, whoever recorded that. Two services with a folder each would take back what the other one says,
for ever.

Whoever serves holds a lock of a file beside the database, which says where the folder is. It ends with the
process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from api.database.sqlite.write_lock import opened
from api.settings import Settings, SettingsError

ENDING: Final = ".policies"
MOST_BYTES: Final = 16_384


class Folder(msgspec.Struct, frozen=True):
    """Known by its path, since a link in it may be switched meanwhile, or by what it is, since it may have
    two paths."""

    path: str
    device: int
    number: int
    mounts: str = ""
    """Of which containers may have several: in another one the same path is another folder."""

    def is_same(self, other: Folder) -> bool:
        named_alike = (self.path, self.mounts) == (other.path, other.mounts)
        return named_alike or (self.device, self.number) == (other.device, other.number)


@contextlib.contextmanager
def held(settings: Settings) -> Iterator[None]:
    """While it serves. Raises SettingsError where somebody else does with another folder."""
    if os.name == "nt" or not settings.database.startswith("sqlite:///"):
        yield
        return
    database, policies = settings.database.removeprefix("sqlite:///"), settings.policies_dir
    with contextlib.ExitStack() as lasting:
        other = None
        # In a folder that is only read, or on a disk that fails or knows no locks, nobody can be told.
        with contextlib.suppress(OSError):
            file = opened(Path(f"{database}{ENDING}"))
            lasting.callback(os.close, file)
            other = _served(file, _folder(policies))
        if other is not None:
            elsewhere = " of its container" if other.path == str(policies.absolute()) else ""
            raise SettingsError(
                f"another service runs on the database `{database}`, with the policies folder "
                f"`{other.path}`{elsewhere}: with an embedded database there is one folder, so that one and "
                f"`{policies}` would undo one another. Name that one with --policies-dir or "
                "GOVERNANCE_POLICIES_DIR, stop the other service, or give this one data of its own with "
                "--data-dir"
            )
        yield


def _folder(policies: Path) -> Folder:
    found, mounts = policies.stat(), ""
    with contextlib.suppress(OSError):  # no Linux, or nobody may look
        mounts = str(Path("/proc/self/ns/mnt").readlink())
    return Folder(str(policies.absolute()), found.st_dev, found.st_ino, mounts)


def _served(file: int, own: Folder) -> Folder | None:
    """The folder of those who serve, where it is another one. Who is alone says that it is its own."""
    import fcntl

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):  # a full disk: then the file says nothing
            os.ftruncate(file, 0)
            os.pwrite(file, msgspec.json.encode(own), 0)
    # Of two that begin at once one may have written in between: then that one's counts, for both.
    fcntl.flock(file, fcntl.LOCK_SH)
    try:
        found = msgspec.json.decode(os.pread(file, MOST_BYTES, 0), type=Folder)
    except msgspec.DecodeError:
        return None
    return None if found.is_same(own) else found
