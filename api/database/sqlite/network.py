"""Whether a SQLite database lies on the file system of a network.

Locks and what one machine has mapped into memory do not reach another one there, or not reliably: a second
service takes the database for one that nobody has open, and destroys it; or it sees a part of it, which looks
as if it were damaged or an older one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
_OF_A_NETWORK: Final = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "ceph",
            "lustre",
            "gpfs",
            "beegfs",
            "afs",
            "gfs2",
            "ocfs2",
            "glusterfs",
        ),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs", "fuse.rclone"),
        *("fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse2", "fuse.mount-s3"),
    )
)


def network_file_system(path: Path) -> str | None:
    """Its kind, such as `nfs4`; None where there is none, or nobody can tell."""
    try:
        device = path.resolve().parent.stat().st_dev
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RuntimeError):
        return None
    of_device = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:
        mount, _, file_system = line.partition(" - ")
        fields, kind = mount.split(), file_system.split(" ", 1)[0]
        if len(fields) > 2 and fields[2] == of_device and kind in _OF_A_NETWORK:
            return kind
    return None


def perhaps_another_machine(path: Path) -> str:
    """What else it may be where a database seems to be damaged, or to lack something."""
    kind = network_file_system(path)
    if kind is None:
        return ""
    return (
        f". It lies on a network file system ({kind}), and where a service on another machine uses it, it "
        "looks the same from here: see that none runs there before you put or delete anything"
    )
