"""Users, API keys and organisations: plain values in, plain values out, never rows.

Nothing of another organisation is found: asking for it is asking for what does not exist. Refusals of what
exists are raised as `AccountError`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import peewee

from api.caller import ROLES
from api.clock import iso
from api.database.connection import marks
from api.database.models import ApiKey, Organisation, User
from api.database.secrets_at_rest import VAULT
from api.database.table import counter, database
from api.database.transaction import CREDENTIAL, Transaction
from api.store.emails import same_email
from api.store.grants.granting import end_of_maker

MOST_KEYS: Final = 10_000
"""Of one organisation that are not revoked: with each change of one, all are read again before the next
event."""
ENDED_SECONDS: Final = 86_400.0
"""After the end of a key: a clock that is ahead for less revokes none."""


class AccountError(Exception):
    """A change that the current state refuses; the text says why and what to do instead."""


_USER = {
    "userId": "user_id",
    "organisationId": "organisation_id",
    "email": "email",
    "role": "role",
    "enabled": "enabled",
    "createdAt": "created_at",
    "tokenGeneration": "tokens_valid_from",
}
"""Member of a user's record -> column."""


def _user(row: User) -> dict[str, Any]:
    return {name: getattr(row, column) for name, column in _USER.items()}


def _key(row: ApiKey) -> dict[str, Any]:
    return {
        "keyId": row.key_id,
        "organisationId": row.organisation_id,
        "name": row.name,
        "prefix": row.prefix,
        "agentId": row.agent_id,
        "userId": row.user_id,
        "scopes": json.loads(row.scopes),
        "createdAt": row.created_at,
        "createdBy": row.created_by,
        "revokedAt": row.revoked_at,
        "expiresAt": row.expires_at,
        "lastUsedAt": row.last_used_at,
    }


def _first(statement: str, *parameters: str) -> tuple[Any, ...] | None:
    """The first row of a statement with `?` marks: for what every request asks, without building a query."""
    row: tuple[Any, ...] | None = database.execute_sql(
        statement.replace("?", database.param), parameters
    ).fetchone()
    return row


def kept(credential: str | None) -> dict[str, str | None]:
    """What a record says of a hash that is kept here, so that nobody can exchange it: the hash of that."""
    return {"digest": None if credential is None else sha256(credential.encode()).hexdigest()}


ActiveKey = tuple[Any, ...]
"""Of a key in force: id, organisation, agent, user, scopes and end, as they are kept."""


def find_user(user_id: str) -> dict[str, Any] | None:
    row = _first(f"SELECT {', '.join(_USER.values())} FROM users WHERE user_id = ?", user_id)
    if row is None:
        return None
    user = dict(zip(_USER, row, strict=True))
    return user | {"enabled": bool(user["enabled"])}


def find_login(email: str) -> tuple[dict[str, Any], str] | None:
    """The user with this e-mail (any case) and their password hash."""
    row = User.get_or_none(User.email == same_email(email))
    return None if row is None else (_user(row), row.password_hash)


def password_hash(user_id: str) -> str | None:
    row = User.get_or_none(User.user_id == user_id)
    return None if row is None else row.password_hash


def own_user(organisation_id: str, user_id: str) -> dict[str, Any] | None:
    """The user, when they belong to this organisation."""
    user = find_user(user_id)
    return user if user is not None and user["organisationId"] == organisation_id else None


def list_users(
    organisation_id: str, limit: int | None = None, after: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Users by e-mail, those after the given one, and how many there are in all."""
    query = User.select().where(User.organisation_id == organisation_id)
    rows = query.where(User.email > after).order_by(User.email).limit(limit)
    return [_user(row) for row in rows], query.count()


def add_user(
    transaction: Transaction, organisation_id: str, email: str, role: str, password_hash: str, actor: str
) -> dict[str, Any] | None:
    """Create a user; None when the e-mail is taken."""
    address = same_email(email)
    if User.get_or_none(User.email == address) is not None:
        return None
    row = User.create(
        user_id=transaction.ids("usr"),
        organisation_id=organisation_id,
        email=address,
        role=role,
        password_hash=password_hash,
        enabled=True,
        tokens_valid_from=0,
        created_at=transaction.at,
    )
    transaction.audit(
        organisation_id,
        "user.created",
        actor=actor,
        details={"userId": row.user_id, "email": address, "role": role} | kept(password_hash),
    )
    return _user(row)


def change_user(
    transaction: Transaction,
    organisation_id: str,
    user_id: str,
    actor: str,
    *,
    role: str | None = None,
    enabled: bool | None = None,
    password_hash: str | None = None,
) -> dict[str, Any] | None:
    """Change what is given; a new password or disabling ends every token the user has, and with their rights
    go the grants that they made. None: no such user.

    INVARIANT: an organisation that has an admin who can log in keeps one.
    """
    row = User.get_or_none((User.user_id == user_id) & (User.organisation_id == organisation_id))
    if row is None:
        return None
    leaves = enabled is False or (role is not None and role != "admin")
    if leaves and row.role == "admin" and row.enabled and count_admins(organisation_id) == 1:
        raise AccountError(
            f"`{row.email}` is the last admin who can log in; make somebody else an admin first"
        )
    details: dict[str, Any] = {"userId": user_id, "email": row.email}
    weaker = enabled is False or (role is not None and ROLES.index(role) > ROLES.index(row.role))
    if role is not None and role != row.role:
        row.role = details["role"] = role
    if enabled is not None and enabled != bool(row.enabled):
        row.enabled = details["enabled"] = enabled
    if password_hash is not None:
        row.password_hash = password_hash
        details |= {"password": "changed"} | kept(password_hash)
    if len(details) == 2:
        return _user(row)
    if enabled is False or password_hash is not None:
        # The time as well, so that in a database put back from a copy it does not come to a number of before.
        row.tokens_valid_from = max(int(transaction.now), row.tokens_valid_from) + 1
    row.save()
    transaction.publish(organisation_id, CREDENTIAL, user_id)
    transaction.audit(organisation_id, "user.updated", actor=actor, details=details)
    if weaker:
        end_of_maker(transaction, organisation_id, user_id, row.email, actor)
    return _user(row)


def count_admins(organisation_id: str) -> int:
    """Admins who can log in; the last one must stay."""
    return count_people(organisation_id, ("admin",))


def count_people(organisation_id: str, roles: Sequence[str]) -> int:
    """Those with one of these roles who can log in."""
    return int(
        User.select()
        .where((User.organisation_id == organisation_id) & User.role.in_(list(roles)) & User.enabled)
        .count()
    )


def keys_version() -> int:
    """The `keys` counter: it moves with every change to keys or to what they stand for."""
    return counter("keys")


def active_keys() -> tuple[int, dict[str, ActiveKey]]:
    """The `keys` counter, and every key in force by its digest."""
    # The counter first: keys read after it may be newer than it says, and are then only read once more.
    version = keys_version()
    # In a plain statement: events wait for it, and a model instance a row costs ten times as much.
    rows = database.execute_sql(
        "SELECT digest, key_id, organisation_id, agent_id, user_id, scopes, expires_at FROM api_keys"
        " WHERE revoked_at IS NULL"
    )
    return version, {digest: tuple(key) for digest, *key in rows.fetchall()}


def list_keys(
    organisation_id: str, limit: int | None = None, before: str | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Newest first, revoked ones too, those older than the given one; and how many there are in all."""
    query = ApiKey.select().where(ApiKey.organisation_id == organisation_id)
    older = query if before is None else query.where(ApiKey.key_id < before)
    return [_key(row) for row in older.order_by(ApiKey.key_id.desc()).limit(limit)], query.count()


def count_keys() -> int:
    """Of all organisations, revoked ones too."""
    return int(ApiKey.select().count())


def add_key(
    transaction: Transaction,
    organisation_id: str,
    name: str,
    digest: str,
    prefix: str,
    actor: str,
    *,
    agent_id: str | None = None,
    user_id: str | None = None,
    scopes: tuple[str, ...] = (),
    expires_at: str | None = None,
) -> dict[str, Any]:
    """`expires_at`: ISO 8601; from then on nobody can use it."""
    mine = (ApiKey.organisation_id == organisation_id) & ApiKey.revoked_at.is_null()
    if ApiKey.select().where(mine).count() >= MOST_KEYS and not _ended_revoked(transaction, organisation_id):
        raise AccountError(
            f"there are {MOST_KEYS} API keys that nobody has revoked, as many as may be; revoke some first"
        )
    row = ApiKey.create(
        key_id=transaction.ids("key"),
        organisation_id=organisation_id,
        name=name,
        digest=digest,
        prefix=prefix,
        agent_id=agent_id,
        user_id=user_id,
        scopes=json.dumps(list(scopes)),
        created_at=transaction.at,
        created_by=actor,
        expires_at=expires_at,
    )
    ends = {} if expires_at is None else {"expiresAt": expires_at}
    transaction.bump("keys")
    transaction.audit(
        organisation_id,
        "key.created",
        actor=actor,
        agentId=agent_id,
        details={"keyId": row.key_id, "name": name, "scopes": list(scopes), "userId": user_id}
        | ends
        | kept(digest),
    )
    return _key(row)


def _ended_revoked(transaction: Transaction, organisation_id: str) -> bool:
    """Whether there was a key whose time was over for long, which makes room for a new one."""
    ended = iso(transaction.now - ENDED_SECONDS)
    over = (ApiKey.organisation_id == organisation_id) & (ApiKey.expires_at <= ended)
    row = ApiKey.select().where(over & ApiKey.revoked_at.is_null()).order_by(ApiKey.expires_at).first()
    return row is not None and revoke_key(transaction, organisation_id, row.key_id, "service") is not None


def _own_key(organisation_id: str, key_id: str) -> ApiKey | None:
    return ApiKey.get_or_none((ApiKey.key_id == key_id) & (ApiKey.organisation_id == organisation_id))


def rotate_key(
    transaction: Transaction, organisation_id: str, key_id: str, digest: str, prefix: str, actor: str
) -> dict[str, Any] | None:
    """A new secret for the same key; the old one stops at once. None: no such key."""
    row = _own_key(organisation_id, key_id)
    if row is None:
        return None
    if row.revoked_at is not None:
        raise AccountError(f"the key `{key_id}` was revoked; make a new one")
    if row.expires_at is not None and row.expires_at <= transaction.at:
        raise AccountError(f"the key `{key_id}` has expired; make a new one")
    row.digest, row.prefix = digest, prefix
    row.save()
    transaction.bump("keys")
    transaction.publish(organisation_id, CREDENTIAL, key_id)
    transaction.audit(
        organisation_id,
        "key.rotated",
        actor=actor,
        details={"keyId": key_id, "name": row.name} | kept(digest),
    )
    return _key(row)


def keys_were_used(transaction: Transaction, key_ids: Sequence[str]) -> None:
    """These were used just now."""
    statement = f"UPDATE api_keys SET last_used_at = ? WHERE key_id IN ({marks(key_ids)})"
    transaction.store.rows_changed(statement, (transaction.at, *key_ids))


def revoke_key(
    transaction: Transaction, organisation_id: str, key_id: str, actor: str
) -> dict[str, Any] | None:
    """End a key; again on a revoked one changes nothing. None: no such key."""
    row = _own_key(organisation_id, key_id)
    if row is None:
        return None
    if row.revoked_at is None:
        row.revoked_at = transaction.at
        row.save()
        transaction.bump("keys")
        transaction.publish(organisation_id, CREDENTIAL, key_id)
        transaction.audit(
            organisation_id, "key.revoked", actor=actor, details={"keyId": key_id, "name": row.name}
        )
    return _key(row)


def organisation(organisation_id: str) -> dict[str, Any] | None:
    """`{organisationId, name, createdAt, userToken}`; `userToken` is the rule for end-user tokens, its key as
    it is kept, or None."""
    row = Organisation.get_or_none(Organisation.organisation_id == organisation_id)
    if row is None:
        return None
    return {
        "organisationId": row.organisation_id,
        "name": row.name,
        "createdAt": row.created_at,
        "userToken": json.loads(row.user_token) if row.user_token else None,
    }


def user_token_rule(organisation_id: str) -> dict[str, Any] | None:
    """How tokens of end users verify: `{algorithm, key, issuer?, audience?}`; None: not at all."""
    found = organisation(organisation_id)
    rule: dict[str, Any] | None = found["userToken"] if found else None
    return None if rule is None else rule | {"key": VAULT.open(rule["key"])}


def list_organisations() -> list[dict[str, Any]]:
    """By id."""
    rows = Organisation.select().order_by(Organisation.organisation_id)
    return [shape for row in rows if (shape := organisation(row.organisation_id)) is not None]


def add_organisation(transaction: Transaction, organisation_id: str, name: str, actor: str) -> bool:
    """Create an organisation; False when it exists."""
    try:
        with Organisation._meta.database.savepoint():
            Organisation.create(organisation_id=organisation_id, name=name, created_at=transaction.at)
    except peewee.IntegrityError:
        return False
    transaction.audit(organisation_id, "organisation.created", actor=actor, details={"name": name})
    return True


def change_organisation(
    transaction: Transaction, organisation_id: str, name: str, rule: dict[str, Any] | None, actor: str
) -> None:
    """Its name, and how end-user tokens verify: `{algorithm, key, issuer?, audience?}`; None: not at all."""
    details: dict[str, Any] = {"name": name, "userTokens": rule["algorithm"] if rule else "none accepted"}
    if rule is not None:
        details |= {name: rule[name] for name in ("issuer", "audience") if name in rule}
        if rule["key"] != (user_token_rule(organisation_id) or {}).get("key"):
            details["key"] = "changed"
    sealed = json.dumps(rule | {"key": VAULT.seal(rule["key"])}) if rule else None
    Organisation.update(name=name, user_token=sealed).where(
        Organisation.organisation_id == organisation_id
    ).execute()
    details |= kept(sealed)
    transaction.audit(organisation_id, "organisation.updated", actor=actor, details=details)
