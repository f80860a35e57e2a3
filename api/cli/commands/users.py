"""`governance users`: people who log in. Works on the store of this machine; needs no login."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from api.cli.local_store import actor, add_action, add_organisation, opened
from api.cli.terminal import CommandError, Subparsers, first_line, show, show_once

ROLES = ("admin", "reviewer", "viewer")
MAY = "viewers read, reviewers also resolve approvals and simulate, admins may do everything"
COLUMNS = {
    "email": "E-MAIL",
    "role": "ROLE",
    "enabled": "ENABLED",
    "organisationId": "ORGANISATION",
    "createdAt": "CREATED",
}


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("users", help="people: add, list, role, password, disable, enable, unlock")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, help: str, run: Any) -> argparse.ArgumentParser:
        made = add_action(actions, name, help, run)
        made.add_argument("email", metavar="EMAIL", help="what they log in with")
        return made

    add = action("add", "add a user; prints a random password unless one is piped in", _add)
    add.add_argument("--role", choices=ROLES, required=True, help=MAY)
    add_organisation(add)
    listing = add_action(actions, "list", "list users", _list)
    add_organisation(listing)
    role = action("role", "give a user another role", _role)
    role.add_argument("role", choices=ROLES, help=MAY)
    password = action("password", "give a user a new password; ends all their tokens", _password)
    for command in (add, password):
        command.add_argument(
            "--password-stdin", action="store_true", help="read the password from the first line of the input"
        )
    action("disable", "stop a user's logins and tokens at once", _disable)
    action("enable", "let a disabled user log in again", _enable)
    action("unlock", "forget a user's failed logins, so that they need not wait", _unlock)


def _add(arguments: argparse.Namespace) -> int:
    from api.auth import passwords
    from api.handlers.users import shape
    from api.store import accounts, emails

    problem = emails.problem_with(arguments.email)
    if problem is not None:
        raise CommandError(f"`{arguments.email}`: {problem}")
    password, given = _password_of(arguments)
    with opened(arguments) as store:
        store.need_organisation(arguments.organisation)
        hashed = passwords.hashed(password)
        user = store.write(
            lambda transaction: accounts.add_user(
                transaction, arguments.organisation, arguments.email, arguments.role, hashed, actor()
            )
        )
    if user is None:
        raise CommandError(f"there is a user `{arguments.email}` already")
    _tell_password(arguments, shape(user), password, given)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from api.handlers.users import shape
    from api.store import accounts

    with opened(arguments) as store:
        store.need_organisation(arguments.organisation)
        users, _ = store.read(accounts.list_users, arguments.organisation)
    show([shape(user) for user in users], COLUMNS, arguments.format)
    return 0


def _password(arguments: argparse.Namespace) -> int:
    from api.auth import passwords
    from api.handlers.users import shape

    password, given = _password_of(arguments)
    hashed = passwords.hashed(password)
    user = _change(arguments, password_hash=hashed)
    _tell_password(arguments, shape(user), password, given)
    return 0


def _role(arguments: argparse.Namespace) -> int:
    return _changed(arguments, role=arguments.role)


def _disable(arguments: argparse.Namespace) -> int:
    user = _change(arguments, enabled=False)
    _told(arguments, user)
    if keys := _keys_of(arguments, user):
        print(
            f"API keys that are bound to them go on; `governance keys revoke` ends one: {', '.join(keys)}",
            file=sys.stderr,
        )
    return 0


def _keys_of(arguments: argparse.Namespace, user: dict[str, Any]) -> list[str]:
    """The keys in force that are bound to somebody, by their id or their e-mail."""
    from api.store import accounts
    from api.store.emails import same_names

    names = same_names(user["userId"], user["email"])
    with opened(arguments) as store:
        keys, _ = store.read(accounts.list_keys, user["organisationId"])
    bound = (key for key in keys if same_names(key["userId"]) & names)
    return [f"{key['keyId']} ({key['name']})" for key in bound if key["revokedAt"] is None]


def _enable(arguments: argparse.Namespace) -> int:
    return _changed(arguments, enabled=True)


def _unlock(arguments: argparse.Namespace) -> int:
    from api.handlers.users import shape
    from api.store import login_limits

    with opened(arguments) as store:
        user = _find(store, arguments.email)
        store.write(lambda transaction: login_limits.forget(transaction, user["email"]))
    show([shape(user)], COLUMNS, arguments.format)
    return 0


def _changed(arguments: argparse.Namespace, **changes: Any) -> int:
    _told(arguments, _change(arguments, **changes))
    return 0


def _told(arguments: argparse.Namespace, user: dict[str, Any]) -> None:
    from api.handlers.users import shape

    show([shape(user)], COLUMNS, arguments.format)


def _change(arguments: argparse.Namespace, **changes: Any) -> dict[str, Any]:
    from api.store import accounts, login_limits

    with opened(arguments) as store:
        found = _find(store, arguments.email)

        def job(transaction: Any) -> dict[str, Any] | None:
            if "password_hash" in changes:
                login_limits.forget(transaction, found["email"])
            return accounts.change_user(
                transaction, found["organisationId"], found["userId"], actor(), **changes
            )

        user: dict[str, Any] | None = store.write(job)
    assert user is not None
    return user


def _find(store: Any, email: str) -> dict[str, Any]:
    from api.store import accounts

    found = store.read(accounts.find_login, email)
    if found is None:
        raise CommandError(f"there is no user `{email}`; see `governance users list`")
    user: dict[str, Any] = found[0]
    return user


def _password_of(arguments: argparse.Namespace) -> tuple[str, bool]:
    """The password to set, and whether the caller gave it. Never an argument: those can be seen by others."""
    from api.auth import passwords

    if not arguments.password_stdin:
        return passwords.generated(), False
    password = first_line()
    problem = passwords.policy_violation(password, arguments.email)
    if problem is not None:
        raise CommandError(problem)
    return password, True


def _tell_password(arguments: argparse.Namespace, user: dict[str, Any], password: str, given: bool) -> None:
    if given:
        show([user], COLUMNS, arguments.format)
        return
    what = f"password of {user['email']} ({user['role']})"
    show_once(what, password, arguments.format, user | {"password": password})
