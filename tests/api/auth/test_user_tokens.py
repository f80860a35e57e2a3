"""Tokens of end users in events: which verify, what policies see of them, and that none is ever kept."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from api.auth.user_tokens import LEEWAY, checked_rule, verify_user_token
from api.http.problems import ApiError
from tests.harness.running_service import Served

SECRET = "the identity provider's secret, shared with the service"
NOW = 1_900_000_000


def pem(key: Any) -> tuple[str, str]:
    """Private and public half."""
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return private, public


RSA_PRIVATE, RSA_PUBLIC = pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))
_, RSA_SMALL = pem(rsa.generate_private_key(public_exponent=65537, key_size=1024))
EC_PRIVATE, EC_PUBLIC = pem(ec.generate_private_key(ec.SECP256R1()))
_, EC_OTHER_CURVE = pem(ec.generate_private_key(ec.SECP384R1()))


def bare(text: str) -> str:
    """A key without its PEM lines."""
    return "\n".join(text.splitlines()[1:-1])


RULES = {
    "HS256": ({"algorithm": "HS256", "key": SECRET}, SECRET),
    "RS256": ({"algorithm": "RS256", "key": RSA_PUBLIC}, RSA_PRIVATE),
    "ES256": ({"algorithm": "ES256", "key": EC_PUBLIC}, EC_PRIVATE),
}


def token(algorithm: str = "HS256", key: Any = None, **claims: Any) -> str:
    made = {"sub": "u-1", "exp": NOW + 600} | claims
    made = {name: value for name, value in made.items() if value is not ...}
    return jwt.encode(made, key or RULES[algorithm][1], algorithm=algorithm)


def verify(text: str, rule: Any = None, now: float = NOW) -> dict[str, Any]:
    return verify_user_token(text, rule or RULES["HS256"][0], now)


def refusal(text: str, rule: Any = None, now: float = NOW) -> str:
    with pytest.raises(ApiError) as caught:
        verify(text, rule, now)
    error = caught.value
    assert error.code == "unauthenticated"
    assert "WWW-Authenticate" in error.headers
    assert text not in json.dumps(error.body("req")) or len(text) < 4
    return error.detail


# Verifying ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", RULES)
def test_each_algorithm_verifies_by_its_rule_and_no_other(algorithm: str) -> None:
    text = token(algorithm)
    for name, (rule, _) in RULES.items():
        if name == algorithm:
            assert verify(text, rule)["user"]["id"] == "u-1"
        else:
            refusal(text, rule)


def test_what_policies_see() -> None:
    facts = verify(
        token(
            email="ada@example.com",
            scope="read write",
            department={"name": "Forschung ü"},
            act={"sub": "agent-a", "act": {"sub": "agent-b", "act": {"sub": "agent-c"}}},
        )
    )
    assert facts["user"]["id"] == "u-1"
    assert facts["user"]["email"] == "ada@example.com"
    assert facts["user"]["scopes"] == ["read", "write"]
    assert facts["user"]["claims"]["department"] == {"name": "Forschung ü"}
    assert facts["delegation"] == {"chain": ["agent-a", "agent-b", "agent-c"]}


def test_little_is_enough() -> None:
    facts = verify(token())
    assert facts == {"user": {"id": "u-1", "scopes": [], "claims": {"sub": "u-1", "exp": NOW + 600}}}
    assert verify(token(scope=["a", "b"]))["user"]["scopes"] == ["a", "b"]


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": NOW - LEEWAY}, "has expired"),
        ({"exp": ...}, "does not verify"),
        ({"exp": "never"}, "must be a number"),
        ({"exp": True}, "must be a number"),
        ({"exp": 10**400}, "no moment"),
        ({"iat": -(10**400)}, "no moment"),
        ({"nbf": NOW + LEEWAY + 1}, "not valid yet"),
        ({"iat": NOW + LEEWAY + 1}, "not valid yet"),
        ({"sub": ...}, "does not verify"),
        ({"sub": 7}, "does not verify"),
        ({"sub": ""}, "`sub`"),
        ({"sub": "x" * 201}, "`sub`"),
        ({"sub": "a\0b"}, "does not verify"),
        ({"sub": "a\ud800b"}, "does not verify"),
        ({"x": float("nan")}, "does not verify"),
        ({"scope": 7}, "`scope`"),
        ({"scope": ["a", 7]}, "`scope`"),
        ({"act": "agent"}, "`act`"),
        ({"act": {"act": {"sub": "hidden"}}}, "`act`"),
        ({"act": {"sub": "a", "act": ["b"]}}, "`act`"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], words: str) -> None:
    assert words in refusal(token(**claims))


def test_clocks_may_differ_a_little() -> None:
    verify(token(exp=NOW - LEEWAY + 1))
    verify(token(nbf=NOW + LEEWAY, iat=NOW + LEEWAY))


def test_a_chain_too_long_is_refused_rather_than_cut() -> None:
    def chain(length: int) -> dict[str, Any]:
        act: dict[str, Any] = {"sub": "last"}
        for number in range(length - 1):
            act = {"sub": f"agent-{number}", "act": act}
        return act

    assert len(verify(token(act=chain(16)))["delegation"]["chain"]) == 16
    assert "more than 16" in refusal(token(act=chain(17)))


def test_issuer_and_audience_are_checked_when_the_rule_names_them() -> None:
    rule = RULES["HS256"][0] | {"issuer": "https://id.example", "audience": "governance"}
    verify(token(iss="https://id.example", aud="governance"), rule)
    verify(token(iss="https://id.example", aud=["other", "governance"]), rule)
    for claims, words in (
        ({}, "has no `"),
        ({"iss": "https://id.example"}, "has no `aud`"),
        ({"aud": "governance"}, "has no `iss`"),
        ({"iss": "https://evil.example", "aud": "governance"}, "its `iss`"),
        ({"iss": "https://id.example", "aud": "other"}, "its `aud`"),
        ({"iss": "https://id.example/", "aud": "governance"}, "its `iss`"),
        ({"iss": "https://id", "aud": "governance"}, "its `iss`"),
        ({"iss": "", "aud": "governance"}, "its `iss`"),
    ):
        assert words in refusal(token(**claims), rule), claims
    assert refusal(jwt.encode({"iss": "e"}, "x" * 40, "HS256"), rule).endswith("organisation"), "unsigned"


def test_the_header_of_a_token_chooses_nothing() -> None:
    header, payload, signature = token().split(".")
    none = jwt.encode({"sub": "u-1", "exp": NOW + 600}, None, algorithm="none")
    for text in (
        none,
        f"{none.split('.')[0]}.{payload}.{signature}",
        token("HS256", RSA_PUBLIC.replace("-----", "").strip()),
        jwt.encode({"sub": "u-1", "exp": NOW + 600}, SECRET, algorithm="HS512"),
        jwt.encode({"sub": "u-1", "exp": NOW + 600}, SECRET, headers={"crit": ["b64"], "b64": False}),
        f"{header}.{payload}.{signature[:-4]}AAAA",
        f"{header}.{payload}.",
        "x",
        "..",
        "a" * 20_000,
        "ü.ü.ü",
    ):
        refusal(text)
    # The public key as the secret of HS256, signed by hand since the library refuses to.
    import base64
    import hmac

    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    signed = hmac.new(RSA_PUBLIC.encode(), f"{head}.{payload}".encode(), "sha256").digest()
    forged = f"{head}.{payload}.{base64.urlsafe_b64encode(signed).decode().rstrip('=')}"
    refusal(forged, RULES["RS256"][0])


def test_an_organisation_without_a_rule_accepts_none() -> None:
    with pytest.raises(ApiError, match="accepts no user tokens"):
        verify_user_token(token(), None, NOW)


# The rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [secrets.token_hex, secrets.token_urlsafe, lambda size: secrets.token_hex(16)]
)
def test_random_secrets_are_accepted(make: Callable[[int], str]) -> None:
    for _ in range(200):
        checked_rule({"algorithm": "HS256", "key": make(32)})


@pytest.mark.parametrize("algorithm", RULES)
def test_good_rules_are_kept(algorithm: str) -> None:
    rule = RULES[algorithm][0]
    assert checked_rule(rule) == rule
    assert checked_rule(rule | {"issuer": "i", "audience": None}) == rule | {"issuer": "i"}
    for name in ("issuer", "audience"):
        for nothing in ("", "  "):
            with pytest.raises(ApiError, match=f"`{name}` is empty"):
                checked_rule(rule | {name: nothing})


@pytest.mark.parametrize(
    ("algorithm", "key", "words"),
    [
        ("HS256", RSA_PUBLIC, "not a secret"),
        ("HS256", EC_PRIVATE, "not a secret"),
        (
            "HS256",
            RSA_PUBLIC.replace("-----BEGIN PUBLIC KEY-----", "  -----BEGIN PUBLIC KEY-----"),
            "not a secret",
        ),
        ("HS256", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7 someone@somewhere", "not a secret"),
        ("HS256", '{"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}', "not a secret"),
        ("HS256", "too short", "32 bytes"),
        ("HS256", " " * 40, "guess"),
        ("HS256", "password" * 5, "guess"),
        ("HS256", "0123456789" * 4, "guess"),
        ("HS256", bare(RSA_PUBLIC), "not a secret"),
        ("HS256", bare(RSA_PUBLIC).replace("\n", ""), "not a secret"),
        ("HS256", RSA_PUBLIC.replace("-----", ""), "not a secret"),
        ("HS256", bare(EC_PUBLIC), "not a secret"),
        ("HS256", bare(EC_PRIVATE), "not a secret"),
        ("RS256", SECRET, "PEM"),
        ("RS256", RSA_PRIVATE, "private key"),
        ("RS256", RSA_PUBLIC + RSA_PUBLIC, "several keys"),
        ("RS256", EC_PUBLIC, "RSA key"),
        ("RS256", RSA_SMALL, "2048 bits"),
        ("RS256", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "certificate"),
        ("RS256", "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----", "PEM"),
        ("ES256", RSA_PUBLIC, "P-256"),
        ("ES256", EC_OTHER_CURVE, "P-256"),
        ("none", SECRET, "not accepted"),
        ("HS512", SECRET, "not accepted"),
    ],
)
def test_weak_and_confused_rules_are_refused(algorithm: str, key: str, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked_rule({"algorithm": algorithm, "key": key})
    assert words in caught.value.detail
    assert key not in caught.value.detail or len(key) < 10


# Through HTTP -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("user-tokens")) as made:
        answer = set_rule(made, {"algorithm": "HS256", "key": SECRET})
        assert answer.status_code == 200, answer.text
        yield made


def set_rule(service: Served, rule: Any) -> Any:
    body = {"name": "Default", "userToken": rule}
    return service.call("admin", "PUT", "/v1/organisation", body)


def event(number: str, user_token: Any, **changes: Any) -> dict[str, Any]:
    metadata = {"toolCallId": number, "toolName": "x", "inputPayload": {"a": 1}, "userToken": user_token}
    return {
        "eventId": number,
        "runId": f"run-{number}",
        "agentId": "agent",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": "tool.called",
        "metadata": metadata,
    } | changes


def post(service: Served, body: Any, key: str = "") -> Any:
    raw = body if isinstance(body, str) else json.dumps(body)
    return service.call({"X-API-Key": key or service.api_key}, "POST", "/v1/events", raw=raw)


def fresh_token(**claims: Any) -> str:
    return token(exp=int(time.time()) + 600, **claims)


def kept(service: Served) -> bytes:
    """Every byte of the database, its journal included."""
    return b"".join(
        file.read_bytes() for file in service.settings.data_dir.iterdir() if "sqlite" in file.name
    )


def test_a_verified_user_is_on_record_and_their_token_is_not(service: Served) -> None:
    text = fresh_token(email="ada@example.com", act={"sub": "helper"})
    answer = post(service, event("kept-1", text))
    assert answer.status_code == 200, answer.text
    for kind in ("run.started", "custom.note"):
        assert post(service, event(f"kept-{kind}", text, eventType=kind)).status_code == 200
    record = next(record for record in service.audit("decision") if record["toolCallId"] == "kept-1")
    assert (record["userId"], record["delegationChain"]) == ("u-1", ["helper"])
    assert text not in answer.text
    content = kept(service)
    assert b"kept-1" in content
    for part in text.split("."):
        assert part.encode() not in content


@pytest.mark.parametrize("place", ["twice in metadata", "null at last", "metadata twice"])
def test_a_token_does_not_hide_behind_a_repeated_key(service: Served, place: str) -> None:
    text = fresh_token(place=place)
    body = json.dumps(event(f"hidden {place}", text))
    written = json.dumps(text)
    if place == "twice in metadata":
        body = body.replace('"userToken":', f'"userToken": {written}, "userToken":')
    elif place == "null at last":
        body = body.replace(f'"userToken": {written}', f'"userToken": {written}, "userToken": null')
    else:
        body = body.replace('"metadata":', f'"metadata": {{"userToken": {written}}}, "metadata":')
    assert post(service, body).status_code == 400
    assert text.rsplit(".", 1)[1].encode() not in kept(service)


def test_a_repeated_event_is_still_told_from_a_changed_one(service: Served) -> None:
    text = fresh_token()
    first = post(service, event("again", text))
    again = post(service, event("again", text))
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replay"] == "true"
    reordered = dict(reversed(event("again", text).items()))
    assert post(service, reordered).headers["Idempotent-Replay"] == "true"
    other = post(service, event("again", fresh_token(sub="u-2")))
    assert (other.status_code, other.json()["code"]) == (409, "event_id_conflict")
    without = event("again", text)
    del without["metadata"]["userToken"]
    assert post(service, without).status_code == 409


def test_what_is_kept_cannot_be_sent_instead(service: Served) -> None:
    import hashlib

    text = fresh_token()
    assert post(service, event("digest", text)).status_code == 200
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert post(service, event("digest", digest)).status_code == 401


@pytest.mark.parametrize(
    "user_token",
    ["", "x", "eyJhbGciOiJub25lIn0.e30.", token(key="another secret, of quite another provider")],
)
def test_a_token_that_does_not_verify_is_401_and_decides_nothing(service: Served, user_token: str) -> None:
    before = len(service.audit("decision"))
    answer = post(service, event("refused", user_token))
    assert answer.status_code == 401, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/metadata/userToken"
    assert "WWW-Authenticate" in answer.headers
    assert len(service.audit("decision")) == before
    batch = {"events": [event("refused-in-batch", user_token)]}
    answer = service.call("agent", "POST", "/v1/events/batch", batch)
    assert answer.json()["results"][0]["status"] == 401


def test_a_rule_holds_for_its_organisation_alone(service: Served) -> None:
    key = service.key("other")["key"]
    assert post(service, event("elsewhere", fresh_token()), key).status_code == 401
    body = {"name": "Other", "userToken": {"algorithm": "RS256", "key": RSA_PUBLIC}}
    assert service.call("other admin", "PUT", "/v1/organisation", body).status_code == 200
    good = token("RS256", exp=int(time.time()) + 600)
    assert post(service, event("elsewhere", good), key).status_code == 200
    assert post(service, event("here", good)).status_code == 401


def test_a_key_bound_to_a_user_speaks_for_no_other(service: Served) -> None:
    key = service.key(user_id="u-1")["key"]
    assert post(service, event("bound-1", fresh_token()), key).status_code == 200
    answer = post(service, event("bound-2", fresh_token(sub="u-2")), key)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_changed_rule_holds_at_once(service: Served) -> None:
    text = fresh_token()
    assert set_rule(service, {"algorithm": "ES256", "key": EC_PUBLIC}).status_code == 200
    assert post(service, event("rule-1", text)).status_code == 401
    assert set_rule(service, None).status_code == 200
    assert post(service, event("rule-2", text)).status_code == 401
    assert set_rule(service, {"algorithm": "HS256", "key": SECRET}).status_code == 200
    assert post(service, event("rule-3", text)).status_code == 200
