"""API keys of agents: create, list, rotate, revoke. The key itself is shown once and never kept."""

from __future__ import annotations

from typing import Any

from api.auth.credentials import key_digest, key_prefix, new_key
from api.caller import Caller
from api.clock import iso, seconds
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import invalid, need
from api.http.route import ADMIN, Route, page_query
from api.store import accounts


def shape(key: dict[str, Any]) -> dict[str, Any]:
    """The key's record as people see it; what has no value is absent."""
    return {name: value for name, value in key.items() if value is not None}


async def create_api_key(caller: Caller, values: Values, context: Context) -> Reply:
    body, secret = values.body, new_key()
    expires_at = _end(body.get("expiresAt"), context.clock())

    def job(transaction: Transaction) -> dict[str, Any]:
        return accounts.add_key(
            transaction,
            caller.organisation_id,
            body["name"],
            key_digest(secret),
            key_prefix(secret),
            caller.actor,
            agent_id=body.get("agentId"),
            user_id=body.get("userId"),
            scopes=tuple(body.get("scopes") or ()),
            expires_at=expires_at,
        )

    key = await context.write(job)
    return Reply(shape(key) | {"key": secret}, 201)


def _end(text: str | None, now: float) -> str | None:
    """When a key is to end, as it is kept."""
    if text is None:
        return None
    try:
        end = seconds(text)
        written = iso(end)
    except (ValueError, OverflowError, OSError):
        raise invalid(
            "/expiresAt", "`expiresAt` must be an ISO 8601 time such as `2026-12-31T00:00:00Z`"
        ) from None
    if end <= now:
        raise invalid("/expiresAt", "`expiresAt` is over already; name a moment to come, or leave it out")
    return written


async def list_api_keys(caller: Caller, values: Values, context: Context) -> Reply:
    limit = values.query["limit"]
    before = decode_cursor(values, str)
    keys, total = await context.reads.read(
        caller, accounts.list_keys, caller.organisation_id, limit + 1, before
    )
    following = keys[limit - 1]["keyId"] if len(keys) > limit else None
    return page([shape(key) for key in keys[:limit]], total, following, values)


async def rotate_api_key(caller: Caller, values: Values, context: Context) -> Reply:
    key_id, secret = values.path["id"], new_key()

    def job(transaction: Transaction) -> dict[str, Any] | None:
        return accounts.rotate_key(
            transaction,
            caller.organisation_id,
            key_id,
            key_digest(secret),
            key_prefix(secret),
            caller.actor,
        )

    key = need(await context.write(job), "API key", key_id)
    return Reply(shape(key) | {"key": secret})


async def revoke_api_key(caller: Caller, values: Values, context: Context) -> Reply:
    key_id = values.path["id"]
    key = await context.write(
        lambda transaction: accounts.revoke_key(transaction, caller.organisation_id, key_id, caller.actor)
    )
    need(key, "API key", key_id)
    return Reply(status=204)


ROUTES = (
    Route(
        "GET",
        "/v1/api-keys",
        ADMIN,
        list_api_keys,
        "List API keys",
        "accounts",
        reply="api-key",
        reply_is_array=True,
        query=page_query(100, 1_000),
        description="Newest first, revoked ones too.",
    ),
    Route(
        "POST",
        "/v1/api-keys",
        ADMIN,
        create_api_key,
        "Create an API key",
        "accounts",
        body="api-key-create",
        reply="api-key-created",
        status=201,
        description="`key` is shown here and never again. From `expiresAt` on it is refused.",
    ),
    Route(
        "POST",
        "/v1/api-keys/:id/rotate",
        ADMIN,
        rotate_api_key,
        "Replace the secret of an API key",
        "accounts",
        reply="api-key-created",
        errors=("conflict",),
        description="The old secret stops at once; the new `key` is shown here and never again.",
    ),
    Route("DELETE", "/v1/api-keys/:id", ADMIN, revoke_api_key, "Revoke an API key", "accounts", status=204),
)
