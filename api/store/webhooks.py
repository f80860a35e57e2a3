"""Webhooks - who wants to hear of what - and the outbox that turns one event into rows for each of them.

Records come out in the contract's shape, `{webhookId, url, events, enabled, description, createdAt,
failingSince, disabledReason}`, absent when they have no value; `secret` only from `add` and `rotate`.
Deliveries are the business of `store/deliveries.py`; nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from api.clock import Ids, iso, seconds
from api.database.connection import Database
from api.database.models import Delivery, Webhook
from api.database.secrets_at_rest import VAULT, sealed, signing
from api.database.transaction import Transaction
from api.store.notifications.delivery_order import DeliveryOrder

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

UNSEEN: Final = "approval.unseen"
EXPIRING: Final = "approval.expiring"
"""Reminders of an approval, which channels may ask for; their data is that of `approval.requested`."""

_WITH_AN_END: Final = frozenset({"approval.requested", "approval.escalated"})
"""Events that tell when an approval ends by itself."""

WEBHOOK: Final = "webhook"
"""The kind of what was registered here; all others are channels (`store/notifications`)."""

COUNTER: Final = "webhooks"
"""Moves with every change of a webhook or channel; caches compare with it."""

MOST_REGISTERED: Final = 50
"""Webhooks of one organisation: each event writes a row for each of them, for which everybody waits."""

COLUMNS: Final = (
    "webhook_id",
    "delivery_id",
    "organisation_id",
    "event",
    "payload",
    "status",
    "attempts",
    "attempt_count",
    "next_attempt_at",
    "leased_until",
    "created_at",
    "subject",
)


def delivery_row(
    webhook_id: str,
    delivery_id: str,
    organisation_id: str,
    event: str,
    payload: str,
    now: float,
    due: float,
    subject: str | None = None,
) -> tuple[Any, ...]:
    """A new delivery in the order of `COLUMNS`."""
    return (
        webhook_id,
        delivery_id,
        organisation_id,
        event,
        payload,
        "pending",
        "[]",
        0,
        due,
        0.0,
        iso(now),
        subject,
    )


def payload_of(event: str, data: Mapping[str, Any], now: float) -> str:
    """The body that receivers get, fixed from now on: `{event, timestamp, data}`."""
    return msgspec.json.encode({"event": event, "timestamp": iso(now), "data": data}).decode()


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A webhook or channel that wants an event; `after` and `before` count for reminders of approvals."""

    webhook_id: str
    is_channel: bool = False
    after: float = 0.0
    """Seconds that an approval stays unseen."""
    before: float = 0.0
    """Seconds before an approval expires."""


class WebhookOutbox:
    """Makes the delivery rows of an event, from subscriptions kept in memory.

    An approval has the rows of its reminders from the beginning, due later, and sent unless outdated then.

    INVARIANT: `refresh` runs at the start of each writing transaction, and those are one at a time over all
    processes, so the subscriptions are those of the last committed change. What a job of the same
    transaction changes counts from the next one on.
    """

    columns: tuple[str, ...] = COLUMNS

    def __init__(self, store: Database, ids: Ids, first_delay: float = 0.0) -> None:
        self.listener: Callable[[set[str]], None] | None = None
        """Called on the writer thread, after the commit, with the webhooks that have new deliveries."""
        self._store = store
        self._ids = ids
        self._first_delay = first_delay
        self._order = DeliveryOrder()
        self.version = -1
        self._subscribed: Mapping[tuple[str, str], Sequence[Subscriber]] = {}
        self._listening: Set[str] = frozenset()

    def refresh(self, version: int) -> None:
        if version != self.version:
            self._subscribed = subscriptions()
            self._listening = {organisation_id for organisation_id, _ in self._subscribed}
            self.version = version

    def listens(self, organisation_id: str) -> bool:
        return organisation_id in self._listening

    def rows(
        self, organisation_id: str, event: str, data: dict[str, Any], now: float, key_id: str | None = None
    ) -> list[tuple[Any, ...]]:
        due = place = now + self._first_delay
        if not self._first_delay and (organisation_id, event) in self._subscribed:
            place = self._order.place(key_id, now)
        found = self._of(organisation_id, event, data, now, lambda subscriber: place)
        if event == "approval.requested":
            found += self._of(organisation_id, UNSEEN, data, now, lambda subscriber: now + subscriber.after)
        if event in _WITH_AN_END and "expiresAt" in data:
            end = seconds(data["expiresAt"])
            found += self._of(
                organisation_id, EXPIRING, data, now, lambda subscriber: max(due, end - subscriber.before)
            )
        return found

    def _of(
        self,
        organisation_id: str,
        event: str,
        data: dict[str, Any],
        now: float,
        due: Callable[[Subscriber], float],
    ) -> list[tuple[Any, ...]]:
        subscribed = self._subscribed.get((organisation_id, event))
        if not subscribed:
            return []
        payload = payload_of(event, data, now)
        return [
            delivery_row(
                *(each.webhook_id, self._ids("dlv"), organisation_id, event, payload, now, due(each)),
                subject=data.get("approvalId") if each.is_channel else None,
            )
            for each in subscribed
        ]

    def wake_sender(self, webhook_ids: Iterable[str]) -> None:
        if self.listener is not None:
            self.listener(set(webhook_ids))


def subscriptions() -> dict[tuple[str, str], list[Subscriber]]:
    """(organisation, event) to the enabled webhooks, and the channels, that want it."""
    found: dict[tuple[str, str], list[Subscriber]] = {}
    for row in Webhook.select().where(Webhook.enabled).order_by(Webhook.webhook_id):
        subscriber = Subscriber(row.webhook_id)
        if row.kind != WEBHOOK:
            config = msgspec.json.decode(row.config or "")
            after, before = 60.0 * config["unseenMinutes"], 60.0 * config["expiringMinutes"]
            subscriber = Subscriber(row.webhook_id, True, after, before)
        for event in msgspec.json.decode(row.events):
            found.setdefault((row.organisation_id, event), []).append(subscriber)
    return found


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
            end_pending(webhook_id)
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
    end_pending(webhook_id)
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
    end_pending(webhook_id)
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


def end_pending(webhook_id: str) -> None:
    """Nothing more will be sent: what is pending has failed, and may be sent again by hand."""
    Delivery.update(status="failed", next_attempt_at=None).where(
        (Delivery.webhook_id == webhook_id) & (Delivery.status == "pending")
    ).execute()
