"""`governance organisations`: tenants, and how tokens of their end users verify."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from api.cli.local_store import actor, add_action, opened
from api.cli.terminal import USAGE, CommandError, Subparsers, show

ALGORITHMS = ("HS256", "RS256", "ES256")
COLUMNS = {
    "organisationId": "ORGANISATION",
    "name": "NAME",
    "userToken": "USER TOKENS",
    "createdAt": "CREATED",
}
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
"""INVARIANT: it can name a folder of policies, and a file of settings (`engine/worktree/paths.py`)."""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("organisations", help="tenants: add, list, user-tokens")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    add = add_action(
        actions, "add", "add an organisation; give it an admin with `governance users add`", _add
    )
    add.add_argument("id", metavar="ID", help="small letters, digits and dashes; cannot be changed later")
    add.add_argument("--name", help="for people; default: the id")
    add_action(actions, "list", "list organisations", _list)
    rule = add_action(
        actions, "user-tokens", "set how `metadata.userToken` of its events verifies", _user_tokens
    )
    rule.add_argument("id", metavar="ID", help="from `governance organisations list`")
    rule.add_argument("--algorithm", choices=ALGORITHMS, help="the only one that is accepted")
    rule.add_argument(
        "--key-file", type=Path, metavar="FILE", help="the secret (HS256) or the public key as PEM"
    )
    rule.add_argument("--issuer", help="when given, `iss` must equal it")
    rule.add_argument("--audience", help="when given, `aud` must contain it")
    rule.add_argument("--none", action="store_true", help="accept no user tokens")


def _shown(organisation: dict[str, Any], form: str) -> dict[str, Any]:
    from api.handlers.organisations import shape

    shown = shape(organisation)
    if form == "table":
        rule = shown["userToken"]
        shown["userToken"] = rule["algorithm"] if rule else "none accepted"
    return shown


def _add(arguments: argparse.Namespace) -> int:
    from api.store import accounts

    if not _ID.match(arguments.id):
        raise CommandError(
            f"`{arguments.id}` is no id: write up to 63 small letters, digits and dashes, no dash at an end,"
            " such as `acme-west`"
        )
    name = arguments.name or arguments.id
    with opened(arguments) as store:
        if not store.write(lambda t: accounts.add_organisation(t, arguments.id, name, actor())):
            raise CommandError(f"there is an organisation `{arguments.id}` already")
        made = store.need_organisation(arguments.id)
    show([_shown(made, arguments.format)], COLUMNS, arguments.format)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from api.store import accounts

    with opened(arguments) as store:
        found = store.read(accounts.list_organisations)
    show([_shown(organisation, arguments.format) for organisation in found], COLUMNS, arguments.format)
    return 0


def _user_tokens(arguments: argparse.Namespace) -> int:
    from api.store import accounts

    rule = None if arguments.none else _rule(arguments)
    with opened(arguments) as store:
        found = store.need_organisation(arguments.id)
        store.open_vault()
        store.write(lambda t: accounts.change_organisation(t, arguments.id, found["name"], rule, actor()))
        changed = store.need_organisation(arguments.id)
    show([_shown(changed, arguments.format)], COLUMNS, arguments.format)
    return 0


def _rule(arguments: argparse.Namespace) -> dict[str, Any]:
    from api.auth.user_tokens import checked_rule
    from api.http.problems import ApiError

    if arguments.algorithm is None or arguments.key_file is None:
        raise CommandError("give --algorithm and --key-file, or --none", USAGE)
    try:
        key = arguments.key_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"`{arguments.key_file}` cannot be read: {reason}") from None
    if arguments.algorithm == "HS256":
        # Editors end files with a line break, which is no part of a secret.
        key = key.removesuffix("\n").removesuffix("\r")
    try:
        return checked_rule(
            {
                "algorithm": arguments.algorithm,
                "key": key,
                "issuer": arguments.issuer,
                "audience": arguments.audience,
            }
        )
    except ApiError as error:
        raise CommandError(f"`{arguments.key_file}`: {error.detail}") from None
