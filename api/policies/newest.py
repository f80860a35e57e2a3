"""Whether this process has the policies that the database has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.database.lanes.policy_mark import POLICY_MARK, is_behind, policy_mark
from api.database.table import counter

if TYPE_CHECKING:
    from engine.live import LivePolicies


def mark_in_force(live: LivePolicies) -> int:
    """See `policy_mark`."""
    snapshot = live.snapshot
    return policy_mark(snapshot.revision, snapshot.recorded_at)


def catch_up(live: LivePolicies) -> None:
    """Bring this process to the newest policies. For a thread that may query."""
    mark, revision = counter(POLICY_MARK), counter("policies")
    if is_behind((live.revision, mark_in_force(live)), (revision, mark)):
        live.catch_up(revision)
