"""Whether a process has the database open under another name: of a hard link, or of a file that was mounted
once more. To SQLite each name has a log of its own, so two would write over one another.

SQLite locks the file whatever its name, and the index of the log, which lies beside the name. Whoever holds
the first without the second came by another name. Only Linux tells.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

from api.database.errors import DatabaseUnavailable
from api.database.sqlite.files import beside_database

SHARED: Final = (0x4000_0002, 510)
"""The bytes of the database that whoever has it open locks: https://www.sqlite.org/src/file?name=src/os.h"""
OPEN: Final = (128, 1)
"""The byte of the index: https://www.sqlite.org/walformat.html, section 2.3"""
_FLOCK: Final = "hhqqi"
PATIENCE: Final = 2.0
"""Seconds that another process may be between the two when it begins or ends."""


def refuse_other_name(path: Path) -> None:
    """Raises DatabaseUnavailable. INVARIANT: nobody has it open in this process: to close a descriptor takes
    its locks away."""
    log_file, log_index = beside_database(path)
    if log_file.exists() and path.stat().st_nlink == 1:
        return  # its index may have been taken away
    deadline = time.monotonic() + PATIENCE
    while (who := _holder(path, SHARED)) and not _holder(log_index, OPEN):
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(
                f"{who} has the database `{path}` open under another name, such as that of a hard"
                " link (`cp -l`, `ln`): each name has a log of its own, so what one records the other would "
                "destroy. Name the file as that process does; for a copy of its own take `governance backup`"
            )
        time.sleep(0.05)


def also_named(path: Path) -> str | None:
    """What to say of a database that has other names, which nobody has open now."""
    try:
        names = path.stat().st_nlink
    except FileNotFoundError:
        return None
    if names == 1:
        return None
    return (
        f"The database `{path}` has {names} names (hard links; `find -samefile` finds them). Start it by "
        "this one only: what was recorded last may lie in a log beside a name, and by another name it would "
        "be missing, or destroy what is recorded here. A hard link is no backup; take `governance backup`."
    )


def _holder(path: Path, bytes_: tuple[int, int]) -> str:
    """Which other process has a lock there; empty: none, as far as the system tells."""
    if sys.platform != "linux":
        return ""
    import fcntl

    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, *bytes_, 0)
    with contextlib.suppress(OSError), path.open("rb") as file:
        kind, *_, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return f"process {process}" if process > 0 else "a process of another container"
    return ""
