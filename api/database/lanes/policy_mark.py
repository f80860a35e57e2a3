"""Which policies a revision number stands for.

Revisions are counted, so a copy of the database that lacks the last commits gives the number of a lost one
again, for other policies. So beside the number a counter says of which moment it is: events are decided by a
set of policies only while both are those of the database.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

POLICY_MARK: Final = "policies_mark"
"""The counter. INVARIANT: it moves with `policies`, in one transaction; a mark of another revision than that
one, as a version that knows none leaves behind, says nothing."""
REVISION_BITS: Final = 31
OF_REVISION: Final = (1 << REVISION_BITS) - 1


def policy_mark(revision: int, recorded_at: str) -> int:
    """A positive number of 63 bits, whose last `REVISION_BITS` are the revision; 0: there is none."""
    if not revision:
        return 0
    moment = int.from_bytes(blake2b(recorded_at.encode(), digest_size=4).digest())
    return moment << REVISION_BITS | revision & OF_REVISION


def is_behind(mine: tuple[int, int], found: tuple[int, int]) -> bool:
    """Whether newer policies were found than a process has, or others of the same number; of both the
    revision and its mark."""
    (revision, mark), (found_revision, found_mark) = mine, found
    same_number = found_mark & OF_REVISION == mark & OF_REVISION
    return found_revision > revision or (same_number and found_mark != mark)
