"""Alerts: what detectors found unusual, for people to look at.

Records come out in the contract's shape. An alert is raised once, may count up while what it tells of goes
on, and is acknowledged once, by the first who does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from peewee import fn

from api import metrics
from api.database.connection import Database, marks
from api.database.models import Alert
from api.database.table import page_of
from api.database.transaction import Transaction

MOST_EVIDENCE: Final = 20
OPEN: Final = "open"
ACKNOWLEDGED: Final = "acknowledged"
_OLD: Final = "SELECT alert_id FROM alerts WHERE last_at < ? ORDER BY last_at LIMIT ?"

Position = tuple[str, str]
"""Where a page ends: `raisedAt` and `alertId` of its last alert."""


@dataclass(slots=True)
class NewAlert:
    """An alert as its detector found it."""

    alert_id: str
    organisation_id: str
    detector_id: str
    detector_version: int
    name: str
    severity: str
    message: str | None
    summary: str
    per: str
    subject: str
    agent_id: str | None
    run_id: str | None
    count: int
    threshold: int
    window_seconds: int
    first_at: str
    last_at: str
    evidence: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MoreOfAlert:
    """What an alert counts further."""

    alert_id: str
    count: int
    last_at: str
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which alerts of one organisation; None: all."""

    organisation_id: str
    severity: str | None = None
    detector_id: str | None = None
    agent_id: str | None = None
    status: str | None = None
    since: str | None = None
    until: str | None = None

    def where(self) -> Any:
        chosen = Alert.organisation_id == self.organisation_id
        for column, value in (
            (Alert.severity, self.severity),
            (Alert.detector_id, self.detector_id),
            (Alert.agent_id, self.agent_id),
        ):
            if value is not None:
                chosen &= column == value
        if self.status is not None:
            chosen &= Alert.acknowledged_at.is_null(self.status == OPEN)
        if self.since is not None:
            chosen &= Alert.raised_at >= self.since
        if self.until is not None:
            chosen &= Alert.raised_at < self.until
        return chosen


def _alert(row: Alert) -> dict[str, Any]:
    return {
        "alertId": row.alert_id,
        "detectorId": row.detector_id,
        "detectorVersion": row.detector_version,
        "name": row.name,
        "severity": row.severity,
        "status": OPEN if row.acknowledged_at is None else ACKNOWLEDGED,
        "summary": row.summary,
        "message": row.message,
        "per": row.per,
        "subject": row.subject,
        "agentId": row.agent_id,
        "runId": row.run_id,
        "count": row.count,
        "threshold": row.threshold,
        "windowSeconds": row.window_seconds,
        "firstAt": row.first_at,
        "lastAt": row.last_at,
        "raisedAt": row.raised_at,
        "evidence": msgspec.json.decode(row.evidence),
        "acknowledgedAt": row.acknowledged_at,
        "acknowledgedBy": row.acknowledged_by,
        "note": row.note,
    }


# Reading ------------------------------------------------------------------------------------------


def list_alerts(
    chosen: Chosen, limit: int, after: Position | None, ascending: bool
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page by time, how many there are in all, and where the next page begins, if any."""
    keys = (Alert.raised_at, Alert.alert_id)
    query = Alert.select().where(chosen.where())
    rows, total, position = page_of(query, keys, limit, after, ascending=ascending)
    return [_alert(row) for row in rows], total, position


def find_alert(organisation_id: str, alert_id: str) -> dict[str, Any] | None:
    row = Alert.get_or_none((Alert.organisation_id == organisation_id) & (Alert.alert_id == alert_id))
    return None if row is None else _alert(row)


def by_detector(organisation_id: str) -> dict[str, tuple[int, int, str]]:
    """Of each detector that ever raised one that is kept: how many, how many of them are open, and when the
    last was."""
    rows: Any = (
        Alert.select(
            *(Alert.detector_id, fn.COUNT(Alert.alert_id), fn.COUNT(Alert.acknowledged_at)),
            fn.MAX(Alert.raised_at),
        )
        .where(Alert.organisation_id == organisation_id)
        .group_by(Alert.detector_id)
        .tuples()
    )
    return {detector_id: (count, count - seen, last) for detector_id, count, seen, last in rows}


def open_by_agent(organisation_id: str, agent_ids: Sequence[str]) -> dict[str, int]:
    """How many open alerts there are of each of these agents."""
    mine = (Alert.organisation_id == organisation_id) & Alert.agent_id.in_(agent_ids)
    return _count_by(Alert.agent_id, mine & Alert.acknowledged_at.is_null())


def count_open() -> Mapping[str, int]:
    """By severity, over all organisations, for the metrics."""
    return _count_by(Alert.severity, Alert.acknowledged_at.is_null())


def _count_by(column: Any, chosen: Any) -> dict[str, int]:
    rows: Any = Alert.select(column, fn.COUNT(Alert.alert_id)).where(chosen).group_by(column).tuples()
    return {name: int(count) for name, count in rows}


def old(store: Database, before: str, most: int) -> list[str]:
    """Those whose last happening was before a time."""
    return [row[0] for row in store.rows(_OLD, (before, most))]


# Changing -----------------------------------------------------------------------------------------


def raise_alerts(transaction: Transaction, alerts: Iterable[NewAlert]) -> None:
    """Record them, with all that goes with an alert."""
    for alert in alerts:
        evidence = alert.evidence[-MOST_EVIDENCE:]
        columns = {name: getattr(alert, name) for name in alert.__slots__}
        kept = msgspec.json.encode(evidence).decode()
        Alert.create(**columns | {"evidence": kept, "raised_at": transaction.at})
        _tell(transaction, alert, alert.summary, evidence)


def _tell(transaction: Transaction, alert: NewAlert | Alert, reason: str, evidence: Sequence[str]) -> None:
    """The record and the news of an alert that is open from now on."""
    organisation_id = alert.organisation_id
    told = {
        "alertId": alert.alert_id,
        "detectorId": alert.detector_id,
        "severity": alert.severity,
        "per": alert.per,
        "subject": alert.subject,
    }
    details = told | {
        "detectorVersion": alert.detector_version,
        "count": alert.count,
        "evidence": list(evidence),
    }
    transaction.audit(
        organisation_id,
        "alert.raised",
        actor="service",
        agentId=alert.agent_id,
        runId=alert.run_id,
        reason=reason,
        details=details,
    )
    data = told | {
        "name": alert.name,
        "summary": reason,
        "message": alert.message,
        "agentId": alert.agent_id,
        "runId": alert.run_id,
        "count": alert.count,
        "raisedAt": transaction.at,
    }
    data = {name: value for name, value in data.items() if value is not None}
    transaction.notify(organisation_id, "alert.raised", data)
    published = {"severity": alert.severity, "status": OPEN}
    transaction.publish(organisation_id, "alert", alert.alert_id, **published)
    detector_id, severity = alert.detector_id, alert.severity
    transaction.after_commit(lambda: metrics.alerted(detector_id, severity))


def count_further(transaction: Transaction, more: Iterable[MoreOfAlert]) -> None:
    """Add to alerts that were raised before; one that is not kept any more stays away. What goes on after
    somebody has looked is told again: the alert is open as before."""
    for each in more:
        row = Alert.get_or_none(Alert.alert_id == each.alert_id)
        if row is None:
            continue
        row.count += each.count
        row.last_at = max(row.last_at, each.last_at)
        evidence = [*msgspec.json.decode(row.evidence), *each.evidence]
        changed, is_again = [Alert.count, Alert.last_at, Alert.evidence], row.acknowledged_at is not None
        evidence = evidence[-MOST_EVIDENCE:] if is_again else evidence[:MOST_EVIDENCE]
        row.evidence = msgspec.json.encode(evidence).decode()
        if is_again:
            row.acknowledged_at = row.acknowledged_by = row.note = None
            changed += [Alert.acknowledged_at, Alert.acknowledged_by, Alert.note]
        row.save(only=changed)
        if is_again:
            _tell(transaction, row, f"it goes on: {row.summary}", evidence)


def forget_old(transaction: Transaction, before: str, most: int) -> int:
    """Delete some of those whose last happening was before a time; the log keeps that they were raised."""
    found = old(transaction.store, before, most)
    if not found:
        return 0
    return transaction.store.rows_changed(f"DELETE FROM alerts WHERE alert_id IN ({marks(found)})", found)


def acknowledge(
    transaction: Transaction, organisation_id: str, alert_id: str, actor: str, note: str | None
) -> dict[str, Any] | None:
    """Somebody has looked; the first one counts. Returns the alert; None when there is no such one."""
    changed = (
        Alert.update(acknowledged_at=transaction.at, acknowledged_by=actor, note=note)
        .where(
            (Alert.organisation_id == organisation_id)
            & (Alert.alert_id == alert_id)
            & Alert.acknowledged_at.is_null()
        )
        .execute()
    )
    alert = find_alert(organisation_id, alert_id)
    if changed and alert is not None:
        transaction.audit(
            organisation_id,
            "alert.acknowledged",
            actor=actor,
            agentId=alert["agentId"],
            runId=alert["runId"],
            reason=note,
            details={
                "alertId": alert_id,
                "detectorId": alert["detectorId"],
                "severity": alert["severity"],
                "count": alert["count"],
            },
        )
        published = {"severity": alert["severity"], "status": ACKNOWLEDGED}
        transaction.publish(organisation_id, "alert", alert_id, **published)
    return alert
