"""Who hears of events, and of what: webhooks, channels and their secrets, deliveries; see `models.py`."""

from __future__ import annotations

from peewee import (
    SQL,
    BigAutoField,
    BigIntegerField,
    BooleanField,
    CompositeKey,
    DoubleField,
    IntegerField,
    TextField,
)

from api.database.table import Table


class Webhook(Table):
    """Who hears of events: a receiver that was registered, or a channel of an organisation's settings."""

    webhook_id = TextField(primary_key=True)
    organisation_id = TextField(index=True)
    url = TextField()
    events = TextField()
    enabled = BooleanField(default=True)
    description = TextField(null=True)
    secret = TextField()
    previous_secret = TextField(null=True)
    previous_secret_until = TextField(null=True)
    created_at = TextField()
    failing_since = TextField(null=True)
    disabled_reason = TextField(null=True)
    kind = TextField(default="webhook")
    """`webhook`, or the type of a channel, which has a `name`, no `url`, and a `config` (JSON)."""
    name = TextField(null=True)
    config = TextField(null=True)
    quiet_until = DoubleField(default=0)
    """A channel sends no message before; what comes until then goes out together."""

    class Meta:
        table_name = "webhooks"


class NotificationSecret(Table):
    """What a channel needs and its settings must not hold; `value` is encrypted."""

    organisation_id = TextField()
    name = TextField()
    value = TextField()
    updated_at = TextField()
    updated_by = TextField()

    class Meta:
        table_name = "notification_secrets"
        primary_key = CompositeKey("organisation_id", "name")


class Delivery(Table):
    delivery_no = BigAutoField()
    delivery_id = TextField(unique=True)
    organisation_id = TextField()
    webhook_id = TextField()
    event = TextField()
    payload = TextField()
    status = TextField()
    attempts = TextField(default="[]")
    attempt_count = IntegerField(default=0)
    next_attempt_at = DoubleField(null=True)
    leased_until = DoubleField(default=0)
    created_at = TextField()
    leased_by = BigIntegerField(null=True)
    subject = TextField(null=True)
    """The approval that a channel's notice is about."""

    class Meta:
        table_name = "deliveries"
        indexes = (
            (("webhook_id", "delivery_no"), False),
            (("status", "webhook_id", "next_attempt_at"), False),
        )


Delivery.add_index(
    Delivery.index(Delivery.subject, name="deliveries_of_approvals", where=SQL('"subject" IS NOT NULL'))
)
Delivery.add_index(
    Delivery.index(
        Delivery.status,
        Delivery.webhook_id,
        Delivery.next_attempt_at,
        name="deliveries_due_of_approvals",
        where=SQL('"subject" IS NOT NULL'),
    )
)
