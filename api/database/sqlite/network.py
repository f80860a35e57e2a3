"""Whether a SQLite database lies on the file system of a network.

Locks and what one machine has mapped into memory do not reach another one there, or not reliably: a second
service takes the database for one that nobody has open, and destroys it; or it sees a part of it, which looks
as if it were damaged or an older one.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
QUIET_SECONDS: Final = 60.0
"""A service at work writes more often, also where what is known of a file may be 20 seconds old (sshfs)."""
_OF_A_NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb3|(?:fuse\.)?(?:ceph|glusterfs)|lustre|gpfs|beegfs|afs|gfs2|ocfs2"
    r"|fuse\.(?:sshfs|ceph-fuse|juicefs|rclone|s3fs|gcsfuse|blobfuse2|mount-s3)"
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
        if len(fields) > 2 and fields[2] == of_device and _OF_A_NETWORK.fullmatch(kind):
            return kind
    return None


def in_use_elsewhere(path: Path) -> str | None:
    """Why a service must not begin: another one writes there, as the time of its log tells. One that ends in
    order leaves an empty one, so only after one that was killed somebody waits for nothing."""
    kind = network_file_system(path)
    if kind is None:
        return None
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=path.parent) as probe:
        # By the clock of the file system; to be opened asks a server anew.
        with Path(f"{path}-wal").open("rb") as log:
            found = os.fstat(log.fileno())
        age = os.fstat(probe.fileno()).st_mtime - found.st_mtime
        if found.st_size > 0 and age < QUIET_SECONDS:
            return (
                f"the database `{path}` lies on a network file system ({kind}) and was written less than "
                f"{QUIET_SECONDS:.0f} seconds ago: a service uses it, perhaps on another machine, and a "
                "second one would destroy it. Stop that one; if it was killed, start again a minute after it"
            )
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
