"""Users: create, list, read, change. Nobody is deleted, since records name them; they are disabled."""

from __future__ import annotations

from typing import Any

from api.auth import passwords
from api.caller import Caller
from api.context import Context
from api.database.transaction import Transaction
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import ApiError, invalid, need
from api.http.route import ADMIN, Route, page_query
from api.store import accounts, emails, login_limits


def shape(user: dict[str, Any]) -> dict[str, Any]:
    """The user as people see them."""
    return {name: value for name, value in user.items() if name != "tokenGeneration"}


async def create_user(caller: Caller, values: Values, context: Context) -> Reply:
    body = values.body
    for pointer, problem in (
        ("/email", emails.problem_with(body["email"])),
        ("/password", passwords.policy_violation(body["password"], body["email"])),
    ):
        if problem is not None:
            raise invalid(pointer, problem)
    stored = await context.credentials.passwords.hashed(body["password"], caller.holder)

    def job(transaction: Transaction) -> dict[str, Any] | None:
        return accounts.add_user(
            transaction, caller.organisation_id, body["email"], body["role"], stored, caller.actor
        )

    user = await context.write(job)
    if user is None:
        # People log in by their e-mail alone, so one may belong to a user of another organisation.
        email = emails.same_email(body["email"])
        detail = (
            f"`{email}` cannot be given to a new user; is there one already? if not, ask who runs the service"
        )
        raise ApiError("conflict", detail)
    return Reply(shape(user), 201, headers={"Location": f"/v1/users/{user['userId']}"})


async def list_users(caller: Caller, values: Values, context: Context) -> Reply:
    limit = values.query["limit"]
    after = decode_cursor(values, str)
    users, total = await context.reads.read(
        caller, accounts.list_users, caller.organisation_id, limit + 1, after or ""
    )
    following = users[limit - 1]["email"] if len(users) > limit else None
    return page([shape(user) for user in users[:limit]], total, following, values)


async def get_user(caller: Caller, values: Values, context: Context) -> Reply:
    user_id = values.path["id"]
    user = await context.reads.read(caller, accounts.own_user, caller.organisation_id, user_id)
    return Reply(shape(need(user, "user", user_id)))


async def update_user(caller: Caller, values: Values, context: Context) -> Reply:
    """PATCH: role, enabled, password; any subset. What takes rights away takes them at once."""
    user_id, body = values.path["id"], values.body
    stored = None
    if "password" in body:
        user = await context.reads.read(caller, accounts.own_user, caller.organisation_id, user_id)
        problem = passwords.policy_violation(body["password"], user["email"] if user else "")
        if problem is not None:
            raise invalid("/password", problem)
        stored = await context.credentials.passwords.hashed(body["password"], caller.holder)

    def job(transaction: Transaction) -> dict[str, Any] | None:
        user = accounts.change_user(
            transaction,
            caller.organisation_id,
            user_id,
            caller.actor,
            role=body.get("role"),
            enabled=body.get("enabled"),
            password_hash=stored,
        )
        if user is not None and stored is not None:
            login_limits.forget(transaction, user["email"])
        return user

    user = await context.write(job)
    return Reply(shape(need(user, "user", user_id)))


def _state(caller: Caller, values: Values) -> dict[str, Any] | None:
    """The user that a request is about, as they are; None for one who is to be."""
    user = accounts.own_user(caller.organisation_id, values.path["id"]) if "id" in values.path else None
    return None if user is None else shape(user)


ROUTES = (
    Route(
        "GET",
        "/v1/users",
        ADMIN,
        list_users,
        "List users",
        "accounts",
        reply="user",
        reply_is_array=True,
        query=page_query(100, 1_000),
        description="By e-mail.",
    ),
    Route(
        "POST",
        "/v1/users",
        ADMIN,
        create_user,
        "Create a user",
        "accounts",
        body="user-create",
        reply="user",
        status=201,
        errors=("conflict",),
        headers=("Location",),
        second_admin=True,
        state=_state,
    ),
    Route("GET", "/v1/users/:id", ADMIN, get_user, "Read a user", "accounts", reply="user"),
    Route(
        "PATCH",
        "/v1/users/:id",
        ADMIN,
        update_user,
        "Change a user's role or password, disable or enable them",
        "accounts",
        body="user-update",
        reply="user",
        errors=("conflict",),
        description="The last admin who can log in can neither be disabled nor given another role (409).",
        second_admin=True,
        state=_state,
    ),
)
