"""One request to the service: what a hook sends, and what it takes for an answer."""

from __future__ import annotations

import http.client
import json
import ssl
from email.message import Message
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from api.hosts.setup import Setup

CONNECT_SECONDS: Final = 5.0
MOST_OF_AN_ANSWER: Final = 4 * 2**20
OUTCOMES: Final = ("allowed", "blocked", "waiting", "undecided", "recorded")


class Away(OSError):
    """The service cannot be reached, or says itself that it cannot work now."""


class ServiceFailing(Away):
    """It is there, and fails at this very request or puts it off: nothing is let through for that."""


class HookRefused(Exception):
    """The service does not take the request; `key` when it is the API key that it does not accept."""

    def __init__(self, why: str, code: str = "", *, key: bool = False) -> None:
        super().__init__(why)
        self.code, self.key = code, key

    @property
    def is_anothers(self) -> bool:
        """What is told is of a run that another key has begun."""
        return self.code == "run_conflict"


class Nonsense(Exception):
    """What answered is not the service."""


class HookAnswer(NamedTuple):
    outcome: str
    body: bytes
    key_id: str = ""
    """Organisation and id of the key, which a rotation leaves as they are."""


def post(setup: Setup, host: str, body: bytes, seconds: float, **query: str) -> HookAnswer:
    """What the service says to an input of a host, within so many seconds."""
    if setup.agent_id:
        query["agentId"] = setup.agent_id
    pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    headers = {"Content-Type": "application/json", "X-API-Key": setup.key}
    status, said, found = request(setup.url, "POST", f"/v1/hooks/{host}?{pairs}", body, headers, seconds)
    if status == 200:
        # INVARIANT: half an answer is none: hosts go ahead where a hook says what is no JSON.
        outcome = said.get("Governance-Outcome", "")
        if outcome not in OUTCOMES or _object(found) is None:
            raise Nonsense("its answer is not one of the service")
        return HookAnswer(outcome, found, said.get("Governance-Key", ""))
    problem = _object(found) or {}
    why, code = str(problem.get("detail") or f"status {status}"), str(problem.get("code") or "")
    if status in (502, 503, 504, 507):
        raise Away(f"it answers {status}: {why}")
    if status in (408, 429, 500):
        raise ServiceFailing(f"it answers {status}: {why}")
    if status == 413:  # a proxy before the service says so, too, in words of its own
        raise HookRefused(why, code or "payload_too_large")
    if not code:
        raise Nonsense(f"it answers {status}, not as the service does")
    raise HookRefused(why, code, key=status in (401, 403))


def sign_of_it(setup: Setup, seconds: float) -> str:
    """What says that the service is not away, whatever it did not answer: that it decides and records, or
    that something before it keeps its health to itself, so that nobody can tell. Empty: it is away."""
    try:
        status = request(setup.url, "GET", "/health/ready", None, {}, seconds)[0]
    except (Away, Nonsense):
        return ""
    if status == 200:
        return ", though it says that it is well"
    kept = f", and `/health/ready` answers {status}: let that address through to the service"
    return kept if status < 500 else ""


def request(
    url: str, method: str, path: str, body: bytes | None, headers: dict[str, str], seconds: float
) -> tuple[int, Message, bytes]:
    """Status, headers and body; raises Away or Nonsense."""
    parts = urlsplit(url)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = make(parts.hostname or "", parts.port, timeout=min(seconds, CONNECT_SECONDS))
        try:
            connection.connect()
            connection.sock.settimeout(seconds)
            connection.request(method, parts.path + path, body, headers)
            answer = connection.getresponse()
            found = answer.read(MOST_OF_AN_ANSWER)
            return answer.status, answer.headers, found
        finally:
            connection.close()
    except (http.client.IncompleteRead, http.client.RemoteDisconnected) as error:
        raise Away(f"it broke off: {error}") from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
        raise Away(str(error)) from None
    except ssl.SSLError as error:  # a wrong address or certificate, which stays so
        raise Nonsense(f"no TLS comes about: {error}") from None
    except (http.client.HTTPException, ValueError) as error:
        raise Nonsense(f"it does not speak HTTP: {error}") from None
    except OSError as error:
        raise Away(str(error) or type(error).__name__) from None


def _object(found: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(found)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
