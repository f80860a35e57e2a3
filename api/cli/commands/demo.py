"""`governance demo`: a day of agent events against a running service.

Without credentials it makes an API key and a reviewer of its own in the store of this machine, and ends both
when it is done.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from api.cli.local_store import actor, add_place, opened, settings_of
from api.cli.terminal import USAGE, CommandError, Subparsers

ORGANISATION = "default"
REVIEWER = "demo-reviewer@localhost"


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "demo",
        help="play a day of agent events against the running service",
        description="Plays a day of agent events against the running service and prints the decisions. On "
        "the machine of the service it makes an API key and a reviewer for itself and ends both afterwards; "
        "elsewhere give --api-key, --email and --password of a reviewer or admin.",
    )
    parser.add_argument("--url", help="address of the service; default: the one that the settings say")
    parser.add_argument("--api-key", metavar="KEY", help="of the agents that it plays")
    parser.add_argument("--email", help="of the reviewer or admin that it plays")
    parser.add_argument("--password", help="of this person")
    add_place(parser)
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from api.demo.play import DemoFailed, play

    url = (arguments.url or settings_of(arguments).base_url).rstrip("/")
    given = (arguments.api_key, arguments.email, arguments.password)
    if any(given) and not all(given):
        raise CommandError("give --api-key, --email and --password together, or none of them", USAGE)
    with contextlib.nullcontext(given) if all(given) else _visitors(arguments) as (key, email, password):
        try:
            play(url, key, email, password, sys.stdout)
        except DemoFailed as error:
            raise CommandError(str(error)) from None
    return 0


@contextlib.contextmanager
def _visitors(arguments: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """A key and a reviewer that last as long as the demo."""
    from api.auth import passwords
    from api.auth.credentials import key_digest, key_prefix, new_key
    from api.store import accounts

    secret, password = new_key(), passwords.generated()
    hashed = passwords.hashed(password)

    def come(transaction: Any) -> tuple[str, str]:
        known = accounts.find_login(REVIEWER)
        user = known[0] if known is not None else None
        if user is None:
            user = accounts.add_user(transaction, ORGANISATION, REVIEWER, "reviewer", hashed, actor())
        else:
            accounts.change_user(
                transaction,
                user["organisationId"],
                user["userId"],
                actor(),
                role="reviewer",
                enabled=True,
                password_hash=hashed,
            )
        assert user is not None
        key = accounts.add_key(
            transaction, ORGANISATION, "demo", key_digest(secret), key_prefix(secret), actor()
        )
        return user["userId"], key["keyId"]

    def leave(transaction: Any) -> None:
        accounts.change_user(transaction, ORGANISATION, user_id, actor(), enabled=False)
        accounts.revoke_key(transaction, ORGANISATION, key_id, actor())

    with opened(arguments) as store:
        user_id, key_id = store.write(come)
        try:
            yield secret, REVIEWER, password
        finally:
            store.write(leave)
