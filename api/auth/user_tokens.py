"""End users of agents: how an organisation's user tokens verify, and what a verified one says.

The rule names exactly one algorithm and one key; what a token's own header says never chooses either. Nothing
of a token but its verified claims leaves this module, and no text of it stands in any error.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_der_public_key,
    load_pem_public_key,
)
from cryptography.x509 import load_der_x509_certificate

from api.http import bodies
from api.http.problems import ApiError, invalid

ALGORITHMS: Final = ("HS256", "RS256", "ES256")
LEEWAY: Final = 30
"""Seconds that the clocks of the identity provider and the service may differ."""
MOST_ACTORS: Final = 16
LONGEST: Final = 16_384
"""Characters of a token."""
LEAST_COMPRESSED: Final = 28
"""Bytes that a secret has when compressed; a random one of 128 bits has more in every notation."""
_PEM_WORDS = re.compile(r"-{0,10}(?:BEGIN|END)[A-Z ]{0,40}?(?:KEY|CERTIFICATE)-{0,10}|\s")


def _refused(detail: str) -> ApiError:
    return ApiError(
        "unauthenticated",
        detail,
        errors=[{"pointer": "/metadata/userToken", "message": detail}],
        headers={"WWW-Authenticate": 'Bearer realm="governance"'},
        kind="user_token",
    )


def checked_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule `{algorithm, key, issuer?, audience?}` fit to be stored; raises 422 saying what is wrong.

    A public key given as the secret of HS256 would let everybody who knows the public key sign, and is
    refused along with every other key that is not a secret; so are weak keys and private ones.
    """
    algorithm, key = str(rule["algorithm"]), str(rule["key"])
    if algorithm not in ALGORITHMS:
        accepted = ", ".join(f"`{name}`" for name in ALGORITHMS)
        raise invalid("/userToken/algorithm", f"`{algorithm}` is not accepted; use one of {accepted}")
    message = _secret_problem(key) if algorithm == "HS256" else _public_problem(algorithm, key)
    if message is not None:
        raise invalid("/userToken/key", message)
    kept = {"algorithm": algorithm, "key": key}
    for name in ("issuer", "audience"):
        if (value := rule.get(name)) is None:
            continue
        if not str(value).strip():
            raise invalid(f"/userToken/{name}", f"`{name}` is empty; name it, or leave it out to accept any")
        kept[name] = str(value)
    return kept


def _secret_problem(key: str) -> str | None:
    if "-----BEGIN" in key or _is_der_key(key):
        return "this is a public or private key, not a secret; use it with `RS256` or `ES256`"
    try:
        jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).prepare_key(key)
    except jwt.InvalidKeyError:
        return "this is a key of another kind, not a secret; write the secret itself"
    if len(key.encode()) < 32:
        return "a secret for `HS256` needs 32 bytes or more, so that it cannot be guessed"
    if len(zlib.compress(key.encode(), 9)) < LEAST_COMPRESSED:
        return "this secret repeats itself and can be guessed; make one with `openssl rand -base64 32`"
    return None


def _is_der_key(text: str) -> bool:
    """True for a key or certificate that has lost its PEM lines, or only their dashes."""
    try:
        der = base64.b64decode(_PEM_WORDS.sub("", text), validate=True)
    except ValueError:
        return False
    for load in (
        load_der_public_key,
        partial(load_der_private_key, password=None),
        load_der_x509_certificate,
    ):
        try:
            load(der)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False


def _public_problem(algorithm: str, key: str) -> str | None:
    if "PRIVATE KEY" in key:
        return "this is a private key; give the public one: `openssl pkey -in key.pem -pubout`"
    if "BEGIN CERTIFICATE" in key:
        return "this is a certificate; give its public key: `openssl x509 -in cert.pem -pubkey -noout`"
    if key.count("-----BEGIN ") > 1:
        return "these are several keys, of which only the first would count; give one"
    try:
        loaded = load_pem_public_key(key.encode())
    except (ValueError, UnsupportedAlgorithm):
        return "this is not a public key in PEM form (`-----BEGIN PUBLIC KEY-----`)"
    if algorithm == "RS256":
        if not isinstance(loaded, RSAPublicKey):
            return "`RS256` needs an RSA key"
        return None if loaded.key_size >= 2048 else "an RSA key needs 2048 bits or more"
    if not isinstance(loaded, EllipticCurvePublicKey) or not isinstance(loaded.curve, SECP256R1):
        return "`ES256` needs an elliptic curve key on P-256"
    return None


def verify_user_token(token: str, rule: Mapping[str, Any] | None, now: float) -> dict[str, Any]:
    """The verified end user of `metadata.userToken`: `{user: {...}, delegation: {chain}}`; 401 otherwise.

    `rule` is the organisation's `{algorithm, key, issuer?, audience?}`; `now` is in seconds since the epoch.
    Claims: `sub` and `exp` are needed; `email`, `scope` (text or list) and nested `act` (RFC 8693) are read:
    the chain lists the acting parties, the current one first.
    """
    if rule is None:
        raise _refused(
            "this organisation accepts no user tokens; an admin sets the rule with PUT /v1/organisation"
        )
    try:
        claims = _verified_claims(token, rule)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, ApiError) as error:
        # Claims are looked at once the signature holds, so that nobody can ask for what is expected.
        raise _refused(
            f"`metadata.userToken` does not verify by the rule of this organisation{_why(error)}"
        ) from None
    expires, begins, issued = (_moment(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None or expires + LEEWAY <= now:
        raise _refused("`metadata.userToken` has expired; get a new one from the identity provider")
    if any(moment is not None and moment - LEEWAY > now for moment in (begins, issued)):
        raise _refused("`metadata.userToken` is not valid yet; compare the clocks")
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= 200:
        raise _refused("`sub` of `metadata.userToken` must be a text of 1 to 200 characters")
    user: dict[str, Any] = {"id": subject, "scopes": _scopes(claims.get("scope")), "claims": claims}
    if isinstance(claims.get("email"), str):
        user["email"] = claims["email"]
    facts: dict[str, Any] = {"user": user}
    chain = _chain(claims.get("act"))
    if chain:
        facts["delegation"] = {"chain": chain}
    return facts


def _why(error: Exception) -> str:
    match error:
        case jwt.MissingRequiredClaimError():
            return f": it has no `{error.claim}`"
        case jwt.InvalidIssuerError():
            return ": its `iss` is not exactly the issuer of the rule"
        case jwt.InvalidAudienceError():
            return ": its `aud` does not hold the audience of the rule"
    return ""


def _verified_claims(token: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    algorithm = str(rule["algorithm"])
    if algorithm not in ALGORITHMS or len(token) > LONGEST or not token.isascii():
        raise ValueError
    if not all(map(_is_exact, token.split("."))):
        raise ValueError
    jwt.decode(
        token,
        str(rule["key"]),
        algorithms=[algorithm],
        audience=rule.get("audience"),
        issuer=rule.get("issuer"),
        options={
            "require": ["sub", "exp"],
            "verify_aud": rule.get("audience") is not None,
            # Times are compared with the service's own clock, by the caller.
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        },
    )
    payload = token.split(".")[1]
    # Read again as strictly as a body: no lone surrogates, NaN, NUL or deep nesting reach policies and rows.
    claims = bodies.decode_unique(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    if not isinstance(claims, dict):
        raise ValueError
    return claims


def _is_exact(part: str) -> bool:
    """True when a part is base64url as it is written; readers that forgive take many texts for one token."""
    decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    return base64.urlsafe_b64encode(decoded).rstrip(b"=").decode() == part


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _refused(f"`{name}` of `metadata.userToken` must be a number of seconds")
    try:
        return float(value)
    except OverflowError:
        raise _refused(f"`{name}` of `metadata.userToken` is no moment") from None


def _scopes(scope: Any) -> list[str]:
    if scope is None:
        return []
    if isinstance(scope, str):
        return scope.split()
    if isinstance(scope, list) and all(isinstance(item, str) for item in scope):
        return list(scope)
    raise _refused("`scope` of `metadata.userToken` must be a text or a list of texts")


def _chain(actor: Any) -> list[str]:
    """The acting parties; a chain that is malformed or too long is refused, as cutting it would hide some."""
    chain: list[str] = []
    while actor is not None:
        if not isinstance(actor, dict) or not isinstance(actor.get("sub"), str) or not actor["sub"]:
            raise _refused("each `act` of `metadata.userToken` must be an object with the text `sub`")
        chain.append(actor["sub"])
        if len(chain) > MOST_ACTORS:
            raise _refused(f"`metadata.userToken` names more than {MOST_ACTORS} acting parties")
        actor = actor.get("act")
    return chain
