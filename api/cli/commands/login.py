"""`governance login`: a token of a person for this machine, kept until it expires."""

from __future__ import annotations

import argparse
import sys

from api.cli.api_client import RunningService, add_address, address
from api.cli.terminal import USAGE, CommandError, Subparsers, filled, first_line, tell

DESCRIPTION = (
    "Logs in with e-mail and password, and keeps the token for the commands that work on this service: in "
    "`governance/logins.json` below $XDG_STATE_HOME (else ~/.local/state), mode 0600, until it expires. "
    "The password is asked for on the terminal, and kept nowhere. What the commands do is on record under "
    "this person's name."
)


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("login", help="log in to a running service", description=DESCRIPTION)
    add_address(parser)
    parser.add_argument("--email", type=filled, metavar="EMAIL", help="default: asked for")
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from the first line of the input"
    )
    parser.set_defaults(run=_log_in)


def _log_in(arguments: argparse.Namespace) -> int:
    import os
    import time
    from urllib.parse import urlsplit

    from api.cli import logins

    url = address(arguments)
    if not arguments.password_stdin and not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask for the password; give --password-stdin", USAGE)
    if url.startswith("http://") and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
        print(f"governance: password and token travel to {url} unencrypted; use https", file=sys.stderr)
    logins.check()
    email = arguments.email or _asked("e-mail: ", arguments.password_stdin)
    answer = (
        RunningService(url, None)
        .send("POST", "/auth/login", {"email": email, "password": _password(arguments)})
        .value
    )
    user, seconds = answer["user"], answer["expiresIn"]
    logins.keep(url, logins.Login(answer["accessToken"], user["email"], user["role"], time.time() + seconds))
    said = f"logged in to {url} as {user['email']} ({user['role']}) for {_span(seconds)}"
    tell({"url": url, **user, "expiresIn": seconds}, arguments.format, said)
    if os.environ.get("GOVERNANCE_TOKEN"):
        print("governance: GOVERNANCE_TOKEN is set, and goes before this login", file=sys.stderr)
    return 0


def _asked(question: str, no_terminal: bool) -> str:
    if no_terminal:
        raise CommandError("--password-stdin needs --email", USAGE)
    print(question, end="", file=sys.stderr, flush=True)
    return first_line().strip()


def _password(arguments: argparse.Namespace) -> str:
    if arguments.password_stdin:
        return first_line()
    import getpass

    return getpass.getpass("password: ")


def _span(seconds: int) -> str:
    hours, rest = divmod(seconds, 3_600)
    return f"{hours} h" if hours and not rest else f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
