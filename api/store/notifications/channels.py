"""Channels: by which an organisation's people are told, and the secrets that channels need.

A channel stands in the organisation's settings; here is its row beside the webhooks, which changes in the
transaction that records the settings, so that notices go by the same outbox. Records are `{name, type,
events, settings, failingSince}`. A secret is written, used and deleted, and never read by anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.database.models import NotificationSecret, Webhook
from api.database.secrets_at_rest import VAULT
from api.database.transaction import Transaction
from api.store.webhooks import webhooks
from schemas import load

TEST: Final = "notification.test"
"""The event of a test notice; nobody subscribes to it."""

_SHAPE: Final = load("documents/organisation_settings")["$defs"]["channel"]["properties"]
EVENTS: Final[tuple[str, ...]] = tuple(_SHAPE["events"]["items"]["enum"])
"""What a channel may be told of."""
_DEFAULTS: Final = {name: shape["default"] for name, shape in _SHAPE.items() if "default" in shape}
_OF_MAIL: Final = ("to", "from", "server", "port", "security", "username")


@dataclass(frozen=True, slots=True)
class Channel:
    """All that a sender needs to know; `config` is JSON with every default filled in."""

    organisation_id: str
    name: str
    type: str
    config: str
    secret: str | None = field(repr=False)
    """None: it names none, or one that is not kept here."""


def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a channel with its defaults."""
    values = {**_DEFAULTS, **settings}
    if values["type"] != "email":
        return {name: value for name, value in values.items() if name not in _OF_MAIL}
    return {"port": 465 if values["security"] == "tls" else 587, **values}


def sync(transaction: Transaction, organisation_id: str, wanted: Mapping[str, Any], actor: str) -> None:
    """Have exactly these channels, by name. Those that go end what they still had to send."""
    rows = {row.name or "": row for row in Webhook.select().where(_channels(organisation_id))}
    for name in sorted(rows.keys() - wanted.keys()):
        rows[name].delete_instance()
        webhooks.end_pending(transaction, rows[name].webhook_id)
        _changed(transaction, rows[name], "deleted", actor)
    for name, settings in wanted.items():
        config = complete(settings)
        values = {
            "kind": config["type"],
            "events": msgspec.json.encode(config["events"]).decode(),
            "config": msgspec.json.encode(config, order="sorted").decode(),
        }
        row = rows.get(name) or Webhook(
            webhook_id=transaction.ids("chn"),
            organisation_id=organisation_id,
            name=name,
            url="",
            secret="",
            created_at=transaction.at,
        )
        if any(getattr(row, key) != value for key, value in values.items()):
            row.__data__.update(values, failing_since=None, quiet_until=0.0)
            row.save(force_insert=name not in rows)
            _changed(transaction, row, "updated" if name in rows else "created", actor)


def _changed(transaction: Transaction, row: Webhook, change: str, actor: str) -> None:
    """One record, by the digest of its settings; subscriptions are read anew."""
    transaction.bump(webhooks.COUNTER)
    details = {"channelId": row.webhook_id, "name": row.name, "change": change}
    if change != "deleted":
        config = row.config or ""
        details |= {"type": row.kind, "events": msgspec.json.decode(row.events)}
        details |= {"digest": sha256(config.encode()).hexdigest()}
    transaction.audit(row.organisation_id, "channel.changed", actor=actor, details=details)


def _channels(organisation_id: str) -> Any:
    return (Webhook.organisation_id == organisation_id) & (Webhook.kind != webhooks.WEBHOOK)


def own(organisation_id: str, name: str) -> Webhook | None:
    """The row, inside the store only."""
    return Webhook.get_or_none(_channels(organisation_id) & (Webhook.name == name))


def opened(organisation_id: str, name: str, kind: str, config: str) -> Channel:
    """The channel with its secret decrypted."""
    reference = msgspec.json.decode(config).get("secret")
    row = None if reference is None else _secret(organisation_id, reference)
    return Channel(organisation_id, name, kind, config, None if row is None else VAULT.open(row.value))


def listed(organisation_id: str) -> list[tuple[dict[str, Any], Channel]]:
    """Records by name, each with what a sender would be given."""
    rows = Webhook.select().where(_channels(organisation_id)).order_by(Webhook.name)
    channels = [opened(organisation_id, row.name or "", row.kind, row.config or "") for row in rows]
    return [(_shape(row), channel) for row, channel in zip(rows, channels, strict=True)]


def _shape(row: Webhook) -> dict[str, Any]:
    settings = msgspec.json.decode(row.config or "")
    shape = {
        "name": row.name,
        "type": row.kind,
        "events": settings["events"],
        "settings": {key: value for key, value in settings.items() if key not in ("type", "events")},
        "failingSince": row.failing_since,
    }
    return {name: value for name, value in shape.items() if value is not None}


# Secrets ------------------------------------------------------------------------------------------


def _secret(organisation_id: str, name: str) -> NotificationSecret | None:
    return NotificationSecret.get_or_none(
        (NotificationSecret.organisation_id == organisation_id) & (NotificationSecret.name == name)
    )


def _shown(row: NotificationSecret) -> dict[str, Any]:
    return {"name": row.name, "updatedAt": row.updated_at, "updatedBy": row.updated_by}


def secrets(organisation_id: str) -> list[dict[str, Any]]:
    """Which there are, by name; never their values."""
    rows = NotificationSecret.select().where(NotificationSecret.organisation_id == organisation_id)
    return [_shown(row) for row in rows.order_by(NotificationSecret.name)]


def set_secret(
    transaction: Transaction, organisation_id: str, name: str, value: str, actor: str
) -> dict[str, Any]:
    """Keep it, in place of one of that name."""
    values = {"value": VAULT.seal(value), "updated_at": transaction.at, "updated_by": actor}
    row = NotificationSecret(organisation_id=organisation_id, name=name, **values)
    if _secret(organisation_id, name) is None:
        row.save(force_insert=True)
    else:
        row.save()
    transaction.audit(
        organisation_id, "notification_secret.changed", actor=actor, details={"name": name, "change": "set"}
    )
    return _shown(row)


def delete_secret(transaction: Transaction, organisation_id: str, name: str, actor: str) -> bool:
    """False: there is none of that name."""
    row = _secret(organisation_id, name)
    if row is None:
        return False
    row.delete_instance()
    transaction.audit(
        organisation_id,
        "notification_secret.changed",
        actor=actor,
        details={"name": name, "change": "deleted"},
    )
    return True
