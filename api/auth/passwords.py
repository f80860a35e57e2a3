"""Passwords: what is accepted as one, and argon2id off the event loop.

One password is checked at a time, on a thread of its own, so that any number of logins costs at most one
core and never delays events; a login that finds the queue full, or the part of it that one e-mail from one
address may have, is refused with `Retry-After`. Who logs in where they have before waits for no crowd: each
of them takes turns with all others together, who take turns by their addresses. Whoever makes users takes
turns with the logins, and with others who do. An unknown e-mail takes as long as a wrong password.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import argon2

from api.http.problems import ApiError
from api.loops import FairPlaces, Threads, has_gone

T = TypeVar("T")

SHORTEST: Final = 12
"""Characters."""
FEWEST_CHARACTERS: Final = 4
"""Different ones."""
LONGEST: Final = 1024
"""Bytes of UTF-8."""
MOST_WAITING: Final = 1_024
MOST_OF_PAIR: Final = 16
"""Of these with one e-mail from one address."""
LOGINS: Final = ""
"""Who logs in where they have not before takes turns as one."""

_hasher = argon2.PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)


def prepared(password: str) -> bytes:
    """The bytes that are hashed: NFKC, so that one password typed on two keyboards is one password."""
    return unicodedata.normalize("NFKC", password).encode()


def policy_violation(password: str, email: str = "") -> str | None:
    """Why this cannot become the password of that user, or None. It never repeats the password."""
    size = len(prepared(password))
    if len(password) < SHORTEST:
        return f"a password needs at least {SHORTEST} characters; this one has {len(password)}"
    if size > LONGEST:
        return f"a password may have at most {LONGEST} bytes; this one has {size}"
    if len(set(password)) < FEWEST_CHARACTERS:
        return f"a password needs at least {FEWEST_CHARACTERS} different characters"
    if email and password.strip().casefold() == email.strip().casefold():
        return "a password must not be the e-mail"
    return None


def hashed(password: str) -> str:
    """The argon2id text to store; takes some 150 ms of one core."""
    return _hasher.hash(prepared(password))


def matches(stored: str, password: str) -> bool:
    """True when the password fits the stored hash."""
    try:
        return _hasher.verify(stored, prepared(password))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def generated() -> str:
    """A random password of 144 bits."""
    return secrets.token_urlsafe(18)


class PasswordHasher:
    """Hashes and checks passwords one after the other for one process."""

    def __init__(self) -> None:
        self._thread = Threads(1, "passwords")
        self._dummy: str | None = None
        self._making = asyncio.Lock()
        """Of the dummy."""
        self._waiting: Counter[str] = Counter()
        """By e-mail and address."""
        self._places, self._strange = FairPlaces(1), FairPlaces(1)

    @property
    def is_full(self) -> bool:
        """Whether there is a place in the queue of logins for nobody but those who are known."""
        return self._waiting.total() >= MOST_WAITING

    @contextlib.contextmanager
    def login_slot(self, pair: str, known: bool = False) -> Iterator[None]:
        """A place in the bounded queue of logins, which is longer for those who are `known`, since they have
        logged in from this address before; raises 429 when it is full."""
        most = MOST_WAITING * 2 if known else MOST_WAITING
        if self._waiting[pair] >= MOST_OF_PAIR or self._waiting.total() >= most:
            raise ApiError(
                "rate_limited", "too many logins at once; try again shortly", headers={"Retry-After": "5"}
            )
        self._waiting[pair] += 1
        try:
            yield
        finally:
            self._waiting[pair] -= 1
            if not self._waiting[pair]:
                del self._waiting[pair]

    async def hashed(self, password: str, holder: str = LOGINS) -> str:
        """In the turn of whoever asks for it. Raises TooManyWait."""
        return await self._run(lambda: hashed(password), holder)

    async def matches(
        self, stored: str | None, password: str, address: str = "", known: str | None = None
    ) -> bool:
        """True when the password fits; in the same time when there is no such user (`stored` None). `known`
        names those who have logged in from this address before. Raises TooManyWait."""
        if self._dummy is None:
            async with self._making:
                # Made before the first check of any kind, so that no first unknown e-mail stands out.
                self._dummy = self._dummy or await self._run(lambda: hashed(generated()))

        def work() -> bool:
            return matches(stored or self._dummy or "", password)

        if known is not None:
            return await self._run(work, known) and stored is not None
        async with self._strange.place(address):
            return await self._run(work) and stored is not None

    async def _run(self, work: Callable[[], T], holder: str = LOGINS) -> T:
        async with self._places.place(holder):
            if has_gone.get()():
                raise asyncio.CancelledError
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
