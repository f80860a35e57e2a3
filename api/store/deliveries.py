"""Deliveries: what is owed to receivers, what was tried, and who is trying right now.

A delivery is claimed by a lease: whoever holds it has until `leased_until` to post and record the outcome;
when a process dies, the lease runs out and another takes over, so every delivery is posted at least once,
always under the same id. Record: `{deliveryId, webhookId, event, status, attempts, nextAttemptAt, payload,
createdAt}`, attempts `{at, responseStatus, responseBody, durationMs, error}`.

INVARIANT: the outcome of a lease that ran out is added to the history but moves nothing, unless it is a
receipt: what a receiver acknowledged is delivered, whoever heard it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api.clock import iso, seconds
from api.store import webhooks
from api.store.models import Delivery, Webhook
from api.store.writer import Transaction

MOST_ATTEMPTS_KEPT: Final = 100
"""Of one delivery; by the schedule there are ten, more only by hand."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery under lease, with all that is needed to post it."""

    delivery_no: int
    delivery_id: str
    webhook_id: str
    url: str
    secrets: tuple[str, ...]
    payload: str
    attempts: int
    """Attempts of the schedule made so far."""
    lease: float
    """When the lease ends; names the lease too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. `next_at` None: the schedule is at its end."""

    claimed: Claimed
    at: float
    status: int | None
    body: str
    error: str | None
    duration_ms: int
    delivered: bool
    gone: bool
    next_at: float | None


def _shape(row: Delivery) -> dict[str, Any]:
    return {
        "deliveryId": row.delivery_id,
        "webhookId": row.webhook_id,
        "event": row.event,
        "status": row.status,
        "attempts": msgspec.json.decode(row.attempts),
        "nextAttemptAt": None if row.next_attempt_at is None else iso(row.next_attempt_at),
        "payload": msgspec.json.decode(row.payload),
        "createdAt": row.created_at,
    }


def listed(
    organisation_id: str, webhook_id: str, limit: int, before: int | None
) -> tuple[list[dict[str, Any]], int, int | None] | None:
    """A page, newest first: records, how many in all, where the next page starts. None: no such webhook."""
    if webhooks.own(organisation_id, webhook_id) is None:
        return None
    mine = Delivery.webhook_id == webhook_id
    total = int(Delivery.select().where(mine).count())
    query = Delivery.select().where(mine)
    if before is not None:
        query = query.where(Delivery.delivery_no < before)
    rows = list(query.order_by(Delivery.delivery_no.desc()).limit(limit + 1))
    following = rows[limit - 1].delivery_no if len(rows) > limit else None
    return [_shape(row) for row in rows[:limit]], total, following


def test(transaction: Transaction, organisation_id: str, webhook_id: str) -> dict[str, Any]:
    """Owe this webhook a `webhook.test` event, whatever it is subscribed to; returns the delivery."""
    delivery_id = transaction.ids("dlv")
    data = {"webhookId": webhook_id, "message": "this is a test; the webhook works"}
    payload = webhooks.payload_of("webhook.test", data, transaction.now)
    transaction.owe(
        webhooks.delivery_row(
            webhook_id,
            delivery_id,
            organisation_id,
            "webhook.test",
            payload,
            transaction.now,
            transaction.now,
        )
    )
    return {
        "deliveryId": delivery_id,
        "webhookId": webhook_id,
        "event": "webhook.test",
        "status": "pending",
        "attempts": [],
        "nextAttemptAt": transaction.at,
        "payload": msgspec.json.decode(payload),
        "createdAt": transaction.at,
    }


def redeliver(
    transaction: Transaction, organisation_id: str, webhook_id: str, delivery_id: str
) -> dict[str, Any] | None:
    """Send it again now, under its id; one that had ended starts the schedule over. None: none such."""
    row = Delivery.get_or_none(
        (Delivery.delivery_id == delivery_id)
        & (Delivery.webhook_id == webhook_id)
        & (Delivery.organisation_id == organisation_id)
    )
    if row is None:
        return None
    if row.status != "pending":
        row.status, row.attempt_count, row.leased_until = "pending", 0, 0.0
    row.next_attempt_at = transaction.now
    row.save()
    transaction.due(webhook_id)
    return _shape(row)


def sweep(store: Any, now: float) -> dict[str, float]:
    """When each webhook is next due, over all that nobody holds a lease on. For a reading thread."""
    found = store.rows(
        "SELECT w.webhook_id, (SELECT d.next_attempt_at FROM deliveries d WHERE d.status = 'pending'"
        " AND d.webhook_id = w.webhook_id AND d.leased_until <= ? ORDER BY d.next_attempt_at LIMIT 1)"
        " FROM webhooks w",
        (now,),
    )
    return {str(webhook_id): float(due) for webhook_id, due in found if due is not None}


def claim(
    transaction: Transaction, webhook_id: str, limit: int, lease_seconds: float
) -> tuple[list[Claimed], float | None]:
    """Take up to `limit` due deliveries of one webhook, oldest first; and when it is next due, if ever."""
    now = transaction.now
    hook = Webhook.get_or_none(Webhook.webhook_id == webhook_id)
    if hook is None or not hook.enabled:
        # An event of the very transaction that switched it off may have left a row behind.
        webhooks.end_pending(webhook_id)
        return [], None
    open_rows = (
        " FROM deliveries WHERE status = 'pending' AND webhook_id = ? AND leased_until <= ?"
        " AND next_attempt_at <= ? ORDER BY next_attempt_at, delivery_no LIMIT ?"
    )
    lock = "" if transaction.store.is_sqlite else " FOR UPDATE SKIP LOCKED"
    rows = transaction.store.rows(
        "SELECT delivery_no, delivery_id, payload, attempt_count" + open_rows + lock,
        (webhook_id, now, now, limit),
    )
    lease = now + lease_seconds
    if rows:
        taken = [row[0] for row in rows]
        Delivery.update(leased_until=lease).where(Delivery.delivery_no.in_(taken)).execute()
    secrets = _secrets(hook, now)
    claimed = [
        Claimed(int(no), str(delivery_id), webhook_id, hook.url, secrets, str(payload), int(attempts), lease)
        for no, delivery_id, payload, attempts in rows
    ]
    rest = transaction.store.rows(
        "SELECT next_attempt_at" + open_rows.replace("next_attempt_at <= ?", "next_attempt_at <= 1e12"),
        (webhook_id, now, 1),
    )
    return claimed, float(rest[0][0]) if rest else None


def _secrets(hook: Webhook, now: float) -> tuple[str, ...]:
    old, until = hook.previous_secret, hook.previous_secret_until
    return (hook.secret, old) if old and until and seconds(until) > now else (hook.secret,)


def release(transaction: Transaction, claimed: Iterable[Claimed]) -> None:
    """Give leases back unused, so that another process need not wait for their end."""
    for item in claimed:
        Delivery.update(leased_until=0.0).where(
            (Delivery.delivery_no == item.delivery_no) & (Delivery.leased_until == item.lease)
        ).execute()


def record(transaction: Transaction, outcomes: Sequence[Outcome], disable_after: float) -> None:
    """Write down attempts and what follows from them, for the deliveries and for their webhooks."""
    for outcome in outcomes:
        _record(outcome)
        _judge(transaction, outcome, disable_after)


def _record(outcome: Outcome) -> None:
    this = Delivery.delivery_no == outcome.claimed.delivery_no
    row = (
        Delivery.select(Delivery.attempts, Delivery.status, Delivery.leased_until, Delivery.next_attempt_at)
        .where(this)
        .first()
    )
    if row is None:
        return
    attempt = {
        "at": iso(outcome.at),
        "responseStatus": outcome.status,
        "responseBody": outcome.body,
        "durationMs": outcome.duration_ms,
        "error": outcome.error,
    }
    attempts = [*msgspec.json.decode(row.attempts), attempt][-MOST_ATTEMPTS_KEPT:]
    changes: dict[str, Any] = {"attempts": msgspec.json.encode(attempts).decode()}
    if outcome.delivered:
        changes |= {"status": "delivered", "next_attempt_at": None, "leased_until": 0.0}
    elif row.status == "pending" and row.leased_until == outcome.claimed.lease:
        changes |= {"leased_until": 0.0, "attempt_count": outcome.claimed.attempts + 1}
        asked_again_meanwhile = row.next_attempt_at > outcome.at
        if not asked_again_meanwhile:
            ended = outcome.gone or outcome.next_at is None
            changes |= {"status": "failed" if ended else "pending"}
            changes |= {"next_attempt_at": None if ended else outcome.next_at}
    Delivery.update(changes).where(this).execute()


def _judge(transaction: Transaction, outcome: Outcome, disable_after: float) -> None:
    hook = Webhook.get_or_none(Webhook.webhook_id == outcome.claimed.webhook_id)
    if hook is None:
        return
    if outcome.delivered:
        if hook.failing_since is not None:
            Webhook.update(failing_since=None).where(Webhook.webhook_id == hook.webhook_id).execute()
        return
    if outcome.gone and hook.url == outcome.claimed.url:
        webhooks.disable(transaction, hook.webhook_id, "the receiver answered 410: it is gone")
    elif hook.failing_since is None:
        Webhook.update(failing_since=iso(outcome.at)).where(Webhook.webhook_id == hook.webhook_id).execute()
    elif outcome.at - seconds(hook.failing_since) >= disable_after:
        days = round(disable_after / 86400)
        webhooks.disable(transaction, hook.webhook_id, f"every attempt failed for {days} days")
