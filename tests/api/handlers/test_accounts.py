"""Users, API keys and the organisation through HTTP: what an admin may do, and never beyond their own."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.application import PASSWORD
from tests.harness.running_service import Served, bearer


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("accounts")) as made:
        yield made


def event(number: str, **changes: Any) -> dict[str, Any]:
    return {
        "eventId": number,
        "runId": f"run-{number}",
        "agentId": "agent",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": "custom.note",
    } | changes


def works(service: Served, key: str, number: str) -> bool:
    answer = service.call({"X-API-Key": key}, "POST", "/v1/events", event(number))
    assert answer.status_code in (200, 401)
    return bool(answer.status_code == 200)


# Users --------------------------------------------------------------------------------------------


def test_a_user_is_created_read_and_logs_in(service: Served) -> None:
    body = {"email": " Grace@Example.com ", "password": PASSWORD, "role": "reviewer"}
    made = service.call("admin", "POST", "/v1/users", body)
    assert made.status_code == 201, made.text
    user = made.json()
    assert user.keys() == {"userId", "organisationId", "email", "role", "enabled", "createdAt"}
    assert (user["email"], user["role"], user["enabled"]) == ("grace@example.com", "reviewer", True)
    assert PASSWORD not in made.text and "argon2" not in made.text
    assert made.headers["Location"] == f"/v1/users/{user['userId']}"
    assert service.call("admin", "GET", made.headers["Location"]).json() == user
    assert service.log_in("GRACE@example.com", PASSWORD, "192.0.2.60").status_code == 200
    record = service.audit("user.created")[-1]
    assert record["details"]["email"] == "grace@example.com"
    assert PASSWORD not in json.dumps(record)


@pytest.mark.parametrize(
    "email", ["grace2@example.com", "GRACE2@EXAMPLE.COM", " grace2@example.com", "\uff47race2@example.com"]
)
def test_an_email_is_taken_in_every_spelling(service: Served, email: str) -> None:
    first = {"email": "grace2@example.com", "password": PASSWORD, "role": "viewer"}
    assert service.call("admin", "POST", "/v1/users", first).status_code in (201, 409)
    answer = service.call("admin", "POST", "/v1/users", first | {"email": email})
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
def test_a_user_that_is_refused(service: Served, changes: dict[str, Any], pointer: str) -> None:
    body = {"email": "fine@example.com", "password": PASSWORD, "role": "viewer"} | changes
    answer = service.call("admin", "POST", "/v1/users", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    if changes.get("password"):
        assert str(changes["password"])[:11] not in answer.text


def test_the_list_of_users_comes_in_pages(service: Served) -> None:
    for number in range(5):
        service.user("viewer", f"page{number}@example.com")
    first = service.call("admin", "GET", "/v1/users?limit=3")
    total = int(first.headers["X-Total-Count"])
    seen = first.json()
    link = first.headers.get("Link")
    while link:
        path = link.partition(">")[0].removeprefix("<")
        answer = service.call("admin", "GET", path)
        assert 0 < len(answer.json()) <= 3
        seen += answer.json()
        link = answer.headers.get("Link")
    emails = [user["email"] for user in seen]
    assert len(emails) == len(set(emails)) == total
    assert emails == sorted(emails)
    assert service.call("admin", "GET", "/v1/users?cursor=nonsense!").status_code == 422
    assert service.call("admin", "GET", "/v1/users?limit=0").status_code == 422


def test_the_last_admin_stays(service: Served) -> None:
    service.organisation("lonely")
    first = service.user("admin", organisation="lonely")
    path = f"/v1/users/{first['userId']}"
    headers = bearer(first["token"])
    for change in ({"enabled": False}, {"role": "viewer"}, {"role": "reviewer", "enabled": False}):
        answer = service.call(headers, "PATCH", path, change)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "last admin" in answer.json()["detail"]
    disabled = service.user("admin", organisation="lonely")
    service.answered(headers, "PATCH", f"/v1/users/{disabled['userId']}", {"enabled": False})
    assert service.call(headers, "PATCH", path, {"enabled": False}).status_code == 409
    service.user("admin", organisation="lonely")
    assert service.call(headers, "PATCH", path, {"enabled": False}).status_code == 200


def test_of_two_admins_who_disable_each_other_one_stays(service: Served) -> None:
    service.organisation("duel")
    pair = [service.user("admin", organisation="duel") for _ in range(2)]
    answers: list[int] = []

    def disable(me: dict[str, Any], other: dict[str, Any]) -> None:
        headers = bearer(me["token"])
        path = f"/v1/users/{other['userId']}"
        answers.append(service.call(headers, "PATCH", path, {"enabled": False}).status_code)

    threads = [threading.Thread(target=disable, args=duel) for duel in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(200) == 1, answers


def test_a_change_of_nothing_changes_nothing(service: Served) -> None:
    user = service.user("viewer")
    before = len(service.audit("user.updated"))
    for body in ({}, {"role": "viewer"}, {"enabled": True}):
        assert service.call("admin", "PATCH", f"/v1/users/{user['userId']}", body).status_code == 200
    assert len(service.audit("user.updated")) == before
    assert service.me(user["token"]).status_code == 200


def test_a_new_password_by_an_admin_lifts_the_wait(service: Served) -> None:
    user = service.user("viewer")
    address = "192.0.2.61"
    assert [service.log_in(user["email"], "not it", address).status_code for _ in range(6)][-1] == 429
    path = f"/v1/users/{user['userId']}"
    assert service.call("admin", "PATCH", path, {"password": "another password"}).status_code == 200
    assert service.log_in(user["email"], "another password", address).status_code == 200


# API keys -----------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_works_until_revoked(service: Served) -> None:
    key = service.answered(
        "admin", "POST", "/v1/api-keys", {"name": "mailer", "scopes": ["mail"]}, status=201
    )
    assert key["key"].startswith("agk_") and len(key["key"]) >= 46
    assert key["key"].startswith(key["prefix"]) and len(key["prefix"]) == 8
    assert works(service, key["key"], "works-1")
    listed = service.call("admin", "GET", "/v1/api-keys")
    assert key["key"] not in listed.text
    assert listed.json()[0] == {name: value for name, value in key.items() if name != "key"}
    path = f"/v1/api-keys/{key['keyId']}"
    assert service.call("admin", "DELETE", path).status_code == 204
    assert not works(service, key["key"], "works-2")
    assert service.call("admin", "DELETE", path).status_code == 204
    assert "revokedAt" in service.call("admin", "GET", "/v1/api-keys").json()[0]
    conflict = service.call("admin", "POST", f"{path}/rotate")
    assert (conflict.status_code, conflict.json()["code"]) == (409, "conflict")


def test_rotating_ends_the_old_secret_at_once(service: Served) -> None:
    old = service.key()
    new = service.answered("admin", "POST", f"/v1/api-keys/{old['keyId']}/rotate")
    assert new["keyId"] == old["keyId"] and new["key"] != old["key"]
    assert works(service, new["key"], "rotated-1")
    assert not works(service, old["key"], "rotated-2")


def test_a_program_is_told_as_what_its_key_is_known(service: Served) -> None:
    """Also in a refusal, and after a rotation; people are not."""
    key = service.key()
    for secret in (lambda: key["key"], lambda: service.rotated(key)):
        answer = service.http.get("/v1/runs/of-nobody", headers={"X-API-Key": secret()})
        assert (answer.status_code, answer.headers["Governance-Key"]) == (404, f"default/{key['keyId']}")
    assert "Governance-Key" not in service.call("admin", "GET", "/v1/runs/of-nobody").headers
    wrong = service.http.get("/v1/runs/of-nobody", headers={"X-API-Key": key["key"]})
    assert wrong.status_code == 401 and "Governance-Key" not in wrong.headers


def test_no_key_is_kept(service: Served) -> None:
    secret = service.key()["key"]
    files = [file for file in service.settings.data_dir.iterdir() if "sqlite" in file.name]
    assert all(secret.encode() not in file.read_bytes() for file in files)
    records = json.dumps([service.audit(kind) for kind in ("key.created", "key.rotated", "key.revoked")])
    assert "agk_" not in records


def test_the_record_of_a_key_says_for_whom_it_acts(service: Served) -> None:
    made = [service.key(), service.key(agent_id="robot", user_id="ann")]
    told = {record["details"]["keyId"]: record for record in service.audit("key.created")}
    plain, bound = (told[each["keyId"]] for each in made)
    assert plain["details"]["userId"] is None and "agentId" not in plain
    assert (bound["agentId"], bound["details"]["userId"]) == ("robot", "ann")


def test_a_key_bound_to_an_agent_speaks_for_no_other(service: Served) -> None:
    key = service.call("admin", "POST", "/v1/api-keys", {"name": "one agent", "agentId": "agent-7"}).json()
    assert key["agentId"] == "agent-7"
    headers = {"X-API-Key": key["key"]}
    service.answered(headers, "POST", "/v1/events", event("bound-1", agentId="agent-7"))
    other = service.call(headers, "POST", "/v1/events", event("bound-2"))
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
def test_a_key_that_is_refused(service: Served, body: Any, pointer: str) -> None:
    answer = service.answered("admin", "POST", "/v1/api-keys", body, status=422)
    assert answer["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("key", ["", "x", "agk_", "agk_" + "a" * 43, "ключ", "a" * 20_000, "agk_' OR 1=1 --"])
def test_a_key_that_is_none_is_401(service: Served, key: str) -> None:
    headers = {"X-API-Key": key.encode()}
    answer = service.call(headers, "POST", "/v1/events", event("none"))
    assert answer.status_code == 401, answer.text
    assert answer.headers["WWW-Authenticate"].startswith("ApiKey")


def test_the_list_of_keys_comes_in_pages(service: Served) -> None:
    made = [service.key()["keyId"] for _ in range(3)]
    first = service.call("admin", "GET", "/v1/api-keys?limit=2")
    path = first.headers["Link"].partition(">")[0].removeprefix("<")
    second = service.call("admin", "GET", path)
    ids = [key["keyId"] for key in first.json() + second.json()]
    assert sorted(ids[:3]) == sorted(made)
    assert ids == sorted(ids, reverse=True)


# The organisation ---------------------------------------------------------------------------------


def test_the_rule_goes_in_and_its_key_never_out(service: Served) -> None:
    secret = "a secret of the identity provider"
    rule = {"algorithm": "HS256", "key": secret, "issuer": "https://id.example", "audience": None}
    answer = service.call("admin", "PUT", "/v1/organisation", {"name": "Acme", "userToken": rule})
    assert answer.status_code == 200, answer.text
    shown = service.call("admin", "GET", "/v1/organisation")
    assert shown.json()["name"] == "Acme"
    assert shown.json()["userToken"] == {"algorithm": "HS256", "issuer": "https://id.example"}
    assert answer.json() == shown.json()
    assert secret not in answer.text + shown.text + json.dumps(service.audit("organisation.updated"))
    kept = {"algorithm": "HS256", "audience": "governance"}
    answer = service.call("admin", "PUT", "/v1/organisation", {"name": "Acme", "userToken": kept})
    assert answer.json()["userToken"] == kept
    rule = {"algorithm": "RS256"}
    answer = service.answered(
        "admin", "PUT", "/v1/organisation", {"name": "Acme", "userToken": rule}, status=422
    )
    assert answer["errors"][0]["pointer"] == "/userToken/key"
    service.answered("admin", "PUT", "/v1/organisation", {"name": "Default", "userToken": None})


def test_the_record_tells_of_each_change_of_the_rule(service: Served) -> None:
    before = len(service.audit("organisation.updated"))
    keys = [f"{each} secret of the identity provider" for each in ("one", "one", "another")]
    for key in keys:
        rule = {"algorithm": "HS256", "key": key, "issuer": "https://id.example", "audience": "x"}
        body = {"name": "Default", "userToken": rule}
        assert service.call("admin", "PUT", "/v1/organisation", body).status_code == 200
    told = [record["details"] for record in service.audit("organisation.updated")[before:]]
    digests = [each.pop("digest") for each in told if each.pop("order")]
    assert len(set(digests)) == 3 and all(re.fullmatch("[0-9a-f]{64}", each) for each in digests)
    same = {"name": "Default", "userTokens": "HS256", "issuer": "https://id.example", "audience": "x"}
    assert told == [same | {"key": "changed"}, same, same | {"key": "changed"}]
    assert service.call("admin", "PUT", "/v1/organisation", {"name": "Default", "userToken": None}).is_success


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
def test_a_rule_that_is_refused(service: Served, body: Any, pointer: str) -> None:
    answer = service.answered("admin", "PUT", "/v1/organisation", body, status=422)
    assert answer["errors"][0]["pointer"] == pointer
    assert "short" not in answer["detail"] or pointer != "/userToken/key"


def test_nothing_reaches_across_organisations(service: Served) -> None:
    user, key = service.user("viewer", organisation="other"), service.key("other")
    answers = [
        service.call("admin", "GET", f"/v1/users/{user['userId']}"),
        service.call("admin", "PATCH", f"/v1/users/{user['userId']}", {"enabled": False}),
        service.call("admin", "PATCH", f"/v1/users/{user['userId']}", {"password": "another password"}),
        service.call("admin", "POST", f"/v1/api-keys/{key['keyId']}/rotate"),
        service.call("admin", "DELETE", f"/v1/api-keys/{key['keyId']}"),
    ]
    nothing = service.call("admin", "GET", "/v1/users/usr_nothing").json()
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answers[0].json()["title"] == nothing["title"]
    assert service.me(user["token"]).status_code == 200
    assert works(service, key["key"], "across")
    for path in ("/v1/users?limit=1000", "/v1/api-keys?limit=1000"):
        rows = service.call("admin", "GET", path).json()
        assert rows and all(row["organisationId"] == "default" for row in rows)
    service.answered(
        {"X-API-Key": key["key"]}, "POST", "/v1/events", event("x", organisationId="default"), status=403
    )


@pytest.mark.parametrize("identifier", ["x" * 400, "%00", "..%2f..", "'", "%F0%9F%92%A9"])
def test_an_odd_id_is_404(service: Served, identifier: str) -> None:
    assert service.call("admin", "GET", f"/v1/users/{identifier}").status_code == 404
    assert service.call("admin", "DELETE", f"/v1/api-keys/{identifier}").status_code == 404
