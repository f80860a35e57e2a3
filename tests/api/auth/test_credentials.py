"""Access tokens, logins and their limits, through HTTP on a real server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from api.auth import passwords
from api.auth.credentials import AUDIENCE, ISSUER
from api.store import login_limits
from tests.harness.application import PASSWORD, SECRET
from tests.harness.running_service import Served, bearer

WRONG = "the e-mail or the password is wrong"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("auth")) as made:
        yield made


# Tokens -------------------------------------------------------------------------------------------


def claims(user: dict[str, Any], **changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {
        "sub": user["userId"],
        "role": user["role"],
        "iat": now,
        "exp": now + 600,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "jti": "tok_1",
    }
    return {name: value for name, value in (made | changes).items() if value is not ...}


def signed(payload: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers=header or None)


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def tampered(token: str, position: int, value: Any) -> str:
    parts = token.split(".")
    parts[position] = part(value)
    return ".".join(parts)


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
RSA_PRIVATE = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
EC_PRIVATE = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
RSA_PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
EC_PUBLIC = EC.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def forgeries(user: dict[str, Any]) -> dict[str, str]:
    now = int(time.time())
    good = signed(claims(user))
    header, payload, signature = good.split(".")
    admin = claims(user, role="admin")
    made = {
        "no algorithm": f"{part({'alg': 'none', 'typ': 'JWT'})}.{payload}.",
        "no algorithm, signature kept": f"{part({'alg': 'none'})}.{payload}.{signature}",
        "no algorithm in capitals": f"{part({'alg': 'NONE'})}.{payload}.",
        "no alg member": f"{part({'typ': 'JWT'})}.{payload}.{signature}",
        "HS384": signed(claims(user), algorithm="HS384"),
        "HS512": signed(claims(user), algorithm="HS512"),
        "RS256": signed(claims(user), RSA_PRIVATE, "RS256"),
        "ES256": signed(claims(user), EC_PRIVATE, "ES256"),
        "another key": signed(
            claims(user), "another secret that is just as long as the right one is, and as good as that"
        ),
        "key in the header": signed(
            claims(user),
            "the attacker's own secret, quite long enough for any of the algorithms",
            jwk={"kty": "oct", "k": part(b"x" * 32)},
        ),
        "unknown critical header": signed(claims(user), crit=["exotic"], exotic=1),
        "another issuer": signed(claims(user, iss="somebody-else")),
        "another audience": signed(claims(user, aud="somebody-else")),
        "expired": signed(claims(user, exp=now - 1)),
        "expires now": signed(claims(user, exp=now)),
        "not valid yet": signed(claims(user, nbf=now + 600)),
        "issued in the future": signed(claims(user, iat=now + 600)),
        "issued long ago, before the user": signed(claims(user, iat="yesterday")),
        "times of the wrong type": signed(claims(user, exp=True)),
        "exp as text": signed(claims(user, exp=str(now + 600))),
        "no such user": signed(claims(user, sub="usr_nobody")),
        "sub of the wrong type": signed(claims(user, sub=7)),
        "tampered payload": tampered(good, 1, admin),
        "tampered signature": good[:-6] + ("aaaaaa" if good[-6:] != "aaaaaa" else "bbbbbb"),
        "no signature": f"{header}.{payload}.",
        "two parts": f"{header}.{payload}",
        "four parts": f"{good}.{signature}",
        "not a token": "hello",
        "payload is a list": tampered(good, 1, []),
        "payload is deep": tampered(good, 1, b"[" * 20_000),
        "huge": "a" * 30_000,
        "not base64": "!.!.!",
        "non-ASCII": "tökén.tökén.tökén",
    }
    for name in ("sub", "role", "iat", "exp", "iss", "aud", "jti"):
        made[f"without {name}"] = signed(claims(user, **{name: ...}))
    return made


NAMES = tuple(forgeries({"userId": "usr_1", "role": "viewer"}))


def test_a_good_token_is_accepted(service: Served) -> None:
    user = service.user("viewer")
    assert service.me(signed(claims(user))).status_code == 200
    assert service.me(user["token"]).json()["email"] == user["email"]


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_token_is_401(service: Served, name: str) -> None:
    token = forgeries(service.user("viewer"))[name]
    answer = service.call({"Authorization": f"Bearer {token}".encode("latin-1")}, "GET", "/v1/me")
    assert answer.status_code == 401, answer.text
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert token not in answer.text


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic YTpi", "Token abc", "Bearer a b", "null"],
)
def test_a_bad_authorization_header_is_401(service: Served, header: str) -> None:
    answer = service.call({"Authorization": header}, "GET", "/v1/me")
    assert answer.status_code == 401
    assert "WWW-Authenticate" in answer.headers


def test_the_scheme_may_be_in_any_case(service: Served) -> None:
    token = service.user("viewer")["token"]
    assert service.call({"authorization": f"bEARER {token}"}, "GET", "/v1/me").status_code == 200


def test_the_role_of_the_token_claims_nothing(service: Served) -> None:
    user = service.user("viewer")
    token = signed(claims(user, role="admin"))
    assert service.me(token).json()["role"] == "viewer"
    service.answered(bearer(token), "GET", "/v1/users", status=403)


def test_a_token_of_another_user_table_row_cannot_be_made_from_a_key(service: Served) -> None:
    key = service.key()
    assert service.me(key["key"]).status_code == 401
    assert service.call({"X-API-Key": key["key"]}, "GET", "/v1/me").status_code == 401
    token = service.user("admin")["token"]
    for headers in (bearer(token), {"X-API-Key": token}):
        answer = service.call(headers, "POST", "/v1/events", {})
        assert answer.status_code == 401
        assert "WWW-Authenticate" in answer.headers


# What ends a token --------------------------------------------------------------------------------


def change(service: Served, user: dict[str, Any], **changes: Any) -> Any:
    return service.call("admin", "PATCH", f"/v1/users/{user['userId']}", changes)


def test_disabling_ends_tokens_at_once_and_enabling_revives_none(service: Served) -> None:
    user = service.user("reviewer")
    assert change(service, user, enabled=False).json()["enabled"] is False
    assert service.me(user["token"]).status_code == 401
    assert service.log_in(user["email"], PASSWORD, "192.0.2.20").status_code == 401
    assert change(service, user, enabled=True).json()["enabled"] is True
    assert service.me(user["token"]).status_code == 401
    assert service.log_in(user["email"], PASSWORD, "192.0.2.21").status_code == 200


def test_demoting_works_at_once(service: Served) -> None:
    user = service.user("admin")
    headers = bearer(user["token"])
    assert service.call(headers, "GET", "/v1/users").status_code == 200
    assert change(service, user, role="viewer").status_code == 200
    assert service.call(headers, "GET", "/v1/users").status_code == 403


def test_a_new_password_ends_every_token_even_within_one_second(service: Served) -> None:
    user = service.user("viewer", "twice@example.com")
    tokens = [user["token"]]
    for number in range(3):
        password = f"a new password {number}"
        assert change(service, user, password=password).status_code == 200
        for token in tokens:
            assert service.me(token).status_code == 401
        answer = service.log_in(user["email"], password, "192.0.2.22")
        assert answer.status_code == 200, answer.text
        tokens.append(answer.json()["accessToken"])
        assert service.me(tokens[-1]).status_code == 200
    assert service.log_in(user["email"], PASSWORD, "192.0.2.23").status_code == 401


def test_changing_ones_own_password(service: Served) -> None:
    user = service.user("viewer")
    headers = {**bearer(user["token"]), "X-Forwarded-For": "192.0.2.24"}

    def change_mine(current: str, new: str) -> Any:
        body = {"currentPassword": current, "newPassword": new}
        return service.call(headers, "POST", "/v1/password", body)

    wrong = change_mine("not my password", "another password")
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/currentPassword"
    assert service.me(user["token"]).status_code == 200
    short = change_mine(PASSWORD, "short")
    assert short.status_code == 422
    assert short.json()["errors"][0]["pointer"] == "/newPassword"
    done = change_mine(PASSWORD, "another password")
    assert done.status_code == 200, done.text
    assert service.me(user["token"]).status_code == 401
    assert service.me(done.json()["accessToken"]).status_code == 200
    assert service.log_in(user["email"], "another password", "192.0.2.25").status_code == 200


def test_guessing_the_current_password_with_a_stolen_token_is_limited(service: Served) -> None:
    user = service.user("viewer")
    headers = {**bearer(user["token"]), "X-Forwarded-For": "192.0.2.26"}
    answers = []
    for number in range(login_limits.PAIR.tries + 1):
        body = {"currentPassword": f"guess {number}", "newPassword": "another password"}
        answers.append(service.call(headers, "POST", "/v1/password", body).status_code)
    assert answers == [422] * login_limits.PAIR.tries + [429]


# Logging in ---------------------------------------------------------------------------------------


def test_the_answer_to_a_login(service: Served) -> None:
    user = service.user("reviewer")
    answer = service.log_in(f"  {user['email'].upper()} ", PASSWORD, "192.0.2.30")
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"accessToken", "tokenType", "expiresIn", "user"}
    assert body["tokenType"] == "Bearer"
    assert body["expiresIn"] == service.settings.token_seconds
    assert body["user"] == {"email": user["email"], "role": "reviewer"}
    assert answer.headers["Cache-Control"] == "no-store"
    decoded = jwt.decode(body["accessToken"], SECRET, ["HS256"], audience=AUDIENCE, issuer=ISSUER)
    assert decoded.keys() == {"sub", "role", "iat", "exp", "iss", "aud", "jti"}
    assert jwt.get_unverified_header(body["accessToken"])["alg"] == "HS256"


def test_wrong_unknown_and_disabled_get_the_same_answer(service: Served) -> None:
    user, disabled = service.user("viewer"), service.user("viewer")
    change(service, disabled, enabled=False)
    tries = [
        (user["email"], "not the password"),
        ("nobody@example.com", PASSWORD),
        (disabled["email"], PASSWORD),
        (user["email"], PASSWORD + " "),
        (user["email"], PASSWORD.upper()),
        ("' OR 1=1 --", PASSWORD),
        ("%", PASSWORD),
    ]
    seen = set()
    for number, (email, password) in enumerate(tries):
        answer = service.log_in(email, password, f"198.51.100.{number}")
        body = answer.json()
        body.pop("requestId")
        seen.add((answer.status_code, json.dumps(body), answer.headers["WWW-Authenticate"]))
    assert len(seen) == 1
    assert WRONG in next(iter(seen))[1]


def test_an_unknown_email_costs_as_much_as_a_wrong_password(
    dear_passwords: None, service: Served, monkeypatch: Any
) -> None:
    monkeypatch.setattr(service.context.credentials.passwords, "_dummy", None)  # it may be a cheap one
    user = service.user("viewer")
    times: dict[str, list[float]] = {user["email"]: [], "nobody-at-all@example.com": []}
    for number in range(6):
        for email in times:
            started = time.process_time()  # which other work on the machine does not stretch
            assert service.log_in(email, "not the password", f"203.0.113.{number}").status_code == 401
            times[email].append(time.process_time() - started)
    known, unknown = map(min, times.values())
    assert 0.6 < known / unknown < 1.6, (known, unknown)


def test_passwords_cost_what_those_who_guess_must_pay(dear_passwords: None) -> None:
    assert passwords.hashed("any at all").startswith("$argon2id$v=19$m=65536,t=3,p=1$")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"email": "a@b.c"}, ""),
        ({"password": "x"}, ""),
        ({"email": "a@b.c", "password": ""}, "/password"),
        ({"email": "", "password": "x"}, "/email"),
        ({"email": "a@b.c", "password": "x" * 1025}, "/password"),
        ({"email": "a" * 255, "password": "x"}, "/email"),
        ({"email": "a@b.c", "password": "x\0y"}, "/password"),
        ({"email": ["a@b.c"], "password": "x"}, "/email"),
        ({"email": "a@b.c", "password": {"$ne": ""}}, "/password"),
        ({"email": "a@b.c", "password": "x", "role": "admin"}, "/role"),
    ],
)
def test_a_misshapen_login_is_422(service: Served, body: Any, pointer: str) -> None:
    answer = service.call("nobody", "POST", "/auth/login", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "xxxx" not in answer.text


def test_passwords_are_unicode_and_one_spelling(service: Served) -> None:
    composed, decomposed = "pässwörd été 12", "pässwörd été 12"
    body = {"email": "ünï@exämple.com", "password": composed, "role": "viewer"}
    service.answered("admin", "POST", "/v1/users", body, status=201)
    assert service.log_in("ÜNÏ@EXÄMPLE.COM", decomposed, "192.0.2.40").status_code == 200
    assert service.log_in("ünï@exämple.com", composed, "192.0.2.40").status_code == 200
