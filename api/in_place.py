"""Whether new files of a folder are written in place, on file systems that copy what is written (btrfs).

SQLite maps the index of its log (`-shm`) into memory, and so are the counts that processes share. To write
there takes room of the disk where each page gets a new place, and where there is none the process is ended by
SIGBUS, without a word.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from pathlib import Path
from typing import Final

_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_IN_PLACE: Final = 0x00800000
"""As `chattr +C` sets it; what is made in the folder from then on has it, too."""
_FLAGS: Final = struct.Struct("@l")


def write_in_place(folder: Path) -> None:
    """Have it so from now on, as far as this file system knows of it and this user may say so."""
    if sys.platform != "linux":
        return
    import fcntl

    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _FLAGS.pack(0)))
            if not flags & _IN_PLACE:
                fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _IN_PLACE))
        finally:
            os.close(descriptor)
