"""A live service, asked over its API by a person: where it is, who asks, and what its refusals mean.

The token is, in this order, that of `--token-file` or `--token`, of GOVERNANCE_TOKEN, and of `governance
login` for this very address. API keys are of agents; what is here is for people, whom the record names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from api.cli.terminal import (
    AWAY,
    FAILED,
    USAGE,
    WAITS,
    CommandError,
    Subparsers,
    add_format,
    filled,
    print_json,
    say_error,
    show,
)

if TYPE_CHECKING:
    import httpx

SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0
USUAL: Final = "http://127.0.0.1:8700"
MOST_A_PAGE: Final = 500
AWAY_STATUSES: Final = (502, 503, 504)
"""Of a service, or of the proxy before it, that cannot answer now."""
_HAS: Final = {
    "/auth/login": "accessToken",
    "/v1/alerts": "alertId",
    "/v1/approvals": "approvalId",
    "/v1/changes": "changeId",
    "/v1/grants": "grantId",
    "/v1/halt": "haltId",
    "/v1/halts": "haltId",
    "/v1/policies": "policyId",
    "/v1/policy-presets": "presets",
    "/v1/policy-presets/packs": "packId",
    "POST /v1/policies/backtest": "counts",
    "POST /v1/policies/simulate": "matchedPolicies",
    "POST /v1/policy-presets/packs": "policyId",
    "/v1/resume": "haltId",
    "/v1/webhooks": "webhookId",
}
"""By how its path begins: what each object of an answer of this service has. Another one may answer everybody
with `{}`, which nobody must take for a halt."""


def add_service(parser: argparse.ArgumentParser) -> None:
    """For commands that work on a service or on something else."""
    parser.add_argument(
        "--url", type=filled, metavar="URL", help="ask a running service, such as http://127.0.0.1:8700"
    )
    _add_token(parser)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Which service, whoever asks."""
    parser.add_argument(
        "--url", type=filled, metavar="URL", help=f"the service; default: GOVERNANCE_URL, else {USUAL}"
    )
    add_format(parser)


def add_running(parser: argparse.ArgumentParser) -> None:
    """For commands that work on a running service only."""
    add_address(parser)
    _add_token(parser)


def add_limit(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "limit", "at most so many", 100)


def add_count(parser: argparse.ArgumentParser, name: str, help: str, usual: int) -> None:
    parser.add_argument(
        f"--{name}", type=_count, metavar="N", default=usual, help=f"{help}; default: {usual}"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no number from 1 on")
    return int(text)


def show_page(
    arguments: argparse.Namespace,
    path: str,
    columns: Mapping[str, str],
    told: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    **query: Any,
) -> int:
    """A list of the service; in a table each row has also what is `told` of it."""
    rows, total = running(arguments).page(path, arguments.limit, **query)
    if told is not None and arguments.format == "table":
        rows = [each | told(each) for each in rows]
    show(rows, columns, arguments.format)
    if total > len(rows):  # so that nobody takes a part for the whole
        say_error(f"these are {len(rows):,} of {total:,}; --limit {total} shows all")
    return 0


def show_one(
    arguments: argparse.Namespace, path: str, print_for_people: Callable[[dict[str, Any]], object]
) -> int:
    """One thing that the service has, as JSON or as it is printed for people."""
    found = running(arguments).get(path)
    (print_json if arguments.format == "json" else print_for_people)(found)
    return 0


def add_running_action(
    actions: Subparsers, name: str, help: str, run: Callable[[argparse.Namespace], int], more: str = ""
) -> argparse.ArgumentParser:
    """One action of a group of commands on a running service, such as `governance webhooks list`."""
    said = f"{help[0].upper()}{help[1:]}."
    made: argparse.ArgumentParser = actions.add_parser(name, help=help, description=f"{said} {more}".strip())
    add_running(made)
    made.set_defaults(run=run)
    return made


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=filled,
        metavar="FILE",
        help="holds a token of a reviewer or admin; `-`: from the input; default: that of `governance login`",
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
    _one_token(arguments)


def ask(arguments: argparse.Namespace, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST a body, return the answer, for commands whose exit code 1 says something else than a refusal."""
    try:
        found = running(arguments).send("POST", path, body).value
    except CommandError as error:
        raise CommandError(str(error), USAGE) from None
    if not isinstance(found, dict):
        raise CommandError(f"{arguments.url} is not this service; its answer is no object", USAGE)
    return found


def client_of(
    url: str, connect: float, seconds: float, headers: Mapping[str, str] | None = None
) -> httpx.Client:
    """One that takes the certificates of this machine, or of SSL_CERT_FILE, so that a company's own authority
    counts as it does for hooks, and no proxy of the environment. Raises httpx.InvalidURL and UnicodeError."""
    import ssl

    import httpx

    verify = ssl.create_default_context() if httpx.URL(url).scheme != "http" else False
    timeout = httpx.Timeout(seconds, connect=connect)
    return httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=verify, trust_env=False)


def why_no_answer(error: Exception) -> str:
    """What is the matter with a service of which httpx raised this, and what to do."""
    if "[SSL: CERTIFICATE_VERIFY_FAILED]" in str(error):
        return (
            f"has a certificate that is not accepted: {error}; renew it, name the authority that vouches for "
            "it in SSL_CERT_FILE, or give the name that it is for in the address"
        )
    if "[SSL" in str(error):
        return f"makes no TLS connection: {error}; is it an address of `http://`?"
    return f"does not answer: {error}; is it running (`governance serve`), and is this its address?"


def path_of(*parts: str) -> str:
    """`/v1/...` of these; ids are whatever somebody wrote."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    value: Any
    headers: Mapping[str, str]


class RunningService:
    """A service at an address, for the person of a token (none: for whoever logs in)."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._token = token

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        match: str | None = None,
    ) -> ServiceAnswer:
        """One request; `match` is the ETag that must still hold. Raises CommandError with the service's own
        words, and what to do."""
        import httpx

        headers = {"If-Match": match} if match else {}
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            with self._client() as client:
                answer = client.request(method, path, json=body, params=asked or None, headers=headers)
        except httpx.HTTPError as error:
            raise self._away(error) from None
        value = self._read(answer)
        if not (value is None and method == "DELETE"):
            self._refuse_other(method, path, value)
        return ServiceAnswer(value, answer.headers)

    def get(self, path: str, **query: Any) -> Any:
        return self.send("GET", path, query=query).value

    def page(self, path: str, limit: int, **query: Any) -> tuple[list[dict[str, Any]], int]:
        """The first so many of a list, and how many there are."""
        rows: list[dict[str, Any]] = []
        total = 0
        following: str | None = path
        query["limit"] = min(limit, MOST_A_PAGE)
        while following and len(rows) < limit:
            answer = self.send("GET", following, query=query)
            found = answer.value if isinstance(answer.value, list) else [answer.value]
            rows += found
            count = answer.headers.get("x-total-count", "")
            total = int(count) if count.isascii() and count.isdigit() else len(rows)
            link = answer.headers.get("link", "")
            following = link.partition("<")[2].partition(">")[0] if found and 'rel="next"' in link else None
            if following and (not following.startswith("/") or following.startswith("//")):
                # The token is for this address alone.
                raise CommandError(f"{self.url} goes on at another address, which is not asked", USAGE)
            query = {}  # the link has it
        return rows[:limit], total

    def events(self, path: str) -> Iterator[str]:
        """The lines of a stream; a pause as an empty one. Raises CommandError."""
        import httpx

        try:
            with self._client() as client, client.stream("GET", path) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self._read(answer)
                yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise self._away(error) from None

    def _client(self) -> httpx.Client:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        return client_of(self.url, CONNECT_SECONDS, SECONDS, headers)

    def _away(self, error: Exception) -> CommandError:
        return CommandError(f"the service at {self.url} {why_no_answer(error)}", AWAY)

    def _read(self, answer: httpx.Response) -> Any:
        try:
            value = None if answer.status_code == 204 else answer.json()
        except ValueError:
            if answer.status_code in AWAY_STATUSES:
                raise CommandError(
                    f"the service at {self.url} is away ({answer.status_code}); try again", AWAY
                ) from None
            raise CommandError(f"{self.url} is not this service; its answer is no JSON", USAGE) from None
        if answer.status_code == 202 and isinstance(value, dict) and "changeId" in value:
            raise _waits(value)
        if answer.is_success:
            return value
        code = AWAY if answer.status_code in AWAY_STATUSES else FAILED
        raise CommandError(self._refusal(answer.status_code, value), code)

    def _refuse_other(self, method: str, path: str, value: Any) -> None:
        """Raises CommandError when this is no answer of the service."""
        parts = path.partition("?")[0].split("/")
        begins = ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]
        wanted = [f"{method} {each}" for each in begins] + begins
        needed = next((_HAS[each] for each in wanted if each in _HAS), None)
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict) or (needed is not None and needed not in each):
                raise CommandError(f"{self.url} is not this service; its answer is another one's", USAGE)

    def _refusal(self, status: int, found: Any) -> str:
        if not isinstance(found, dict):
            return f"the service answered with status {status}"
        told = found.get("detail") or found.get("title") or "no reason given"
        lines = [f"the service refuses ({status}): {told}"]
        for each in found.get("errors") or ():
            if isinstance(each, dict):
                lines.append(f"{each.get('pointer', '')}: {each.get('message') or each.get('detail', '')}")
        if status == 401 and self._token is not None:
            given = os.environ.get("GOVERNANCE_TOKEN", "").strip() == self._token
            first = "unset GOVERNANCE_TOKEN, which goes before a login, and " if given else ""
            lines.append(f"{first}log in again: governance login --url {self.url}")
        return "\n".join(lines)


def _waits(change: dict[str, Any]) -> CommandError:
    agree = f"governance changes approve {change['changeId']}"
    told = f"nothing was done yet: another admin must agree until {change['expiresAt']}: {agree}"
    return CommandError(told, WAITS, change)


def running(arguments: argparse.Namespace) -> RunningService:
    """The service that flags and environment name, for who is logged in. Raises CommandError."""
    url = address(arguments)
    return RunningService(url, _token(arguments, url))


def address(arguments: argparse.Namespace) -> str:
    from urllib.parse import urlsplit

    told = arguments.url or os.environ.get("GOVERNANCE_URL") or USUAL
    url: str = told.rstrip("/")
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # of its port, its brackets, or of a name that no host can have
        named = False
    if not named or not url.isprintable():
        raise CommandError(f"`{told}` is no address; write for example {USUAL}", USAGE)
    return url


def _one_token(arguments: argparse.Namespace) -> None:
    if arguments.token_file and arguments.token:
        raise CommandError("give either --token-file or --token", USAGE)


def _token(arguments: argparse.Namespace, url: str) -> str:
    from api.cli import logins

    _one_token(arguments)
    if arguments.token_file == "-":
        token = sys.stdin.readline().strip()
    elif arguments.token_file:
        try:
            token = Path(arguments.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise CommandError(f"`{arguments.token_file}` cannot be read", USAGE) from None
    else:
        token = arguments.token or os.environ.get("GOVERNANCE_TOKEN", "").strip()
        if not token:
            login = logins.find(url)
            if login is None or login.is_over:
                what = "nobody is logged in here" if login is None else f"the login of {login.email} is over"
                raise CommandError(
                    f"{what}; log in with `governance login --url {url}`, set GOVERNANCE_TOKEN, or give "
                    "--token-file",
                    USAGE,
                )
            token = login.token
    if not token or not token.isascii() or not token.isprintable():
        raise CommandError("the token is empty or no token; `governance login` gets one", USAGE)
    return token
