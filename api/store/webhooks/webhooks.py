"""Webhooks: who wants to hear of what.

Records come out in the contract's shape, `{webhookId, url, events, enabled, description, createdAt,
failingSince, disabledReason}`, absent when they have no value; `secret` only from `add` and `rotate`.
Which deliveries an event makes for them is the business of `outbox.py`; nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from api.clock import iso
from api.database.models import Webhook
from api.database.secrets_at_rest import VAULT, sealed, signing
from api.database.transaction import Transaction

EVENTS: Final = (
    "approval.requested",
    "approval.progressed",
    "approval.escalated",
    "approval.resolved",
    "tool.blocked",
    "tool.warned",
    "run.completed",
    "run.failed",
    "policy.changed",
    "policy.reload_failed",
    "enforcement.gap",
    "agent.halted",
    "grant.created",
    "grant.revoked",
    "alert.raised",
    "change.requested",
    "change.resolved",
    "webhook.test",
)
"""Every event a webhook may subscribe to; each has a schema of its `data` in `schemas/events`."""

WEBHOOK: Final = "webhook"
"""The kind of what was registered here; all others are channels (`store/notifications`)."""

COUNTER: Final = "webhooks"
"""Moves with every change of a webhook or channel; caches compare with it."""

ENDED_TOGETHER: Final = 500
"""Deliveries that one transaction ends, since others wait for it; there may be millions."""
_END: Final = (
    "UPDATE deliveries SET status = 'failed', next_attempt_at = NULL WHERE delivery_no IN"
    " (SELECT delivery_no FROM deliveries WHERE status = 'pending' AND webhook_id = ? LIMIT ?)"
)

MOST_REGISTERED: Final = 50
"""Webhooks of one organisation: each event writes a row for each of them, for which everybody waits."""


def _shape(row: Webhook) -> dict[str, Any]:
    shape = {
        "webhookId": row.webhook_id,
        "url": row.url,
        "events": msgspec.json.decode(row.events),
        "enabled": bool(row.enabled),
        "description": row.description,
        "createdAt": row.created_at,
        "failingSince": row.failing_since,
        "disabledReason": row.disabled_reason,
    }
    return {name: value for name, value in shape.items() if value is not None}


def own(organisation_id: str, webhook_id: str) -> Webhook | None:
    """The row, inside the store only."""
    return Webhook.get_or_none((Webhook.webhook_id == webhook_id) & _registered(organisation_id))


def _registered(organisation_id: str) -> Any:
    return (Webhook.organisation_id == organisation_id) & (Webhook.kind == WEBHOOK)


def find(organisation_id: str, webhook_id: str) -> dict[str, Any] | None:
    row = own(organisation_id, webhook_id)
    return None if row is None else _shape(row)


class WebhookRefused(Exception):
    """A webhook cannot be registered or changed so; the text says why, and what to do."""

    code = "conflict"


def listed(
    organisation_id: str, limit: int, after: str | None
) -> tuple[list[dict[str, Any]], int, str | None]:
    """A page, oldest first: records, how many there are in all, and where the next page starts."""
    mine = _registered(organisation_id)
    total = int(Webhook.select().where(mine).count())
    query = Webhook.select().where(mine)
    if after is not None:
        query = query.where(Webhook.webhook_id > after)
    rows = list(query.order_by(Webhook.webhook_id).limit(limit + 1))
    following = rows[limit - 1].webhook_id if len(rows) > limit else None
    return [_shape(row) for row in rows[:limit]], total, following


def receiver(url: str) -> str:
    """The part of the address that goes on record: paths and queries of receivers often hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def add(
    transaction: Transaction,
    organisation_id: str,
    url: str,
    events: Sequence[str],
    secret: str,
    actor: str,
    *,
    enabled: bool = True,
    description: str | None = None,
) -> dict[str, Any]:
    """Register a webhook; the record holds its `secret`. Raises WebhookRefused."""
    if Webhook.select().where(_registered(organisation_id)).count() >= MOST_REGISTERED:
        raise WebhookRefused(
            f"there are {MOST_REGISTERED} webhooks, as many as may be; delete one, or let one receiver pass"
            " events on to others"
        )
    row = Webhook.create(
        webhook_id=transaction.ids("whk"),
        organisation_id=organisation_id,
        url=url,
        events=msgspec.json.encode(list(events)).decode(),
        enabled=enabled,
        description=description,
        secret=VAULT.seal(secret),
        created_at=transaction.at,
    )
    transaction.bump(COUNTER)
    transaction.audit(
        organisation_id,
        "webhook.created",
        actor=actor,
        details={
            "webhookId": row.webhook_id,
            "receiver": receiver(url),
            "events": list(events),
            "enabled": enabled,
        },
    )
    return _shape(row) | {"secret": secret}


def change(
    transaction: Transaction, organisation_id: str, webhook_id: str, changes: Mapping[str, Any], actor: str
) -> dict[str, Any] | None:
    """Set what is given of `url, events, enabled, description`; None: no such webhook.

    Disabling ends its pending deliveries; enabling forgets its failures. Raises WebhookRefused.
    """
    row = own(organisation_id, webhook_id)
    if row is None:
        return None
    if changes.get("enabled") and not row.secret:
        raise WebhookRefused("its secret was lost, and nobody could check a delivery; rotate it first")
    if changes.get("enabled") and not row.enabled and end_pending(transaction, webhook_id):
        raise WebhookRefused("what it had to send when it was switched off is still being ended; try again")
    details: dict[str, Any] = {"webhookId": webhook_id, "changed": sorted(changes)}
    if "url" in changes:
        row.url = changes["url"]
        details["receiver"] = receiver(row.url)
    if "events" in changes:
        row.events = msgspec.json.encode(list(changes["events"])).decode()
        details["events"] = list(changes["events"])
    if "description" in changes:
        row.description = changes["description"]
    if "enabled" in changes:
        details["enabled"] = row.enabled = changes["enabled"]
        row.disabled_reason = row.failing_since = None
        if not row.enabled:
            end_pending(transaction, webhook_id)
    row.save()
    transaction.bump(COUNTER)
    transaction.audit(organisation_id, "webhook.updated", actor=actor, details=details)
    transaction.publish(organisation_id, "webhook", webhook_id)
    return _shape(row)


def rotate(
    transaction: Transaction,
    organisation_id: str,
    webhook_id: str,
    secret: str,
    both_seconds: float,
    actor: str,
) -> dict[str, Any] | None:
    """A new secret; deliveries carry a signature of the old one too for `both_seconds`."""
    row = own(organisation_id, webhook_id)
    if row is None:
        return None
    before = signing(row.secret, row.previous_secret, row.previous_secret_until, transaction.now)
    row.previous_secret, row.secret = sealed(before), VAULT.seal(secret)
    row.previous_secret_until = iso(transaction.now + both_seconds)
    row.save()
    transaction.audit(organisation_id, "webhook.rotated", actor=actor, details={"webhookId": webhook_id})
    return _shape(row) | {"secret": secret}


def remove(transaction: Transaction, organisation_id: str, webhook_id: str, actor: str) -> bool:
    """Delete it and end its pending deliveries; False: no such webhook."""
    row = own(organisation_id, webhook_id)
    if row is None:
        return False
    place = receiver(row.url)
    row.delete_instance()
    end_pending(transaction, webhook_id)
    transaction.bump(COUNTER)
    transaction.audit(
        organisation_id,
        "webhook.deleted",
        actor=actor,
        details={"webhookId": webhook_id, "receiver": place},
    )
    return True


def disable(transaction: Transaction, webhook_id: str, reason: str) -> bool:
    """The service itself switches a webhook off, and says why; False: it was off, or is gone."""
    row = Webhook.get_or_none(Webhook.webhook_id == webhook_id)
    if row is None or not row.enabled:
        return False
    row.enabled, row.disabled_reason = False, reason
    row.save()
    end_pending(transaction, webhook_id)
    transaction.bump(COUNTER)
    transaction.audit(
        row.organisation_id,
        "webhook.disabled",
        actor="service",
        reason=reason,
        details={"webhookId": webhook_id, "receiver": receiver(row.url)},
    )
    transaction.publish(row.organisation_id, "webhook", webhook_id)
    return True


def end_pending(transaction: Transaction, webhook_id: str) -> bool:
    """Nothing more will be sent: what is pending has failed, and may be sent again by hand. What is too much
    for one transaction the worker ends in further ones; returns whether there may be any."""
    ended = transaction.store.rows_changed(_END, (webhook_id, ENDED_TOGETHER))
    if ended == ENDED_TOGETHER:
        transaction.wake_sender(webhook_id)
    return ended == ENDED_TOGETHER
