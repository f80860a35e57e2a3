"""Approvals that nobody opened: found by the time that has passed, since nothing in the log says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from api.alerts.records import APART_MINUTES
from api.clock import iso
from api.database.connection import Database
from engine.detectors.happening import Happening
from engine.detectors.watch import Watch
from engine.model import Detector

MOST_AT_ONCE: Final = 1_000
_WAITED: Final = (
    "SELECT a.agent_id, a.run_id, c.audit_id, a.requested_at, a.approval_id FROM approvals a"
    " LEFT JOIN tool_calls c ON c.call_no = a.call_no"
    " WHERE a.organisation_id = ? AND a.status IN ('pending', 'expired') AND a.seen_at IS NULL"
    " AND (a.requested_at, a.approval_id) > (?, ?) AND a.requested_at < ?"
    " ORDER BY a.requested_at, a.approval_id LIMIT ?"
)


def waited(store: Database, watch: Watch, detector: Detector, now: float) -> list[Happening]:
    """Those that have waited as long as the detector says, since the last look of it; the first look only
    notes when it was, and so does one after the clock was ahead."""
    until = int(now - detector.unseen_seconds) // 60
    since = watch.marked(detector)
    if until <= since <= until + APART_MINUTES:
        return []
    watch.mark(detector, until)
    if not since or since > until:
        return []
    span = iso(since * 60.0), iso(until * 60.0)
    by_run: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for agent_id, run_id, audit_id in _unseen(store, watch.organisation_id, *span):
        by_run[agent_id, run_id].append(audit_id or "")
    return [
        Happening(
            "approval.unseen",
            int(now) // 60,
            range(len(found)),
            found.__getitem__,
            agent_id=agent_id,
            run_id=run_id,
        )
        for (agent_id, run_id), found in by_run.items()
    ]


def _unseen(store: Database, organisation_id: str, since: str, until: str) -> Iterator[tuple[str, str, str]]:
    """Agent, run and record of all that were asked for between two times. INVARIANT: none is left out for
    those that were asked for before it, of which an agent makes as many as it likes."""
    behind, rows = (since, ""), None
    while rows is None or len(rows) == MOST_AT_ONCE:
        rows = store.rows(_WAITED, (organisation_id, *behind, until, MOST_AT_ONCE))
        for agent_id, run_id, audit_id, *_ in rows:
            yield agent_id, run_id, audit_id
        if rows:
            behind = rows[-1][3], rows[-1][4]
