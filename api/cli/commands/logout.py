"""`governance logout`: forget the token of a service."""

from __future__ import annotations

import argparse

from api.cli.api_client import add_address, address
from api.cli.terminal import Subparsers, print_json

DESCRIPTION = (
    "Removes the token from this machine. It is not ended by that: where somebody else may have it, change "
    "the password, which ends every token of the user."
)


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("logout", help="forget a login", description=DESCRIPTION)
    add_address(parser)
    parser.set_defaults(run=_log_out)


def _log_out(arguments: argparse.Namespace) -> int:
    from api.cli import logins

    url = address(arguments)
    gone = logins.forget(url)
    if arguments.format == "json":
        print_json({"url": url, "forgotten": gone})
    else:
        print(f"logged out of {url}" if gone else f"nobody was logged in to {url}")
    return 0
