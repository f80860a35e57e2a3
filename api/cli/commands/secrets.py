"""`governance secrets`: what the database encrypts, when the signing secret is lost."""

from __future__ import annotations

import argparse

from api.cli.local_store import actor, add_action, opened
from api.cli.terminal import USAGE, CommandError, Subparsers


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("secrets", help="secrets kept in the database: forget")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    forget = add_action(
        actions,
        "forget",
        "give up what is encrypted under a signing secret that is lost: webhooks are switched off until "
        "their secret is rotated, user tokens are not accepted until a key is set again",
        _forget,
    )
    forget.add_argument("--yes", action="store_true", help="do it; stop the service first")


def _forget(arguments: argparse.Namespace) -> int:
    from api.store import data_key

    if not arguments.yes:
        raise CommandError("this cannot be undone; stop the service and say --yes", USAGE)
    with opened(arguments) as store:
        hooks, rules = store.write(lambda transaction: data_key.forget(transaction, actor()))
    print(f"forgotten: secrets of {hooks} webhooks, keys of {rules} organisations")
    return 0
