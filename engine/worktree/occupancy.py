"""Whether the folder is another installation's as well: each leaves its id there and looks whether it stands.

One of before is overwritten, since a service that was set up anew finds its predecessor's; the log tells of
it once, for a data folder that is not mounted, or was mistyped, begins anew as well. Who has policies of its
own overwrites none as long as files are not as in force (`barred`): they are what the other one says, and the
database may be the wrong one. In a folder that is only read here, that id is nobody's of before: it is of who
writes it, and stays. Who finds its own overwritten is not alone, and puts it back, so that the other one
finds that out, too.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from typing import Final

from engine.errors import Problem, StorageError
from engine.worktree import markers
from engine.worktree.disk import Disk, listed_paths
from engine.worktree.markers import Occupant

LONGEST_HOST: Final = 100
MOST_NAMED: Final = 5

log = logging.getLogger("governance.policies")


class Occupancy:
    """Looked at with every rescan; without an id of the installation it does nothing."""

    def __init__(self, disk: Disk, installation: str) -> None:
        self._disk = disk
        self._own = Occupant(installation, socket.gethostname()[:LONGEST_HOST])
        self._stands = False
        self.problems: tuple[Problem, ...] = ()
        """Who else is here; empty as long as nobody is known to be."""

    def barred(self, edits: Iterable[str]) -> list[Problem]:
        """Why these files do not count: they are as another installation has them, whose folder it was until
        now."""
        if self._stands or not self._own.installation:
            return []
        found = markers.read_occupant(self._disk)
        if found is None or found.installation == self._own.installation or self._disk.is_read_only():
            return []
        return [_differs(found, sorted(edits))]

    def forget(self) -> None:
        """The folder is another one from now on."""
        self._stands, self.problems = False, ()

    def look(self) -> None:
        """Whether our id still stands there; if not, it does from now on."""
        if not self._own.installation:
            return
        found = markers.read_occupant(self._disk)
        if found is not None and found.installation == self._own.installation:
            self._stands, self.problems = True, ()
            return
        if self._stands and found is not None:
            self.problems = (self._shared_with(found),)
        try:
            markers.write_occupant(self._disk, self._own)
            if found is not None and not self._stands:
                log.warning("%s", _follows(found))
            self._stands = True
        except StorageError:
            self._stands = False  # a folder that we cannot write is told of elsewhere

    def _shared_with(self, other: Occupant) -> Problem:
        return Problem(
            f"another installation of the service, `{other.installation}` on `{other.host}`, keeps its "
            f"policies in this folder as well (this one is `{self._own.installation}` on `{self._own.host}`):"
            " the two have different databases, so each takes what the other writes for an edit of the files,"
            " and may end in conflicts; stop one of them, or give each a folder of its own with "
            "GOVERNANCE_POLICIES_DIR",
            "",
            "shared_folder",
            markers.FOLDER,
        )


def _differs(other: Occupant, paths: list[str]) -> Problem:
    return Problem(
        f"until now this policies folder was that of another installation, `{other.installation}` on "
        f"`{other.host}`, and what it says in {listed_paths(paths, MOST_NAMED)} is not what is "
        "in force here, so no edit counts. If the database or the folder is the wrong one, stop the service, "
        "and put that right. If these files "
        f"are meant, remove `{markers.OCCUPANT}`; if not, remove them, and what is in force is written anew",
        "",
        "foreign_folder",
        markers.FOLDER,
    )


def _follows(other: Occupant) -> str:
    return (
        f"until now this policies folder was that of another installation, `{other.installation}` on "
        f"`{other.host}`: its halts, approvals, API keys, people and records are in its own database, and "
        "not in the one of this start. If this was to go on with that database - its folder is not mounted, "
        "or its name is mistyped - stop the service, and put that right"
    )
