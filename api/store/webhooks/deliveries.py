"""Deliveries: what is enqueued for receivers, what was tried, and who holds which under lease.

A delivery is claimed by a lease: whoever holds it has until `leased_until` to post and record the outcome;
when a process dies, the next start frees its leases, or they run out, and another takes over, so every
delivery is posted at least once, always under the same id. Record: `{deliveryId, webhookId, event, status,
attempts, nextAttemptAt, payload, createdAt}`; each of `attempts` is `{at, responseStatus, responseBody,
durationMs, error}`.

INVARIANT: the outcome of a lease that ran out is added to the history but moves nothing, unless it is a
receipt: what a receiver acknowledged is delivered, whoever heard it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api.clock import APART_SECONDS, iso, seconds
from api.database.connection import marks
from api.database.models import Delivery, Webhook
from api.database.secrets_at_rest import signing
from api.database.transaction import Transaction
from api.store.notifications import channels, notices
from api.store.notifications.channels import Channel
from api.store.webhooks import webhooks
from api.store.webhooks.delivery_order import newest_of, next_attempt

log = logging.getLogger("governance")

MOST_ATTEMPTS_KEPT: Final = 100
"""Of one delivery; by the schedule there are ten, more only by hand."""
OFF: Final = "the webhook `%s` to %s is off, and is told nothing until an admin enables it: %s"


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
    channel: Channel | None = None
    """Of a notice; then `url` and `secrets` are empty."""


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
        "nextAttemptAt": next_attempt(row),
        "payload": msgspec.json.decode(row.payload),
        "createdAt": row.created_at,
    }


def listed(
    organisation_id: str, webhook_id: str, limit: int, before: int | None
) -> tuple[list[dict[str, Any]], int, int | None] | None:
    """A page, newest first: records, how many in all, where the next page starts. None: no such webhook."""
    if webhooks.own(organisation_id, webhook_id) is None:
        return None
    rows, total, following = newest_of(webhook_id, limit, before)
    return [_shape(row) for row in rows], total, following


def test(transaction: Transaction, organisation_id: str, webhook_id: str) -> dict[str, Any]:
    """Enqueue a `webhook.test` event for this webhook, whatever it is subscribed to; returns the delivery."""
    data = {"webhookId": webhook_id, "message": "this is a test; the webhook works"}
    return _shape(notices.enqueue_now(transaction, webhook_id, organisation_id, "webhook.test", data))


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
    transaction.wake_sender(webhook_id)
    return _shape(row)


def sweep(store: Any, now: float) -> dict[str, float]:
    """When each webhook is next due, over all that nobody holds a lease on; one that is off or gone at once,
    since what it is owed has to end. For a reading thread."""
    found = store.rows(
        f"WITH RECURSIVE owed(webhook_id) AS ({_OWED.format('')} UNION ALL SELECT"
        f" ({_OWED.format(' AND webhook_id > owed.webhook_id')}) FROM owed WHERE owed.webhook_id IS NOT NULL)"
        " SELECT w.webhook_id, (SELECT CASE WHEN h.enabled THEN d.next_attempt_at ELSE 0.0 END"
        " FROM deliveries d WHERE d.status = 'pending' AND d.webhook_id = w.webhook_id"
        " AND d.leased_until <= ? ORDER BY d.next_attempt_at LIMIT 1)"
        " FROM owed w LEFT JOIN webhooks h ON h.webhook_id = w.webhook_id WHERE w.webhook_id IS NOT NULL",
        (now,),
    )
    return {str(webhook_id): float(due) for webhook_id, due in found if due is not None}


_OWED = "SELECT MIN(webhook_id) FROM deliveries WHERE status = 'pending'{}"
"""Each by a step in the index, however many deliveries one is owed."""
_HOOK = (
    "SELECT enabled, url, secret, previous_secret, previous_secret_until, kind, organisation_id, name,"
    " config, quiet_until FROM webhooks WHERE webhook_id = ?"
)
_OPEN = (
    " FROM deliveries WHERE status = 'pending' AND webhook_id = ? AND leased_until <= ?"
    " AND next_attempt_at <= ? ORDER BY next_attempt_at, delivery_no LIMIT ?"
)
_DUE = "SELECT delivery_no, delivery_id, payload, attempt_count, subject, next_attempt_at, created_at" + _OPEN
_LAST_DUE = _DUE.replace("next_attempt_at, delivery_no LIMIT", "next_attempt_at DESC, delivery_no DESC LIMIT")
_DUE_NOTICES = tuple(
    _DUE.replace("ORDER BY", f"AND subject {which} ORDER BY") for which in ("IS NOT NULL", "IS NULL")
)
"""Approvals first: their reminders are due at their own time, and would stand behind all that is new.
INVARIANT: each is read in the order of an index, however many notices wait."""
_NEXT = "SELECT next_attempt_at" + _OPEN
_EVER = 1e12
LONGEST_QUIET = 3_600.0 + APART_SECONDS
"""Seconds; what a channel may say in `groupSeconds`."""


def claim(
    transaction: Transaction, webhook_id: str, limit: int, lease_seconds: float, sender: int | None = None
) -> tuple[list[Claimed], float | None]:
    """Take up to `limit` due deliveries of one webhook, oldest first; and when it is next due, if ever.
    `sender` is the number of who takes them. Of a channel all that is due is taken, to go out together."""
    now, store = transaction.now, transaction.store
    hooks = store.rows(_HOOK, (webhook_id,))
    if not hooks or not hooks[0][0]:
        # An event of the very transaction that switched it off may have left a row behind.
        webhooks.end_pending(transaction, webhook_id)
        return [], None
    _, url, secret, previous, until, *of_channel = hooks[0]
    if of_channel[0] != webhooks.WEBHOOK:
        return _claim_notices(transaction, webhook_id, lease_seconds, sender, of_channel)
    rows, lease = _take(transaction, (_DUE,), webhook_id, limit, lease_seconds, sender)
    secrets = tuple(signing(secret, previous, until, now))
    claimed = [
        Claimed(int(no), str(delivery_id), webhook_id, url, secrets, str(payload), int(attempts), lease)
        for no, delivery_id, payload, attempts, *_ in rows
    ]
    return claimed, _next_due(transaction, webhook_id)


def _claim_notices(
    transaction: Transaction,
    channel_id: str,
    lease_seconds: float,
    sender: int | None,
    of_channel: Sequence[Any],
) -> tuple[list[Claimed], float | None]:
    kind, organisation_id, name, config, quiet_until = of_channel
    # A time further away was set while the clock was ahead.
    if transaction.now < quiet_until <= transaction.now + LONGEST_QUIET:
        due = _next_due(transaction, channel_id)
        return [], None if due is None else max(due, quiet_until)
    most = notices.MOST_AT_ONCE
    taken, lease = _take(transaction, _DUE_NOTICES, channel_id, most, lease_seconds, sender)
    outdated = notices.drop_outdated(transaction, [row[0] for row in taken])
    rows = [row for row in taken if row[0] not in outdated]
    if not rows:
        return [], _next_due(transaction, channel_id)
    channel = channels.opened(organisation_id, name, kind, config)
    rests = notices.rests_behind([row[2] for row in rows], is_backlog=len(taken) == most)
    quiet_until = transaction.now + (msgspec.json.decode(config)["groupSeconds"] if rests else 0)
    notices.rest(transaction, channel_id, quiet_until)
    payloads = notices.completed(transaction.store, [(row[2], row[4]) for row in rows])
    claimed = [
        Claimed(int(no), str(delivery_id), channel_id, "", (), payload, int(attempts), lease, channel)
        for (no, delivery_id, _, attempts, *_), payload in zip(rows, payloads, strict=True)
    ]
    due = _next_due(transaction, channel_id)
    return claimed, None if due is None else max(due, quiet_until)


def _take(
    transaction: Transaction,
    due: Sequence[str],
    webhook_id: str,
    limit: int,
    lease_seconds: float,
    sender: int | None,
) -> tuple[list[Any], float]:
    """The rows of these statements that are leased now, and until when."""
    now, store = transaction.now, transaction.store
    lock = "" if store.is_sqlite else " FOR UPDATE SKIP LOCKED"
    rows: list[Any] = []
    for statement in due:
        if len(rows) < limit:
            rows += store.rows(statement + lock, (webhook_id, now, now, limit - len(rows)))
    if rows and len(rows) == limit:
        # What is tried again stands behind all that is new, so one place of several is for the last, and a
        # single one if it has been due since before the first was made.
        last = store.rows(_LAST_DUE + lock, (webhook_id, now, now, 1))
        number, *_, attempts, _, due_at, _ = last[0]
        is_new = all(row[0] != number for row in rows)
        if is_new and (limit > 1 or (attempts and iso(due_at) < rows[0][-1])):
            rows[-1:] = last
    lease = now + lease_seconds
    if rows:
        taken = [row[0] for row in rows]
        store.rows_changed(
            f"UPDATE deliveries SET leased_until = ?, leased_by = ? WHERE delivery_no IN ({marks(taken)})",
            (lease, sender, *taken),
        )
    return rows, lease


def _next_due(transaction: Transaction, webhook_id: str) -> float | None:
    rest = transaction.store.rows(_NEXT, (webhook_id, transaction.now, _EVER, 1))
    return float(rest[0][0]) if rest else None


def release(transaction: Transaction, claimed: Iterable[Claimed]) -> None:
    """Give leases back unused, so that another process need not wait for their end."""
    for item in claimed:
        Delivery.update(leased_until=0.0).where(
            (Delivery.delivery_no == item.delivery_no) & (Delivery.leased_until == item.lease)
        ).execute()


def count_waiting(store: Any) -> tuple[int, int]:
    """How many deliveries of webhooks wait, and how many notices of channels. For a reading thread."""
    rows = store.rows(
        "SELECT w.kind, COUNT(*) FROM deliveries d JOIN webhooks w ON w.webhook_id = d.webhook_id"
        " WHERE d.status = 'pending' GROUP BY w.kind",
        (),
    )
    counts = {kind: int(count) for kind, count in rows}
    webhooks = counts.pop("webhook", 0)
    return webhooks, sum(counts.values())


def senders(store: Any, now: float) -> list[int]:
    """The numbers of those who hold a lease. For a reading thread."""
    rows = store.rows(
        "SELECT DISTINCT leased_by FROM deliveries WHERE status = 'pending' AND leased_until > ?"
        " AND leased_by IS NOT NULL",
        (now,),
    )
    return [int(number) for (number,) in rows]


def release_abandoned(transaction: Transaction, newest: float, gone: Sequence[int] | None = None) -> None:
    """Free every lease of these senders - of all, when not named - that ends at `newest` or before, or so
    much later that it was taken while the clock was ahead: those who held them are gone."""
    whose = "" if gone is None else f" AND leased_by IN ({marks(gone)})"
    transaction.store.rows_changed(
        "UPDATE deliveries SET leased_until = 0 WHERE status = 'pending' AND leased_until > ?"
        f" AND (leased_until <= ? OR leased_until > ?){whose}",
        (transaction.now, newest, newest + APART_SECONDS, *(gone or ())),
    )


@dataclass(slots=True)
class _Row:
    """A delivery as it is while outcomes are written down."""

    attempts: str
    status: str
    attempt_count: int
    next_attempt_at: float | None
    leased_until: float


_ROWS = (
    "SELECT delivery_no, attempts, status, attempt_count, next_attempt_at, leased_until FROM deliveries"
    " WHERE delivery_no IN ({})"
)
_WRITE = (
    "UPDATE deliveries SET attempts = ?, status = ?, attempt_count = ?, next_attempt_at = ?, leased_until = ?"
    " WHERE delivery_no = ?"
)
_FAILING = "SELECT webhook_id, failing_since FROM webhooks WHERE webhook_id IN ({})"


def record(transaction: Transaction, outcomes: Sequence[Outcome], disable_after: float) -> None:
    """Write down attempts and what follows from them, for the deliveries and for their webhooks.

    In plain statements: every delivery comes by here, and a model instance a row costs ten times as much.
    """
    if not outcomes:
        return
    store = transaction.store
    numbers = list({outcome.claimed.delivery_no for outcome in outcomes})
    hooks = list({outcome.claimed.webhook_id for outcome in outcomes})
    failing: dict[str, str | None] = dict(store.rows(_FAILING.format(marks(hooks)), hooks))
    rows = _rows(store, numbers)
    for outcome in outcomes:
        claimed = outcome.claimed
        row = rows.get(claimed.delivery_no)
        if row is not None:
            _record(row, outcome)
            now = (row.attempts, row.status, row.attempt_count, row.next_attempt_at, row.leased_until)
            store.rows_changed(_WRITE, (*now, claimed.delivery_no))
        if claimed.webhook_id not in failing:
            continue
        why = _judge(outcome, failing, disable_after)
        if claimed.channel is not None:
            if outcome.next_at is not None:
                notices.rest_less(transaction, claimed.webhook_id, outcome.next_at)
        elif why is not None and webhooks.disable(transaction, claimed.webhook_id, why):
            log.warning(OFF, claimed.webhook_id, webhooks.receiver(claimed.url), why)
            rows = _rows(store, numbers)  # what was pending has ended


def _rows(store: Any, numbers: Sequence[int]) -> dict[int, _Row]:
    return {row[0]: _Row(*row[1:]) for row in store.rows(_ROWS.format(marks(numbers)), numbers)}


def _record(row: _Row, outcome: Outcome) -> None:
    attempt = {
        "at": iso(outcome.at),
        "responseStatus": outcome.status,
        "responseBody": outcome.body,
        "durationMs": outcome.duration_ms,
        "error": outcome.error,
    }
    attempts = [*msgspec.json.decode(row.attempts), attempt][-MOST_ATTEMPTS_KEPT:]
    row.attempts = msgspec.json.encode(attempts).decode()
    if outcome.delivered:
        row.status, row.next_attempt_at, row.leased_until = "delivered", None, 0.0
    elif row.status == "pending" and row.leased_until == outcome.claimed.lease:
        row.leased_until, row.attempt_count = 0.0, outcome.claimed.attempts + 1
        asked_again_meanwhile = row.next_attempt_at is not None and row.next_attempt_at > outcome.at
        if not asked_again_meanwhile:
            ended = outcome.gone or outcome.next_at is None
            row.status = "failed" if ended else "pending"
            row.next_attempt_at = None if ended else outcome.next_at


def _judge(outcome: Outcome, failing: dict[str, str | None], disable_after: float) -> str | None:
    """Why the outcome ends its webhook, or None; keeps since when it has been failing."""
    webhook_id = outcome.claimed.webhook_id
    since = failing[webhook_id]
    if outcome.gone and outcome.claimed.channel is None:
        hook = Webhook.get_or_none(Webhook.webhook_id == webhook_id)
        if hook is not None and hook.url == outcome.claimed.url:
            return "the receiver answered 410: it is gone"
    if not outcome.delivered and since is not None:
        # Two failures alone may be five days apart: the service was stopped in between, or the clock leapt.
        too_long = outcome.next_at is None and outcome.at - seconds(since) >= disable_after
        return f"every attempt failed for {round(disable_after / 86400)} days" if too_long else None
    now = None if outcome.delivered else iso(outcome.at)
    if now != since:
        failing[webhook_id] = now
        Webhook.update(failing_since=now).where(Webhook.webhook_id == webhook_id).execute()
    return None
