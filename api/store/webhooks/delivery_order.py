"""Where a delivery stands among those that a receiver is still owed.

A delivery is tried from its `next_attempt_at` on, the oldest first. New ones are due at once, so where they
stand in the past is free: each API key has a day there, in which what it causes stands one after the other.
So one that causes very many has them behind those of everybody else, and none waits while nothing else does.
"""

from __future__ import annotations

from typing import Any, Final

from api.clock import APART_SECONDS, DAY, iso
from api.database.models import Delivery
from api.database.transaction import Transaction

STEP: Final = 0.1
"""Seconds between two that one key causes: 864,000 in a day until they reach now."""


def next_attempt(row: Delivery) -> str | None:
    """When a delivery is tried next, as people are told."""
    return None if row.next_attempt_at is None else max(iso(row.next_attempt_at), row.created_at)


def newest_of(webhook_id: str, limit: int, before: int | None) -> tuple[list[Delivery], int, int | None]:
    """A page of the deliveries of a webhook or channel, newest first: rows, how many in all, where the next
    page starts."""
    mine = Delivery.select().where(Delivery.webhook_id == webhook_id)
    page = mine if before is None else mine.where(Delivery.delivery_no < before)
    rows = list(page.order_by(Delivery.delivery_no.desc()).limit(limit + 1))
    following = rows[limit - 1].delivery_no if len(rows) > limit else None
    return rows[:limit], mine.count(), following


def any_put_off(store: Any, now: float, longest: float) -> bool:
    """Whether any pending delivery was put off while the clock was ahead: it is due later than anything may
    be put off to, or was made at a time that is still to come. For a reading thread."""
    return bool(store.rows(f"SELECT 1{_PUT_OFF} LIMIT 1", _bounds(now, longest)))


def due_now(transaction: Transaction, longest: float) -> None:
    """Have those deliveries due."""
    now, put_off = transaction.now, f"SELECT delivery_no{_PUT_OFF}"
    transaction.store.rows_changed(
        f"UPDATE deliveries SET next_attempt_at = ? WHERE delivery_no IN ({put_off})",
        (now, *_bounds(now, longest)),
    )


def _bounds(now: float, longest: float) -> tuple[float, float, str]:
    return now, now + longest, iso(now + APART_SECONDS)


_PUT_OFF = (
    " FROM deliveries WHERE status = 'pending' AND next_attempt_at > ?"
    " AND (next_attempt_at > ? OR created_at > ?)"
)


class DeliveryOrder:
    """One per process; what it remembers may be lost."""

    def __init__(self) -> None:
        self._newest: dict[str, float] = {}
        """API key to the sort key of the last delivery that it caused."""

    def place(self, key_id: str | None, now: float) -> float:
        """The sort key of one more delivery, at most `now`. Each that the same API key causes stands `STEP`
        behind the one before, so that a busy key does not delay the deliveries of others; what no key causes
        comes first."""
        first = now - DAY
        if key_id is None:
            return first
        place = self._newest[key_id] = min(max(self._newest.get(key_id, first), first) + STEP, now)
        return place
