"""`governance secrets`: what the database encrypts, when the signing secret is lost."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from api.cli.local_store import actor, add_action, opened, settings_of
from api.cli.terminal import USAGE, CommandError, Subparsers

if TYPE_CHECKING:
    from api.database.transaction import Transaction


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
    from api.auth.signing_secret import secrets_at_hand
    from api.health import nodes
    from api.settings import SettingsError
    from api.store import data_key

    if not arguments.yes:
        raise CommandError("this cannot be undone; stop the service and say --yes", USAGE)

    def forget(transaction: Transaction) -> tuple[int, int, int]:
        if any(map(data_key.is_read_by, at_hand)):
            raise CommandError(
                "nothing is lost: the signing secret that is set here reads what the database encrypts, so "
                "nothing was forgotten. To change that secret, set a new one and give this one once as "
                "GOVERNANCE_JWT_SECRET_BEFORE"
            )
        if (node := nodes.running(transaction.now)) is not None:
            raise CommandError(
                f"the service runs: process {node['processId']} on `{node['host']}` wrote to this database at"
                f" {node['seenAt']}, and would go on encrypting with the key that is to be forgotten; stop it"
                f" first (one that was killed is thought to run for {nodes.SILENT_SECONDS} seconds)"
            )
        return data_key.forget(transaction, actor())

    try:
        at_hand = secrets_at_hand(settings_of(arguments))
    except SettingsError:
        at_hand = []  # one that must not be used reads nothing
    with opened(arguments) as store:
        store.write(lambda transaction: nodes.pull_back(transaction.store, transaction.now))
        hooks, channels, rules = store.write(forget)
    forgotten = f"secrets of {hooks} webhooks, {channels} secrets of channels, keys of {rules} organisations"
    print(f"forgotten: {forgotten}")
    if channels:
        print("channels tell nobody of approvals until their secrets are set again")
    return 0
