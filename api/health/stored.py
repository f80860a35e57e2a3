"""What the database says of how things are, for the metrics: what waits, for how long, and what is halted.

All organisations together; read by one look, so that a scrape costs one thread of readers.
"""

from __future__ import annotations

from typing import Any, Final

from peewee import fn

from api import clock
from api.database.connection import Database
from api.database.models import Approval, Halt, Organisation, Webhook
from api.health.exposition import DatabaseState, Waiting
from api.store.alerts import alerts
from api.store.halts import KINDS
from api.store.notifications import notices
from api.store.review import reading
from engine.model import SEVERITIES

_WAITING: Final = (
    "SELECT w.kind, COUNT(*), MIN(d.created_at) FROM deliveries d JOIN webhooks w"
    " ON w.webhook_id = d.webhook_id WHERE d.status = 'pending' GROUP BY w.kind"
)


def stored(store: Database, now: float) -> DatabaseState:
    """For a reading thread."""
    webhooks, channels = _deliveries(store, now)
    # By organisation, since the index begins with it.
    waits = (
        Approval.organisation_id.in_(Organisation.select(Organisation.organisation_id)) & reading.IS_PENDING
    )
    oldest = Approval.select(fn.MIN(Approval.requested_at)).where(waits).scalar()
    return DatabaseState(
        "sqlite" if store.is_sqlite else "postgresql",
        Waiting(reading.count_pending(), _age(oldest, now)),
        notices.count_unreached(store),
        webhooks,
        Webhook.select().where(~Webhook.enabled & Webhook.disabled_reason.is_null(False)).count(),
        channels,
        _halts(),
        dict.fromkeys(SEVERITIES, 0) | dict(alerts.count_open()),
    )


def _deliveries(store: Any, now: float) -> tuple[Waiting, Waiting]:
    """Of webhooks, and of channels."""
    counts, ages = {True: 0, False: 0}, {True: 0.0, False: 0.0}
    for kind, count, oldest in store.rows(_WAITING, ()):
        of_webhooks = kind == "webhook"
        counts[of_webhooks] += int(count)
        ages[of_webhooks] = max(ages[of_webhooks], _age(oldest, now))
    return Waiting(counts[True], ages[True]), Waiting(counts[False], ages[False])


def _halts() -> dict[str, int]:
    rows = Halt.select(Halt.kind, fn.COUNT(Halt.halt_id)).where(Halt.ended_at.is_null()).group_by(Halt.kind)
    found: Any = rows.tuples()
    return dict.fromkeys(KINDS, 0) | dict(found)


def _age(at: str | None, now: float) -> float:
    return 0.0 if at is None else max(0.0, now - clock.seconds(at))
