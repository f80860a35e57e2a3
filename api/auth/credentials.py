"""Who asks: access tokens and API keys become a `Caller` or a refusal.

Access tokens are JWT HS256 with `sub, role, iat, exp, iss, aud, jti`; no other algorithm is accepted, and the
user is looked up on each request, so that disabling or demoting one works at once. API keys are 256 random
bits, stored as SHA-256. What fails says only that it failed, or that its time is over. Passwords are in
`passwords.py`, the tokens of end users in `user_tokens.py`.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final

import jwt

from api.auth.login_draw import LoginDraw
from api.auth.passwords import PasswordHasher
from api.auth.throttle import Throttle
from api.auth.user_tokens import verify_user_token
from api.caller import Caller
from api.clock import Clock, boot_seconds, seconds, system_clock
from api.database.connection import Database
from api.http.problems import ApiError
from api.shared_looks import SharedLooks
from api.store import accounts

__all__ = ["Credentials", "key_digest", "key_prefix", "new_key", "unauthenticated", "verify_user_token"]

log = logging.getLogger("governance")

ISSUER: Final = "agent-governance-service"
AUDIENCE: Final = "agent-governance-service"
KEY_PREFIX: Final = "agk_"
LONGEST_TOKEN: Final = 4_096
CLAIMS: Final = ("sub", "role", "iat", "exp", "iss", "aud", "jti")
WRONG_KEYS_AT_ONCE: Final = 60
WRONG_KEYS_PER_SECOND: Final = 1
"""From one address, in one process."""
SKEW: Final = 60
"""Seconds that a token may seem to come from the future: nodes whose clocks differ."""


def new_key() -> str:
    """A new API key: `agk_` and 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def key_digest(key: str) -> str:
    """What is stored of a key."""
    return sha256(key.encode(errors="replace")).hexdigest()


def key_prefix(key: str) -> str:
    """What people recognise a key by in lists: too little of it to help a guesser."""
    return key[:8] if key.startswith(KEY_PREFIX) and len(key) >= 40 else key[:3]


def _generation(claims: Mapping[str, Any]) -> int:
    """A number that grows with each password of the user, and when they are disabled."""
    number = str(claims["jti"]).rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def unauthenticated(detail: str, scheme: str = "Bearer") -> ApiError:
    challenge = f'{scheme} realm="governance"'
    return ApiError("unauthenticated", detail, headers={"WWW-Authenticate": challenge})


@dataclass(frozen=True, slots=True)
class _Keys:
    """The key table as read at one moment, by digest."""

    version: int
    callers: Mapping[str, Caller]
    ends: Mapping[str, float]
    """When those that expire do so. They stay in memory, since a clock that was ahead goes back."""
    rows: Mapping[str, accounts.ActiveKey]
    """As they were read: what has not changed is not made again."""


def _caller_of(digest: str, key: accounts.ActiveKey) -> Caller:
    key_id, organisation_id, agent_id, user_id, scopes, _ = key
    return Caller(
        kind="key",
        organisation_id=organisation_id,
        key_id=key_id,
        agent_id=agent_id,
        user_id=user_id,
        scopes=tuple(json.loads(scopes)),
        credential=digest,
    )


class Credentials:
    """Checks credentials against one process's database; API keys are kept in memory by digest.

    The key table is small and changes seldom: it is read again whenever the `keys` counter has moved, which
    the writer compares in every transaction, so a revoked key stops working with the next event on any node.
    """

    def __init__(
        self,
        store: Database,
        secret: bytes,
        token_seconds: int,
        clock: Clock = system_clock,
        steady: Callable[[], float] = boot_seconds,
    ) -> None:
        """`steady` is a clock that never leaps, by which addresses with wrong keys are slowed down."""
        self.passwords = PasswordHasher()
        self.login_draw = LoginDraw()
        self._store = store
        self._secret = secret
        self._token_seconds = token_seconds
        self._clock = clock
        self._keys = _Keys(-1, {}, {}, {})
        self._told: set[str | None] = set()
        """The keys that the log has told of."""
        self._reading = threading.Lock()
        self._begun, self._read = 0, 0
        self._looks = SharedLooks()
        self._wrong_keys = Throttle(WRONG_KEYS_AT_ONCE, WRONG_KEYS_PER_SECOND, steady)

    @property
    def keys_version(self) -> int:
        return self._keys.version

    def issue(self, user: Mapping[str, Any], now: float, token_id: str) -> tuple[str, int]:
        """An access token for a user row of `store.accounts`, and its lifetime in seconds."""
        claims = {
            "sub": user["userId"],
            "role": user["role"],
            "iat": int(now),
            "exp": int(now) + self._token_seconds,
            "iss": ISSUER,
            "aud": AUDIENCE,
            # No time tells which tokens are older than a password: clocks go back.
            "jti": f"{token_id}.{user['tokenGeneration']}",
        }
        return jwt.encode(claims, self._secret, algorithm="HS256"), self._token_seconds

    async def from_token(self, token: str) -> Caller:
        """The user of an access token; raises `unauthenticated`."""
        claims = self._claims(token)
        user_id = str(claims["sub"])
        user = await self._looks.of(
            ("user", user_id), partial(self._store.read_first, accounts.find_user, user_id)
        )
        if user is None or not user["enabled"] or _generation(claims) != user["tokenGeneration"]:
            raise unauthenticated("the access token is not valid any more; log in again")
        return self.person(user)

    @staticmethod
    def person(user: Mapping[str, Any]) -> Caller:
        """The caller that a user row of `store.accounts` is."""
        return Caller(
            kind="user",
            organisation_id=user["organisationId"],
            role=user["role"],
            user_id=user["userId"],
            email=user["email"],
            credential=str(user["tokenGeneration"]),
        )

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token that this service signed and that is valid now."""
        refused = unauthenticated("the access token is not valid; log in again")
        if len(token) > LONGEST_TOKEN:
            raise refused
        # Times are compared with the service's own clock below.
        options: Any = {"require": CLAIMS, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=["HS256"],
                audience=AUDIENCE,
                issuer=ISSUER,
                options=options,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise refused from None
        now = self._clock()
        times = [claims["iat"], claims["exp"], claims.get("nbf", 0)]
        if any(isinstance(time, bool) or not isinstance(time, (int, float)) for time in times):
            raise refused
        issued, expires, begins = times
        if max(issued, begins) > now + SKEW:
            raise unauthenticated("the access token is not valid yet; compare the clocks")
        if expires <= now:
            raise unauthenticated("the access token has expired; log in again")
        return dict(claims)

    def load_keys(self) -> None:
        """Read the key table again; called from a thread that may query."""
        with self._reading:
            self._begun += 1
            number = self._begun
        version, keys = self._store.read_here(accounts.active_keys)
        before = self._keys
        callers = {
            digest: before.callers[digest] if before.rows.get(digest) == key else _caller_of(digest, key)
            for digest, key in keys.items()
        }
        ends = {digest: seconds(end) for digest, (*_, end) in keys.items() if end}
        with self._reading:
            # INVARIANT: a slower reader never puts an older table in the place of a newer one. The counter
            # does not tell which is newer: a file that was put back or a copy that took over has a lower one.
            if number > self._read:
                self._read = number
                self._keys = _Keys(version, callers, ends, keys)

    def known(self, digest: str) -> Caller | None:
        """The caller of a key's digest as far as memory goes; None says only that it must be looked up."""
        keys = self._keys
        if keys.ends and (end := keys.ends.get(digest)) is not None and end <= self._clock():
            return None
        return keys.callers.get(digest)

    def holder(self, credential: str) -> str:
        """Whose a key or the header of a token is, as far as memory goes, behind of which kind that is: the
        keys of an organisation, or users. Empty: that is not certain."""
        caller = self.known(key_digest(credential))
        if caller is not None:
            return f"organisation {caller.organisation_id} {caller.holder}"
        scheme, _, token = credential.partition(" ")
        try:
            return f"user {self._claims(token.strip())['sub']}" if scheme.lower() == "bearer" else ""
        except ApiError:
            return ""

    async def from_key(self, key: str, address: str, *, certain: bool = False) -> Caller:
        """The caller of an API key, from memory; raises `unauthenticated`, or `rate_limited` for an address
        that sent too many wrong keys, which right ones never are.

        An unknown key is looked up once more when another process has changed the key table. `certain` asks
        that first, for requests whose own transaction does not.
        """
        digest = key_digest(key)
        known = self.known(digest) is not None
        wait = 0 if known else self._wrong_keys.wait(address)
        if certain or not known:
            await self._catch_up_together()
        caller = self.known(digest)
        if caller is not None:
            return caller
        if wait:
            raise ApiError(
                "rate_limited",
                f"too many wrong API keys; try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )
        self._wrong_keys.count(address)
        if (ended := self._keys.callers.get(digest)) is not None:
            self._tell_of(ended)
            raise unauthenticated("the API key has expired; ask an admin for a new one", "ApiKey")
        raise unauthenticated("the API key is not valid; ask an admin for a new one", "ApiKey")

    def _tell_of(self, ended: Caller) -> None:
        """Once of each key, for whoever looks why an agent stands still."""
        if ended.key_id not in self._told:
            self._told.add(ended.key_id)
            log.warning(
                "the API key `%s` has expired and is still sent; `governance keys list` says whose it is, "
                "and `governance keys add` makes another one",
                ended.key_id,
            )

    async def _catch_up_together(self) -> None:
        """One look for all who ask before it begins, so that many cost the database little."""
        await self._looks.of("keys", self._catch_up)

    async def _catch_up(self) -> None:
        if await self._store.read_first(accounts.keys_version) != self._keys.version:
            await self._store.read_first(self.load_keys)

    async def recheck(self, caller: Caller) -> None:
        """For somebody who has waited for long: raises `unauthenticated` when the credential has ended."""
        if caller.kind == "key":
            await self._catch_up_together()
            if not self.is_active(caller):
                raise unauthenticated("the API key was revoked while this request waited", "ApiKey")
        elif caller.user_id is not None:
            await self._looks.of(caller, partial(self._store.read_first, self.recheck_here, caller))

    def recheck_here(self, caller: Caller) -> None:
        """The same of a person, for a thread that may query: inside a transaction nothing ends meanwhile."""
        if caller.kind == "user" and caller.user_id is not None:
            user = accounts.find_user(caller.user_id)
            now = None if user is None else (user["enabled"], user["role"], str(user["tokenGeneration"]))
            if now != (True, caller.role, caller.credential):
                raise unauthenticated("the access token is not valid any more; log in again")

    def is_active(self, caller: Caller) -> bool:
        """True while the very key that made this caller is in the newest table read."""
        return self.known(caller.credential) is not None

    def close(self) -> None:
        self.passwords.close()
