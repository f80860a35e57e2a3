"""The outbox: turns one event into a delivery for each webhook and channel that wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api.clock import Ids, iso, seconds
from api.database.connection import Database
from api.database.models import Webhook
from api.store.webhooks.delivery_order import DeliveryOrder
from api.store.webhooks.webhooks import WEBHOOK

UNSEEN: Final = "approval.unseen"
EXPIRING: Final = "approval.expiring"
"""Reminders of an approval, which channels may ask for; their data is that of `approval.requested`."""

_WITH_AN_END: Final = frozenset({"approval.requested", "approval.escalated"})
"""Events that tell when an approval ends by itself."""

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
