"""Opens the vault: the data key is made once, wrapped with the signing secret, and wrapped anew after that
was changed."""

from __future__ import annotations

import json

from api.database.models import DataKey, NotificationSecret, Organisation, Webhook
from api.database.secrets_at_rest import PREFIX, VAULT, SecretsLocked, new_data_key, unwrapped, wrapped
from api.database.transaction import Transaction
from api.store.webhooks.webhooks import WEBHOOK

MEND = (
    "the secrets in the database (of webhooks, and keys of user tokens) are encrypted under another signing"
    " secret; put that one back (`jwt-secret` in the data folder, or GOVERNANCE_JWT_SECRET), or give it once"
    " as GOVERNANCE_JWT_SECRET_BEFORE, and they are taken along. If it is lost for ever, run"
    " `governance secrets forget --yes`"
)
NOTHING_YET = (
    "the signing secret is another one than at the last start; put that one back (`jwt-secret` in the data"
    " folder, or GOVERNANCE_JWT_SECRET), or give it once as GOVERNANCE_JWT_SECRET_BEFORE. No secret is"
    " encrypted in the database yet, so `governance secrets forget --yes` does as well, and loses nothing"
)
NOR_BEFORE = "GOVERNANCE_JWT_SECRET_BEFORE is not the signing secret of before either; "


def unlock(transaction: Transaction, secret: bytes, before: bytes | None) -> None:
    """A job: the data key for this process, and what was kept without encryption encrypted. Raises
    SecretsLocked, with what to do."""
    row = DataKey.get_or_none()
    if row is None:
        data_key = new_data_key()
        DataKey.create(key_no=1, wrapped=wrapped(data_key, secret))
    else:
        try:
            data_key = unwrapped(row.wrapped, secret)
        except SecretsLocked:
            data_key = _rewrapped(row, secret, before)
    VAULT.unlock(data_key)
    _adopt()


def _rewrapped(row: DataKey, secret: bytes, before: bytes | None) -> bytes:
    try:
        if before is None:
            raise SecretsLocked
        data_key = unwrapped(row.wrapped, before)
    except SecretsLocked:
        mend = MEND if _anything_encrypted() else NOTHING_YET
        raise SecretsLocked(mend if before is None else NOR_BEFORE + mend) from None
    DataKey.update(wrapped=wrapped(data_key, secret)).execute()
    return data_key


def _anything_encrypted() -> bool:
    return (
        Webhook.select().where(Webhook.secret != "").exists()
        or NotificationSecret.select().exists()
        or Organisation.select().where(Organisation.user_token.is_null(False)).exists()
    )


def _adopt() -> None:
    """Encrypt what a version kept that did not."""
    for hook in Webhook.select():
        for column in ("secret", "previous_secret"):
            value = getattr(hook, column)
            if value and not value.startswith(PREFIX):
                setattr(hook, column, VAULT.seal(value))
        if hook.dirty_fields:
            hook.save(only=hook.dirty_fields)
    for organisation in Organisation.select().where(Organisation.user_token.is_null(False)):
        rule = json.loads(organisation.user_token or "")
        if not rule["key"].startswith(PREFIX):
            organisation.user_token = json.dumps(rule | {"key": VAULT.seal(rule["key"])})
            organisation.save()


def is_read_by(secret: bytes) -> bool:
    """Whether this is the signing secret that the data key is wrapped with."""
    row = DataKey.get_or_none()
    try:
        return row is not None and bool(unwrapped(row.wrapped, secret))
    except SecretsLocked:
        return False


def forget(transaction: Transaction, actor: str) -> tuple[int, int, int]:
    """A job, for when the signing secret is lost: webhooks are switched off until they get a new secret,
    channels have no secrets, and no user token is accepted. Returns how many webhooks, secrets of
    channels and user tokens."""
    ((channels,),) = transaction.store.rows("SELECT COUNT(*) FROM notification_secrets")
    transaction.store.change("DELETE FROM data_keys")
    transaction.store.change("DELETE FROM notification_secrets")
    hooks = list(Webhook.select().where(Webhook.kind == WEBHOOK))
    for hook in hooks:
        hook.enabled, hook.secret, hook.previous_secret = False, "", None
        hook.disabled_reason = "its secret was lost; rotate it, then enable the webhook"
        hook.save()
        transaction.audit(
            hook.organisation_id, "webhook.disabled", actor=actor, details={"webhookId": hook.webhook_id}
        )
    rules = list(Organisation.select().where(Organisation.user_token.is_null(False)))
    for organisation in rules:
        organisation.user_token = None
        organisation.save()
        details = {"name": organisation.name, "userTokens": "none accepted", "digest": None}
        transaction.audit(organisation.organisation_id, "organisation.updated", actor=actor, details=details)
    transaction.bump("webhooks")
    return len(hooks), int(channels), len(rules)
