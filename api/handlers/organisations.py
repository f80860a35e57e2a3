"""The caller's organisation: its name, and how tokens of its end users verify. Keys go in, never out."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from api.auth.user_tokens import checked_rule
from api.caller import Caller
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values
from api.http.problems import invalid
from api.http.route import ADMIN, Route
from api.store import accounts


def shape(organisation: dict[str, Any]) -> dict[str, Any]:
    """The organisation as people see it: the rule for user tokens without its key."""
    rule = organisation["userToken"]
    shown = None if rule is None else {name: value for name, value in rule.items() if name != "key"}
    return organisation | {"userToken": shown}


async def get_organisation(caller: Caller, values: Values, context: Context) -> Reply:
    organisation = await context.store.read(accounts.organisation, caller.organisation_id)
    assert organisation is not None
    return Reply(shape(organisation))


async def update_organisation(caller: Caller, values: Values, context: Context) -> Reply:
    """PUT replaces both name and rule; a rule without `key` keeps the key of the same algorithm."""
    body = values.body

    def job(transaction: Transaction) -> dict[str, Any]:
        current = accounts.organisation(caller.organisation_id)
        assert current is not None
        rule = body["userToken"]
        if rule is not None:
            rule = checked_rule(_with_key(rule, accounts.user_token_rule(caller.organisation_id)))
        accounts.change_organisation(transaction, caller.organisation_id, body["name"], rule, caller.actor)
        return current | {"name": body["name"], "userToken": rule}

    return Reply(shape(await context.write(job)))


def _state(caller: Caller, values: Values) -> dict[str, Any] | None:
    """The organisation, and which key it has, without the key."""
    current = accounts.organisation(caller.organisation_id)
    if current is None:
        return None
    kept = (current["userToken"] or {}).get("key", "")
    return shape(current) | {"keyDigest": sha256(kept.encode()).hexdigest()[:16] if kept else None}


def _with_key(rule: dict[str, Any], current: dict[str, Any] | None) -> dict[str, Any]:
    if "key" in rule:
        return rule
    if current is None or current["algorithm"] != rule["algorithm"]:
        raise invalid("/userToken/key", f"`key` is needed: there is none yet for `{rule['algorithm']}`")
    return rule | {"key": current["key"]}


ROUTES = (
    Route(
        "GET",
        "/v1/organisation",
        ADMIN,
        get_organisation,
        "Read one's organisation",
        "accounts",
        reply="organisation",
    ),
    Route(
        "PUT",
        "/v1/organisation",
        ADMIN,
        update_organisation,
        "Set its name and how end-user tokens verify",
        "accounts",
        body="organisation-update",
        reply="organisation",
        second_admin=True,
        state=_state,
    ),
)
