"""`governance keys`: API keys of agents. Works on the store of this machine; needs no login."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from api.cli.local_store import actor, add_action, add_organisation, opened
from api.cli.terminal import CommandError, Subparsers, show, show_once

COLUMNS = {
    "keyId": "KEY ID",
    "name": "NAME",
    "prefix": "BEGINS",
    "agentId": "AGENT",
    "userId": "USER",
    "scopes": "SCOPES",
    "createdAt": "CREATED",
    "lastUsedAt": "LAST USED",
    "expiresAt": "EXPIRES",
    "revokedAt": "REVOKED",
}

MOST_DAYS = 36_500


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("keys", help="API keys of agents: add, list, rotate, revoke")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, help: str, run: Any) -> argparse.ArgumentParser:
        made = add_action(actions, name, help, run)
        add_organisation(made)
        return made

    add = action("add", "make a key and print it, once", _add)
    add.add_argument("name", metavar="NAME", help="for people, such as the deployment that will use it")
    add.add_argument("--agent", metavar="ID", help="bind it to one agent")
    add.add_argument("--user", metavar="ID", help="bind it to one end user")
    add.add_argument(
        "--scope", metavar="SCOPE", action="append", default=[], help="what policies see; may be repeated"
    )
    add.add_argument("--days", metavar="N", type=int, help="let it end by itself after so many days")
    action("list", "list keys, newest first", _list)
    rotate = action("rotate", "replace a key's secret and print the new one, once", _rotate)
    revoke = action("revoke", "end a key at once", _revoke)
    for command in (rotate, revoke):
        command.add_argument("key_id", metavar="KEY_ID", help="from `governance keys list`")


def _add(arguments: argparse.Namespace) -> int:
    from api.auth.credentials import key_digest, key_prefix, new_key
    from api.clock import iso, system_clock
    from api.handlers.api_keys import shape
    from api.store import accounts
    from schemas.validation import violations

    body = {
        "name": arguments.name,
        "agentId": arguments.agent,
        "userId": arguments.user,
        "scopes": arguments.scope,
    }
    if problems := violations("bodies/api-key-create", body):
        raise CommandError("\n".join(problem.message for problem in problems))
    if arguments.days is not None and not 1 <= arguments.days <= MOST_DAYS:
        raise CommandError(f"--days is {arguments.days}; give 1 to {MOST_DAYS}")
    expires_at = None if arguments.days is None else iso(system_clock() + arguments.days * 86_400)
    secret = new_key()
    with opened(arguments) as store:
        store.need_organisation(arguments.organisation)
        key = store.write(
            lambda transaction: accounts.add_key(
                transaction,
                arguments.organisation,
                arguments.name,
                key_digest(secret),
                key_prefix(secret),
                actor(),
                agent_id=arguments.agent,
                user_id=arguments.user,
                scopes=tuple(arguments.scope),
                expires_at=expires_at,
            )
        )
        stranger = arguments.user is not None and not store.read(
            _is_person, arguments.organisation, arguments.user
        )
    what = f"API key `{key['name']}` ({key['keyId']})"
    show_once(what, secret, arguments.format, shape(key) | {"key": secret})
    if arguments.agent is None and arguments.format == "table":
        print("it may name any agent; bind a key to its agent with --agent ID", file=sys.stderr)
    if stranger:
        print(
            f"nobody here has the id or e-mail `{arguments.user}`: if one of your people is meant, they may"
            " approve what this key asks for; revoke it, and make one with the right name",
            file=sys.stderr,
        )
    return 0


def _is_person(organisation_id: str, name: str) -> bool:
    """Whether somebody of the organisation has this id or e-mail."""
    from api.store import accounts

    found = accounts.find_login(name)
    known = found is not None and found[0]["organisationId"] == organisation_id
    return known or accounts.own_user(organisation_id, name) is not None


def _list(arguments: argparse.Namespace) -> int:
    from api.handlers.api_keys import shape
    from api.store import accounts

    with opened(arguments) as store:
        store.need_organisation(arguments.organisation)
        keys, _ = store.read(accounts.list_keys, arguments.organisation)
    show([shape(key) for key in keys], COLUMNS, arguments.format)
    return 0


def _rotate(arguments: argparse.Namespace) -> int:
    from api.auth.credentials import key_digest, key_prefix, new_key
    from api.handlers.api_keys import shape
    from api.store import accounts

    secret = new_key()
    with opened(arguments) as store:
        key = store.write(
            lambda transaction: accounts.rotate_key(
                transaction,
                arguments.organisation,
                arguments.key_id,
                key_digest(secret),
                key_prefix(secret),
                actor(),
            )
        )
        key = _need(key, arguments, store)
    what = f"new secret of API key `{key['name']}` ({key['keyId']})"
    show_once(what, secret, arguments.format, shape(key) | {"key": secret})
    if key["expiresAt"] and arguments.format == "table":
        print(
            f"it ends at {key['expiresAt']}, as the one before: `governance keys add` makes one that lasts "
            "longer",
            file=sys.stderr,
        )
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    from api.handlers.api_keys import shape
    from api.store import accounts

    with opened(arguments) as store:
        key = store.write(
            lambda transaction: accounts.revoke_key(
                transaction, arguments.organisation, arguments.key_id, actor()
            )
        )
        key = _need(key, arguments, store)
    show([shape(key)], COLUMNS, arguments.format)
    return 0


def _need(key: dict[str, Any] | None, arguments: argparse.Namespace, store: Any) -> dict[str, Any]:
    from api.store import accounts

    if key is not None:
        return key
    message = f"there is no key `{arguments.key_id}` in the organisation `{arguments.organisation}`"
    keys, _ = store.read(accounts.list_keys, arguments.organisation)
    named = [each for each in keys if each["name"] == arguments.key_id and not each.get("revokedAt")]
    if not named:
        raise CommandError(f"{message}; see `governance keys list`")
    # Names may be shared and an ended key never comes back, so the one that is meant is named by its id.
    whose = "one key has" if len(named) == 1 else f"{len(named)} keys have"
    lines = [f"{message}, but {whose} this name; give the id:"]
    lines += [f"  {each['keyId']}  begins {each['prefix']}, made {each['createdAt']}" for each in named]
    raise CommandError("\n".join(lines))
