"""Who asks: passwords, access tokens, API keys and end-user tokens become a `Caller` or a refusal.

Passwords are argon2id. Access tokens are JWT HS256 with `sub, role, iat, exp, iss, aud, jti`; no other
algorithm is accepted, and the user is looked up on each request, so that disabling one works at once. API
keys are 256 random bits, stored as SHA-256. What fails says only that it failed, in the same time for an
unknown e-mail as for a wrong password.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import argon2
import jwt

from api.errors import ApiError
from api.exchange import Caller
from api.store import accounts
from api.store.database import Database

ISSUER = "agent-governance-service"
AUDIENCE = "agent-governance-service"
KEY_PREFIX = "agk_"
USER_TOKEN_ALGORITHMS = ("HS256", "RS256", "ES256")

_hasher = argon2.PasswordHasher()
_NOBODYS_HASH = _hasher.hash(secrets.token_hex(16))


def hash_password(password: str) -> str:
    return _hasher.hash(password)


def password_matches(stored: str | None, password: str) -> bool:
    """True when the password fits; takes the same time when there is no such user (`stored` None)."""
    try:
        fits = _hasher.verify(stored or _NOBODYS_HASH, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
    return fits and stored is not None


def new_key() -> str:
    """A new API key: `agk_` and 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def key_digest(key: str) -> str:
    """What is stored of a key."""
    return sha256(key.encode(errors="replace")).hexdigest()


def unauthenticated(detail: str, scheme: str = "Bearer") -> ApiError:
    challenge = f'{scheme} realm="governance"'
    return ApiError("unauthenticated", detail, headers={"WWW-Authenticate": challenge})


class Credentials:
    """Checks credentials against one process's database; API keys are kept in memory by digest.

    The key table is small and changes seldom: it is read again whenever the `keys` counter has moved, which
    the writer compares in every transaction, so a revoked key stops working with the next event on any node.
    """

    def __init__(self, store: Database, secret: bytes, token_seconds: int) -> None:
        self._store = store
        self._secret = secret
        self._token_seconds = token_seconds
        self._keys: Mapping[str, Caller] = {}
        self._active: frozenset[str] = frozenset()
        self.keys_version = -1

    def issue(self, user: Mapping[str, Any], now: float, token_id: str) -> tuple[str, int]:
        """An access token for a user row of `store.accounts`, and its lifetime in seconds."""
        claims = {
            "sub": user["userId"],
            "role": user["role"],
            # Tokens of before a password change are refused by `iat`; this one comes after it.
            "iat": max(int(now), user["tokensValidFrom"]),
            "exp": int(now) + self._token_seconds,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "jti": token_id,
        }
        return jwt.encode(claims, self._secret, algorithm="HS256"), self._token_seconds

    async def from_token(self, token: str) -> Caller:
        """The user of an access token; raises `unauthenticated`."""
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=["HS256"],
                audience=AUDIENCE,
                issuer=ISSUER,
                options={
                    "require": ["sub", "role", "iat", "exp", "iss", "aud", "jti"],
                    "verify_iat": False,
                },
            )
        except jwt.ExpiredSignatureError:
            raise unauthenticated("the access token has expired; log in again") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise unauthenticated("the access token is not valid; log in again") from None
        user = await self._store.read(accounts.find_user, str(claims["sub"]))
        if user is None or not user["enabled"] or claims["iat"] < user["tokensValidFrom"]:
            raise unauthenticated("the access token is not valid any more; log in again")
        return Caller(
            kind="user",
            organisation_id=user["organisationId"],
            role=user["role"],
            user_id=user["userId"],
            email=user["email"],
        )

    def load_keys(self) -> None:
        """Read the key table again; called from a thread that may query."""
        version, keys = self._store.read_here(accounts.active_keys)
        self._keys = {
            digest: Caller(
                kind="key",
                organisation_id=key["organisationId"],
                key_id=key["keyId"],
                key_name=key["name"],
                agent_id=key["agentId"],
                user_id=key["userId"],
                scopes=tuple(key["scopes"]),
            )
            for digest, key in keys.items()
        }
        self._active = frozenset(caller.key_id for caller in self._keys.values())
        self.keys_version = version

    async def from_key(self, key: str) -> Caller:
        """The caller of an API key, from memory; raises `unauthenticated`.

        An unknown key is looked up once more when another process has changed the key table.
        """
        digest = key_digest(key)
        caller = self._keys.get(digest)
        if caller is None:
            if await self._store.read(accounts.keys_version) != self.keys_version:
                await self._store.read(self.load_keys)
                caller = self._keys.get(digest)
            if caller is None:
                raise unauthenticated("the API key is not valid; ask an admin for a new one", "ApiKey")
        return caller

    def is_active(self, caller: Caller) -> bool:
        """True while the key that made this caller is in the newest table read."""
        return caller.key_id in self._active


def verify_user_token(token: str, rule: Mapping[str, Any] | None) -> dict[str, Any]:
    """The verified end user of `metadata.userToken`: `{user: {...}, delegation: {chain}}`; 401 otherwise.

    `rule` is the organisation's `{algorithm, key, issuer?, audience?}`. Claims: `sub`, `email`, `scope` (text
    or list) and nested `act` (RFC 8693): the chain lists the acting parties, outermost first.
    """
    if rule is None:
        raise unauthenticated("this organisation accepts no user tokens; an admin sets how they verify")
    algorithm = str(rule["algorithm"])
    if algorithm not in USER_TOKEN_ALGORITHMS:
        raise unauthenticated("the organisation's rule for user tokens names no accepted algorithm")
    try:
        claims = jwt.decode(
            token,
            str(rule["key"]),
            algorithms=[algorithm],
            audience=rule.get("audience"),
            issuer=rule.get("issuer"),
            options={"require": ["sub", "exp"], "verify_aud": rule.get("audience") is not None},
        )
    except (jwt.PyJWTError, ValueError, TypeError):
        raise unauthenticated("`metadata.userToken` does not verify") from None
    scope = claims.get("scope", [])
    scopes = scope.split() if isinstance(scope, str) else [str(item) for item in scope or ()]
    chain: list[str] = []
    actor = claims.get("act")
    while isinstance(actor, dict) and len(chain) < 16:
        chain.append(str(actor.get("sub", "")))
        actor = actor.get("act")
    user: dict[str, Any] = {"id": str(claims["sub"]), "scopes": scopes, "claims": claims}
    if isinstance(claims.get("email"), str):
        user["email"] = claims["email"]
    facts: dict[str, Any] = {"user": user}
    if chain:
        facts["delegation"] = {"chain": chain}
    return facts
