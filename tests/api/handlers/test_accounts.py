"""Users, API keys and the organisation through HTTP: what an admin may do, and never beyond their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.running_service import PASSWORD, Service, log_in, me, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("accounts")) as running_service:
        running_service.organisation("other")
        yield running_service


def call(service: Service, method: str, path: str, body: Any = None, who: str = "admin", **more: Any) -> Any:
    headers = service.bearer(who, more.get("organisation", "default"))
    return service.request(method, path, headers=headers, **({} if body is None else {"json": body}))


def event(number: str, **changes: Any) -> dict[str, Any]:
    return {
        "eventId": number,
        "runId": f"run-{number}",
        "agentId": "agent",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": "custom.note",
    } | changes


def works(service: Service, key: str, number: str) -> bool:
    answer = service.request("POST", "/v1/events", headers={"X-API-Key": key}, json=event(number))
    assert answer.status_code in (200, 401)
    return bool(answer.status_code == 200)


# Users --------------------------------------------------------------------------------------------


def test_a_user_is_created_read_and_logs_in(service: Service) -> None:
    body = {"email": " Grace@Example.com ", "password": PASSWORD, "role": "reviewer"}
    made = call(service, "POST", "/v1/users", body)
    assert made.status_code == 201, made.text
    user = made.json()
    assert user.keys() == {"userId", "organisationId", "email", "role", "enabled", "createdAt"}
    assert (user["email"], user["role"], user["enabled"]) == ("grace@example.com", "reviewer", True)
    assert PASSWORD not in made.text and "argon2" not in made.text
    assert made.headers["Location"] == f"/v1/users/{user['userId']}"
    assert call(service, "GET", made.headers["Location"]).json() == user
    assert log_in(service, "GRACE@example.com", PASSWORD, "192.0.2.60").status_code == 200
    record = service.audit("user.created")[-1]
    assert record["details"]["email"] == "grace@example.com"
    assert PASSWORD not in json.dumps(record)


@pytest.mark.parametrize(
    "email", ["grace2@example.com", "GRACE2@EXAMPLE.COM", " grace2@example.com", "\uff47race2@example.com"]
)
def test_an_email_is_taken_in_every_spelling(service: Service, email: str) -> None:
    first = {"email": "grace2@example.com", "password": PASSWORD, "role": "viewer"}
    assert call(service, "POST", "/v1/users", first).status_code in (201, 409)
    answer = call(service, "POST", "/v1/users", first | {"email": email})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"password": "eleven char"}, "/password"),
        ({"password": ""}, "/password"),
        ({"password": "x" * 1025}, "/password"),
        ({"password": "ü" * 600}, "/password"),
        ({"password": "a\0bcdefghijkl"}, "/password"),
        ({"password": 123456789012}, "/password"),
        ({"email": "nobody"}, "/email"),
        ({"email": "a b@example.com"}, "/email"),
        ({"email": "a@b@example.com"}, "/email"),
        ({"email": "a@example.com\r\nBcc: b@example.com"}, "/email"),
        ({"email": "a@example.com\nX-Evil: 1"}, "/email"),
        ({"email": "<a@example.com>"}, "/email"),
        ({"email": "a\u202e@example.com"}, "/email"),
        ({"email": "a\u200b@example.com"}, "/email"),
        ({"email": "a\x1b[2J@example.com"}, "/email"),
        ({"email": "a" * 250 + "@b.c"}, "/email"),
        ({"email": None}, "/email"),
        ({"role": "root"}, "/role"),
        ({"role": None}, "/role"),
        ({"organisationId": "other"}, "/organisationId"),
        ({"enabled": True}, "/enabled"),
    ],
)
def test_a_user_that_is_refused(service: Service, changes: dict[str, Any], pointer: str) -> None:
    body = {"email": "fine@example.com", "password": PASSWORD, "role": "viewer"} | changes
    answer = call(service, "POST", "/v1/users", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    if changes.get("password"):
        assert str(changes["password"])[:11] not in answer.text


def test_the_list_of_users_comes_in_pages(service: Service) -> None:
    for number in range(5):
        service.user("viewer", f"page{number}@example.com")
    first = call(service, "GET", "/v1/users?limit=3")
    total = int(first.headers["X-Total-Count"])
    seen = first.json()
    link = first.headers.get("Link")
    while link:
        path = link.partition(">")[0].removeprefix("<")
        answer = call(service, "GET", path)
        assert 0 < len(answer.json()) <= 3
        seen += answer.json()
        link = answer.headers.get("Link")
    emails = [user["email"] for user in seen]
    assert len(emails) == len(set(emails)) == total
    assert emails == sorted(emails)
    assert call(service, "GET", "/v1/users?cursor=nonsense!").status_code == 422
    assert call(service, "GET", "/v1/users?limit=0").status_code == 422


def test_the_last_admin_stays(service: Service) -> None:
    service.organisation("lonely")
    first = service.user("admin", organisation="lonely")
    path = f"/v1/users/{first['userId']}"
    headers = {"Authorization": f"Bearer {first['token']}"}
    for change in ({"enabled": False}, {"role": "viewer"}, {"role": "reviewer", "enabled": False}):
        answer = service.request("PATCH", path, headers=headers, json=change)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "last admin" in answer.json()["detail"]
    disabled = service.user("admin", organisation="lonely")
    gone = service.request(
        "PATCH", f"/v1/users/{disabled['userId']}", headers=headers, json={"enabled": False}
    )
    assert gone.status_code == 200
    assert service.request("PATCH", path, headers=headers, json={"enabled": False}).status_code == 409
    service.user("admin", organisation="lonely")
    assert service.request("PATCH", path, headers=headers, json={"enabled": False}).status_code == 200


def test_of_two_admins_who_disable_each_other_one_stays(service: Service) -> None:
    service.organisation("duel")
    pair = [service.user("admin", organisation="duel") for _ in range(2)]
    answers: list[int] = []

    def disable(me: dict[str, Any], other: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {me['token']}"}
        path = f"/v1/users/{other['userId']}"
        answers.append(service.request("PATCH", path, headers=headers, json={"enabled": False}).status_code)

    threads = [threading.Thread(target=disable, args=duel) for duel in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(200) == 1, answers


def test_a_change_of_nothing_changes_nothing(service: Service) -> None:
    user = service.user("viewer")
    before = len(service.audit("user.updated"))
    for body in ({}, {"role": "viewer"}, {"enabled": True}):
        assert call(service, "PATCH", f"/v1/users/{user['userId']}", body).status_code == 200
    assert len(service.audit("user.updated")) == before
    assert me(service, user["token"]).status_code == 200


def test_a_new_password_by_an_admin_lifts_the_wait(service: Service) -> None:
    user = service.user("viewer")
    address = "192.0.2.61"
    assert [log_in(service, user["email"], "not it", address).status_code for _ in range(6)][-1] == 429
    path = f"/v1/users/{user['userId']}"
    assert call(service, "PATCH", path, {"password": "another password"}).status_code == 200
    assert log_in(service, user["email"], "another password", address).status_code == 200


# API keys -----------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_works_until_revoked(service: Service) -> None:
    made = call(service, "POST", "/v1/api-keys", {"name": "mailer", "scopes": ["mail"]})
    assert made.status_code == 201, made.text
    key = made.json()
    assert key["key"].startswith("agk_") and len(key["key"]) >= 46
    assert key["key"].startswith(key["prefix"]) and len(key["prefix"]) == 8
    assert works(service, key["key"], "works-1")
    listed = call(service, "GET", "/v1/api-keys")
    assert key["key"] not in listed.text
    assert listed.json()[0] == {name: value for name, value in key.items() if name != "key"}
    path = f"/v1/api-keys/{key['keyId']}"
    assert call(service, "DELETE", path).status_code == 204
    assert not works(service, key["key"], "works-2")
    assert call(service, "DELETE", path).status_code == 204
    assert "revokedAt" in call(service, "GET", "/v1/api-keys").json()[0]
    conflict = call(service, "POST", f"{path}/rotate")
    assert (conflict.status_code, conflict.json()["code"]) == (409, "conflict")


def test_rotating_ends_the_old_secret_at_once(service: Service) -> None:
    old = service.key()
    answer = call(service, "POST", f"/v1/api-keys/{old['keyId']}/rotate")
    assert answer.status_code == 200
    new = answer.json()
    assert new["keyId"] == old["keyId"] and new["key"] != old["key"]
    assert works(service, new["key"], "rotated-1")
    assert not works(service, old["key"], "rotated-2")


def test_no_key_is_kept(service: Service) -> None:
    secret = service.key()["key"]
    files = [file for file in service.settings.data_dir.iterdir() if "sqlite" in file.name]
    assert all(secret.encode() not in file.read_bytes() for file in files)
    records = json.dumps([service.audit(kind) for kind in ("key.created", "key.rotated", "key.revoked")])
    assert "agk_" not in records


def test_a_key_bound_to_an_agent_speaks_for_no_other(service: Service) -> None:
    key = call(service, "POST", "/v1/api-keys", {"name": "one agent", "agentId": "agent-7"}).json()
    assert key["agentId"] == "agent-7"
    headers = {"X-API-Key": key["key"]}
    mine = service.request("POST", "/v1/events", headers=headers, json=event("bound-1", agentId="agent-7"))
    assert mine.status_code == 200
    other = service.request("POST", "/v1/events", headers=headers, json=event("bound-2"))
    assert (other.status_code, other.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"name": ""}, "/name"),
        ({"name": "x", "agentId": ""}, "/agentId"),
        ({"name": "x", "scopes": "a"}, "/scopes"),
        ({"name": "x", "scopes": ["a", "a"]}, "/scopes"),
        ({"name": "x", "scopes": [7]}, "/scopes/0"),
        ({"name": "x", "key": "agk_of_my_own_choice"}, "/key"),
        ({"name": "x", "organisationId": "other"}, "/organisationId"),
    ],
)
def test_a_key_that_is_refused(service: Service, body: Any, pointer: str) -> None:
    answer = call(service, "POST", "/v1/api-keys", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("key", ["", "x", "agk_", "agk_" + "a" * 43, "ключ", "a" * 20_000, "agk_' OR 1=1 --"])
def test_a_key_that_is_none_is_401(service: Service, key: str) -> None:
    headers = {"X-API-Key": key.encode()}
    answer = service.request("POST", "/v1/events", headers=headers, json=event("none"))
    assert answer.status_code == 401, answer.text
    assert answer.headers["WWW-Authenticate"].startswith("ApiKey")


def test_the_list_of_keys_comes_in_pages(service: Service) -> None:
    made = [service.key()["keyId"] for _ in range(3)]
    first = call(service, "GET", "/v1/api-keys?limit=2")
    path = first.headers["Link"].partition(">")[0].removeprefix("<")
    second = call(service, "GET", path)
    ids = [key["keyId"] for key in first.json() + second.json()]
    assert sorted(ids[:3]) == sorted(made)
    assert ids == sorted(ids, reverse=True)


# The organisation ---------------------------------------------------------------------------------


def test_the_rule_goes_in_and_its_key_never_out(service: Service) -> None:
    secret = "a secret of the identity provider"
    rule = {"algorithm": "HS256", "key": secret, "issuer": "https://id.example", "audience": None}
    answer = call(service, "PUT", "/v1/organisation", {"name": "Acme", "userToken": rule})
    assert answer.status_code == 200, answer.text
    shown = call(service, "GET", "/v1/organisation")
    assert shown.json()["name"] == "Acme"
    assert shown.json()["userToken"] == {"algorithm": "HS256", "issuer": "https://id.example"}
    assert answer.json() == shown.json()
    assert secret not in answer.text + shown.text + json.dumps(service.audit("organisation.updated"))
    kept = {"algorithm": "HS256", "audience": "governance"}
    answer = call(service, "PUT", "/v1/organisation", {"name": "Acme", "userToken": kept})
    assert answer.json()["userToken"] == kept
    answer = call(service, "PUT", "/v1/organisation", {"name": "Acme", "userToken": {"algorithm": "RS256"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/userToken/key"
    assert call(service, "PUT", "/v1/organisation", {"name": "Default", "userToken": None}).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x"}, ""),
        ({"name": "", "userToken": None}, "/name"),
        ({"name": "x", "userToken": {"algorithm": "none", "key": "k" * 40}}, "/userToken/algorithm"),
        ({"name": "x", "userToken": {"algorithm": "HS256", "key": "short"}}, "/userToken/key"),
        ({"name": "x", "userToken": None, "organisationId": "other"}, "/organisationId"),
    ],
)
def test_a_rule_that_is_refused(service: Service, body: Any, pointer: str) -> None:
    answer = call(service, "PUT", "/v1/organisation", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "short" not in answer.json()["detail"] or pointer != "/userToken/key"


def test_nothing_reaches_across_organisations(service: Service) -> None:
    user, key = service.user("viewer", organisation="other"), service.key("other")
    service.bearer("admin", "other")
    answers = [
        call(service, "GET", f"/v1/users/{user['userId']}"),
        call(service, "PATCH", f"/v1/users/{user['userId']}", {"enabled": False}),
        call(service, "PATCH", f"/v1/users/{user['userId']}", {"password": "another password"}),
        call(service, "POST", f"/v1/api-keys/{key['keyId']}/rotate"),
        call(service, "DELETE", f"/v1/api-keys/{key['keyId']}"),
    ]
    nothing = call(service, "GET", "/v1/users/usr_nothing").json()
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answers[0].json()["title"] == nothing["title"]
    assert me(service, user["token"]).status_code == 200
    assert works(service, key["key"], "across")
    for path in ("/v1/users?limit=1000", "/v1/api-keys?limit=1000"):
        rows = call(service, "GET", path).json()
        assert rows and all(row["organisationId"] == "default" for row in rows)
    answer = service.request(
        "POST", "/v1/events", headers={"X-API-Key": key["key"]}, json=event("x", organisationId="default")
    )
    assert answer.status_code == 403


@pytest.mark.parametrize("identifier", ["x" * 400, "%00", "..%2f..", "'", "%F0%9F%92%A9"])
def test_an_odd_id_is_404(service: Service, identifier: str) -> None:
    assert call(service, "GET", f"/v1/users/{identifier}").status_code == 404
    assert call(service, "DELETE", f"/v1/api-keys/{identifier}").status_code == 404
