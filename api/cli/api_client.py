"""A live service, asked over its API, for the commands that work on one instead of a folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from api.cli.terminal import USAGE, CommandError, filled

SECONDS = 60.0


def add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", type=filled, metavar="URL", help="ask a running service, such as http://127.0.0.1:8700"
    )
    parser.add_argument(
        "--token-file",
        type=filled,
        metavar="FILE",
        help="holds a token of a reviewer or admin; `-`: from the input",
    )
    parser.add_argument(
        "--token",
        type=filled,
        metavar="TOKEN",
        help="the token itself; others here may see it, so prefer a file",
    )


def refuse_unused(arguments: argparse.Namespace, *local: str) -> None:
    """Refuse flags that the place asked would leave out: `local` are those that a service has no use for."""
    for flag in local if arguments.url else ("token_file", "token"):
        if getattr(arguments, flag):
            word = f"--{flag.replace('_', '-')}"
            rest = "does not go with --url" if arguments.url else "is for a service; give --url as well"
            raise CommandError(f"{word} {rest}", USAGE)
    if arguments.token_file and arguments.token:
        raise CommandError("give either --token-file or --token", USAGE)


def ask(arguments: argparse.Namespace, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST a body, return the answer. Raises CommandError with the service's own words."""
    import httpx

    url = arguments.url.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"`{arguments.url}` is no address; write for example http://127.0.0.1:8700", USAGE)
    headers = {"Authorization": f"Bearer {_token(arguments)}"}
    try:
        with httpx.Client(timeout=SECONDS, trust_env=False) as client:
            answer = client.post(f"{url}{path}", json=body, headers=headers)
            found = answer.json()
    except httpx.HTTPError as error:
        raise CommandError(f"the service at {url} does not answer: {error}", USAGE) from None
    except ValueError:
        raise CommandError(f"{url} is not this service; its answer is no JSON", USAGE) from None
    if answer.status_code != 200 or not isinstance(found, dict):
        raise CommandError(_refusal(answer.status_code, found), USAGE)
    return found


def _refusal(status: int, found: Any) -> str:
    if not isinstance(found, dict):
        return f"the service answered with status {status}"
    lines = [
        f"the service refuses ({status}): {found.get('detail') or found.get('title') or 'no reason given'}"
    ]
    for each in found.get("errors") or ():
        if isinstance(each, dict):
            lines.append(f"{each.get('pointer', '')}: {each.get('message') or each.get('detail', '')}")
    if status == 401:
        lines.append("get a token with: POST /auth/login, body {email, password}; it is `accessToken`")
    return "\n".join(lines)


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token_file == "-":
        token = sys.stdin.readline().strip()
    elif arguments.token_file:
        try:
            token = Path(arguments.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise CommandError(f"`{arguments.token_file}` cannot be read", USAGE) from None
    else:
        token = arguments.token or ""
    if not token or not token.isascii() or not token.isprintable():
        raise CommandError("--url needs a token; give --token-file or --token", USAGE)
    return token
