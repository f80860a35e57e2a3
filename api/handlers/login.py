"""Logging in, who am I, and one's own password.

A try is counted before the password is looked at (`api/store/login_limits.py`), and the answer is the same,
after the same work, for an unknown e-mail, a wrong password and a disabled user. Failures are on record,
without what was typed: people type passwords into the wrong field.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from api.auth import passwords
from api.auth.credentials import unauthenticated
from api.caller import Caller
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values
from api.http.problems import invalid
from api.http.route import ANYONE, VIEWER, Route
from api.store import accounts, login_limits
from api.store.emails import same_email

log = logging.getLogger("governance")

ORGANISATION_OF_UNKNOWN = "default"
"""Whose record a login with an unknown e-mail goes on."""


async def log_in(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /auth/login: 200 with a token, 401, or 429 with `Retry-After`."""
    email, password = values.body["email"], values.body["password"]
    user = await _verified(email, password, values.client, context)
    if user is None:
        raise unauthenticated("the e-mail or the password is wrong")
    return _answer(user, context)


async def change_password(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/password: ends every token of the user, and answers with a new one."""
    problem = passwords.policy_violation(values.body["newPassword"], caller.email or "")
    if problem is not None:
        raise invalid("/newPassword", problem)
    assert caller.user_id is not None
    user_id = caller.user_id
    verified = await _verified(caller.email, values.body["currentPassword"], values.client, context)
    if verified is None:
        raise invalid("/currentPassword", "this is not your current password")
    fresh = await context.credentials.passwords.hashed(values.body["newPassword"], caller.holder)

    def job(transaction: Transaction) -> dict[str, Any] | None:
        if accounts.password_hash(user_id) != verified["passwordHash"]:
            return None
        return accounts.change_user(
            transaction, caller.organisation_id, user_id, caller.actor, password_hash=fresh
        )

    user = await context.writer.write(job)
    if user is None:
        raise invalid("/currentPassword", "the password was changed meanwhile; log in again")
    return _answer(user, context)


async def get_me(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/me: the user of the token."""
    return Reply(
        {
            "userId": caller.user_id,
            "email": caller.email,
            "role": caller.role,
            "organisationId": caller.organisation_id,
        }
    )


def _answer(user: dict[str, Any], context: Context) -> Reply:
    token, seconds = context.credentials.issue(user, context.clock(), context.ids("tok"))
    return Reply(
        {
            "accessToken": token,
            "tokenType": "Bearer",
            "expiresIn": seconds,
            "user": {"email": user["email"], "role": user["role"]},
        }
    )


async def _verified(email: str, password: str, client: str, context: Context) -> dict[str, Any] | None:
    """The user (with `passwordHash`) when the password is theirs; raises 429."""
    # A proxy may say anything; what goes on record is short.
    address = client[:64]
    credentials = context.credentials
    looked = login_limits.Attempt.of(email, address, context.clock())
    async with _slot(looked, context):
        # Checked by a reader before it is counted, so that tries which have to wait cost the writer nothing.
        slowed = await context.store.read_first(login_limits.check, context.store, looked)
        if slowed is None:
            return await _tried(email, password, address, context)
    if not await credentials.login_draw.drawn(slowed, password):
        raise login_limits.TooManyTries(login_limits.FIRST_WAIT)
    async with _slot(looked, context):
        return await _tried(email, password, address, context)


@asynccontextmanager
async def _slot(looked: login_limits.Attempt, context: Context) -> AsyncIterator[None]:
    """See `login_slot`. Nobody keeps out those who are known, from however many addresses they try."""
    hasher, store = context.credentials.passwords, context.store
    known = hasher.is_full and await store.read_first(login_limits.is_known, store, looked)
    with hasher.login_slot(looked.pair, known):
        yield


async def _tried(email: str, password: str, address: str, context: Context) -> dict[str, Any] | None:
    attempt = await context.writer.write(lambda transaction: login_limits.begin(transaction, email, address))
    found = await context.store.read_first(accounts.find_login, email)
    stored = None if found is None else found[1]
    is_known = await context.store.read_first(login_limits.is_known, context.store, attempt)
    known, place = attempt.known if is_known else None, login_limits.network(address)
    fits = await context.credentials.passwords.matches(stored, password, place, known)

    def job(transaction: Transaction) -> dict[str, Any] | None:
        # Looked up anew: a password changed or a user disabled while this one was checked counts.
        now = accounts.find_login(email)
        if fits and now is not None and now[1] == stored and now[0]["enabled"]:
            login_limits.succeeded(transaction, attempt)
            user = now[0]
            transaction.audit(
                user["organisationId"], "login", actor=user["email"], details={"address": address}
            )
            return {**user, "passwordHash": now[1]}
        known = now[0] if now is not None else None
        who = same_email(email) if known else "nobody"
        transaction.audit(
            known["organisationId"] if known else ORGANISATION_OF_UNKNOWN,
            "login.failed",
            actor=who,
            reason=_why(known),
            details={"address": address},
        )
        transaction.after_commit(
            partial(log.warning, "login of %s from %s failed: %s", who, address, _why(known))
        )
        return None

    return await context.writer.write(job)


def _why(user: dict[str, Any] | None) -> str:
    """For the record only; the answer never tells these apart."""
    if user is None:
        return "no user has this e-mail"
    return "wrong password" if user["enabled"] else "the user is disabled"


ROUTES = (
    Route(
        "POST",
        "/auth/login",
        ANYONE,
        log_in,
        "Log in",
        "accounts",
        body="login",
        reply="login-answer",
        errors=("unauthenticated", "rate_limited"),
        description="The token goes into `Authorization: Bearer <accessToken>`.",
    ),
    Route("GET", "/v1/me", VIEWER, get_me, "Who am I", "accounts", reply="me"),
    Route(
        "POST",
        "/v1/password",
        VIEWER,
        change_password,
        "Change one's own password",
        "accounts",
        body="password-change",
        reply="login-answer",
        errors=("rate_limited",),
        description="Ends every token of the user; the answer carries a new one.",
    ),
)
