"""Signatures of deliveries, as Standard Webhooks 1.0 says (standardwebhooks.com).

`webhook-id` stays the same over all attempts, so that a receiver can tell a repetition; `webhook-timestamp`
is the time of the attempt; `webhook-signature` holds one `v1,<base64>` per secret in force, separated by
spaces: HMAC-SHA256 over `id.timestamp.body`. Pure: random bytes and time are arguments.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
OLD_SECRET_SECONDS: Final = 24 * 3600
"""How long deliveries are signed with the old secret too, after a rotation."""


def secret_of(random: bytes) -> str:
    """A new secret from `SECRET_BYTES` random bytes, in the form that libraries take."""
    return PREFIX + base64.b64encode(random).decode("ascii")


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """One `v1` signature."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode("ascii")


def headers(secrets: Sequence[str], message_id: str, now: float, body: bytes) -> dict[str, str]:
    """The three headers of an attempt; the newest secret's signature comes first."""
    timestamp = int(now)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, message_id, timestamp, body) for secret in secrets),
    }
