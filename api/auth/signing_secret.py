"""The secret that signs access tokens: the configured one, else a random one kept in the data folder.

Whoever reads it can be anybody, so it is written with mode 0600 and refused when others may read it.
"""

from __future__ import annotations

import secrets
from typing import Final

from api.auth.private_file import kept
from api.database.secrets_at_rest import SecretsLocked
from api.database.transaction import Transaction
from api.settings import Settings, SettingsError
from api.store import data_key

FILE: Final = "jwt-secret"
SHORTEST: Final = 32
"""Bytes."""


def signing_secret(settings: Settings) -> bytes:
    """The secret's bytes; made at the first call. Raises SettingsError when it must not be used."""
    if settings.jwt_secret:
        return settings.jwt_secret.encode()
    path = settings.data_dir / FILE
    secret = kept(
        path,
        "the signing secret",
        lambda: secrets.token_urlsafe(48),
        "set GOVERNANCE_JWT_SECRET",
    ).encode()
    if len(secret) < SHORTEST:
        raise SettingsError(
            f"the signing secret `{path}` is shorter than {SHORTEST} bytes; put the file of before back. If "
            "it is lost, delete it and run `governance secrets forget --yes`: everybody logs in again, and "
            "webhooks need new secrets"
        )
    return secret


def secrets_at_hand(settings: Settings) -> list[bytes]:
    """What may open the vault; none is made. Raises SettingsError."""
    has_one = settings.jwt_secret or (settings.data_dir / FILE).exists()
    found = [signing_secret(settings)] if has_one else []
    return found + [settings.jwt_secret_before.encode()] * bool(settings.jwt_secret_before)


def open_vault(transaction: Transaction, settings: Settings, secret: bytes) -> None:
    """A job: what is encrypted in the database can be read from now on. Raises SettingsError when it was
    encrypted under another secret."""
    try:
        data_key.unlock(transaction, secret, settings.jwt_secret_before.encode() or None)
    except SecretsLocked as error:
        raise SettingsError(str(error)) from None
