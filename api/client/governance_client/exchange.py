"""Requests as flows: what is asked, tried again and waited for, said once for threads and for tasks.

A flow is a generator. It yields a request, a pause or something to wait for, and is sent what came of it; who
drives it decides whether a thread or a task waits meanwhile (`drivers.py`). A flow that is dropped midway is
closed, and cleans up.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

T = TypeVar("T")

RETRIED: Final = frozenset((408, 429, 500, 502, 503, 504, 507))
"""Answers after which the same question may be asked again."""
AWAY: Final = frozenset((502, 503, 504, 507))
"""Answers that say that the service cannot decide just now, whatever it is asked."""
ATTEMPT_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 3.0
LONGEST_RETRY_AFTER: Final = 60.0
"""However long an answer asks to stay away: it may be one of something between, which knows no better."""
MOST_BYTES: Final = 16 << 20
"""Of an answer."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request to the service; `seconds` is how long its answer may take, `connect` to reach anybody."""

    method: str
    path: str
    content: bytes | None = None
    seconds: float = ATTEMPT_SECONDS
    connect: float = CONNECT_SECONDS


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """What came back, read whole."""

    status: int
    content: bytes
    retry_after: str | None = None
    key_id: str = ""
    """As what the service knows the key that has asked."""

    def json(self) -> Any:
        """Raises ValueError."""
        try:
            return json.loads(self.content)
        except RecursionError:
            raise ValueError("the answer is nested too deeply") from None

    def problem(self) -> str:
        """What a problem document says, in a line."""
        try:
            return problem_text(self.status, self.json())
        except ValueError:
            return problem_text(self.status, None)


def problem_text(status: int, problem: Any) -> str:
    detail = problem.get("detail") if isinstance(problem, dict) else None
    text = " ".join(detail.split())[:500] if isinstance(detail, str) else ""
    return f"{status}: {text}" if text else f"the service answered {status}"


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Join:
    """Until somebody else is done, or so many seconds."""

    future: Future[None]
    seconds: float


Flow = Generator[ClientRequest | Pause | Join, Any, T]


class Unreachable(Exception):
    """A request that nobody answered; it may have arrived or not. `away`: nobody was there, as opposed to
    what is to be mended and stays so till then: a wrong address, certificate, key or proxy."""

    def __init__(self, reason: str, *, away: bool = True) -> None:
        super().__init__(reason)
        self.away = away


class NoAnswer(Exception):
    """Nothing was decided in time. `away`: nobody was there to decide it, as opposed to a service that is
    there and does not answer this. `status` is that of its answer, if there was one."""

    def __init__(self, reason: str, *, away: bool, status: int = 0) -> None:
        super().__init__(reason)
        self.away, self.status = away, status


def once(request: ClientRequest) -> Flow[ClientResponse]:
    """The answer to a request, whatever it is. Raises Unreachable."""
    response: ClientResponse = yield request
    return response


def ask(request: ClientRequest, deadline: float, tries: float = math.inf) -> Flow[ClientResponse]:
    """The answer to a request that may be sent again: retried with jitter until the deadline (of the
    monotonic clock) or so many tries, as the service says where it does. Raises NoAnswer."""
    attempt = 0
    while True:
        left = max(deadline - time.monotonic(), 0.05)
        least = 0.0
        try:
            response: ClientResponse = yield replace(request, seconds=min(request.seconds, left))
        except Unreachable as error:
            reason, away = f"the governance service cannot be reached ({error})", error.away
        else:
            if response.status not in RETRIED:
                return response
            reason, away = response.problem(), response.status in AWAY
            least = seconds_of(response.retry_after)
        pause = max(least, backoff(attempt))
        attempt += 1
        if attempt >= tries or time.monotonic() + pause >= deadline:
            raise NoAnswer(reason, away=away)
        yield Pause(pause)


def backoff(attempt: int) -> float:
    """Seconds before the next attempt; drawn, so that many clients do not come back at once."""
    longest: float = min(FIRST_PAUSE * 2 ** min(attempt, 10), LONGEST_PAUSE)
    return random.uniform(longest / 2, longest)


def seconds_of(retry_after: str | None) -> float:
    """What a `Retry-After` asks for; dates, which this service never sends, and nonsense ask for none."""
    text = (retry_after or "").strip()
    return min(float(text), LONGEST_RETRY_AFTER) if text.isascii() and text.isdigit() else 0.0
