"""Who may do what: every route with every kind of credential, and the contract's own table beside ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.http.route import Route
from api.server.routes import ROUTES
from tests.harness.application import NO_LAUNCHES
from tests.harness.running_service import Served, bearer

ANYONE = {"anyone"}
AGENT = {"agent"}
EVERYBODY = {"viewer", "reviewer", "admin"}
REVIEWERS = {"reviewer", "admin"}
ADMINS = {"admin"}

CONTRACT = {
    ("GET", "/v1/policies"): EVERYBODY,
    ("GET", "/v1/policies/:id"): EVERYBODY,
    ("GET", "/v1/policies/:id/versions"): EVERYBODY,
    ("POST", "/v1/policies"): ADMINS,
    ("PATCH", "/v1/policies/:id"): ADMINS,
    ("DELETE", "/v1/policies/:id"): ADMINS,
    ("POST", "/v1/policies/simulate"): REVIEWERS,
    ("GET", "/v1/policy-presets"): EVERYBODY,
    ("GET", "/v1/policy-presets/packs"): EVERYBODY,
    ("POST", "/v1/policy-presets/packs/:packId/activate"): ADMINS,
    ("GET", "/v1/approvals"): REVIEWERS,
    ("POST", "/v1/approvals/:id/approve"): REVIEWERS,
    ("POST", "/v1/approvals/:id/reject"): REVIEWERS,
    ("POST", "/v1/events"): AGENT,
    ("POST", "/v1/webhooks"): ADMINS,
    ("GET", "/v1/webhooks"): ADMINS,
    ("DELETE", "/v1/webhooks/:id"): ADMINS,
    ("GET", "/v1/webhooks/:id/deliveries"): ADMINS,
    ("GET", "/health"): ANYONE,
    ("POST", "/auth/login"): ANYONE,
    ("GET", "/api/docs"): ANYONE,
}
"""The 21 endpoints of section 4 of the contract, by its words; a `viewer` is a valid token and no more."""

OURS = {
    ("GET", "/v1/me"): EVERYBODY,
    ("GET", "/v1/tools"): EVERYBODY,
    ("GET", "/v1/tools/:id"): EVERYBODY,
    ("POST", "/v1/tools"): ADMINS,
    ("PUT", "/v1/tools/:id"): ADMINS,
    ("PATCH", "/v1/tools/:id"): ADMINS,
    ("DELETE", "/v1/tools/:id"): ADMINS,
    ("GET", "/v1/tools/:id/versions"): EVERYBODY,
    ("POST", "/v1/password"): EVERYBODY,
    ("GET", "/v1/changes"): ADMINS,
    ("GET", "/v1/changes/:id"): ADMINS,
    ("POST", "/v1/changes/:id/resolve"): ADMINS,
    ("GET", "/v1/users"): ADMINS,
    ("POST", "/v1/users"): ADMINS,
    ("GET", "/v1/users/:id"): ADMINS,
    ("PATCH", "/v1/users/:id"): ADMINS,
    ("GET", "/v1/api-keys"): ADMINS,
    ("POST", "/v1/api-keys"): ADMINS,
    ("POST", "/v1/api-keys/:id/rotate"): ADMINS,
    ("DELETE", "/v1/api-keys/:id"): ADMINS,
    ("GET", "/v1/organisation"): ADMINS,
    ("PUT", "/v1/organisation"): ADMINS,
    ("GET", "/v1/notifications/channels"): ADMINS,
    ("GET", "/v1/notifications/channels/:name/notices"): ADMINS,
    ("POST", "/v1/notifications/channels/:name/test"): ADMINS,
    ("GET", "/v1/notifications/secrets"): ADMINS,
    ("POST", "/v1/notifications/secrets"): ADMINS,
    ("DELETE", "/v1/notifications/secrets/:name"): ADMINS,
    ("GET", "/v1/organisation/settings"): ADMINS,
    ("PUT", "/v1/organisation/settings"): ADMINS,
    ("GET", "/v1/organisation/settings/versions"): ADMINS,
    ("POST", "/v1/policies/:id/rollback"): ADMINS,
    ("POST", "/v1/policies/accept-replaced"): ADMINS,
    ("GET", "/v1/policies/:id/preset-upgrade"): EVERYBODY,
    ("POST", "/v1/policies/:id/preset-upgrade"): ADMINS,
    ("POST", "/v1/policies/backtest"): REVIEWERS,
    ("POST", "/v1/policy-presets/:presetId/activate"): ADMINS,
    ("POST", "/v1/events/batch"): AGENT,
    ("POST", "/v1/hooks/:host"): AGENT,
    ("GET", "/v1/approvals/:id"): REVIEWERS | AGENT,
    ("GET", "/v1/runs"): EVERYBODY | AGENT,
    ("GET", "/v1/runs/:id"): EVERYBODY | AGENT,
    ("PATCH", "/v1/webhooks/:id"): ADMINS,
    ("GET", "/v1/webhooks/:id"): ADMINS,
    ("POST", "/v1/webhooks/:id/rotate"): ADMINS,
    ("POST", "/v1/webhooks/:id/test"): ADMINS,
    ("POST", "/v1/webhooks/:id/deliveries/:deliveryId/redeliver"): ADMINS,
    ("GET", "/v1/audit"): ADMINS,
    ("GET", "/v1/audit/:id"): ADMINS,
    ("GET", "/v1/audit/verify"): ADMINS,
    ("GET", "/v1/audit/key"): EVERYBODY,
    ("GET", "/v1/stream"): EVERYBODY,
    ("GET", "/v1/nodes"): EVERYBODY,
    ("GET", "/v1/health/history"): EVERYBODY,
    ("GET", "/v1/grants"): EVERYBODY,
    ("GET", "/v1/grants/:id"): EVERYBODY,
    ("POST", "/v1/grants"): REVIEWERS,
    ("POST", "/v1/grants/:id/revoke"): REVIEWERS,
    ("GET", "/v1/halts"): EVERYBODY,
    ("POST", "/v1/halt"): ADMINS,
    ("GET", "/v1/agents"): EVERYBODY,
    ("GET", "/v1/agents/:id"): EVERYBODY,
    ("GET", "/v1/alerts"): EVERYBODY,
    ("GET", "/v1/alerts/:id"): EVERYBODY,
    ("POST", "/v1/alerts/:id/acknowledge"): REVIEWERS,
    ("GET", "/v1/detectors"): EVERYBODY,
    ("GET", "/v1/detectors/:id"): EVERYBODY,
    ("POST", "/v1/detectors"): ADMINS,
    ("PATCH", "/v1/detectors/:id"): ADMINS,
    ("DELETE", "/v1/detectors/:id"): ADMINS,
    ("GET", "/v1/detectors/:id/versions"): EVERYBODY,
    ("POST", "/v1/resume"): ADMINS,
    ("GET", "/v1/undeclared-tools"): EVERYBODY,
    ("POST", "/v1/tool-proposals"): AGENT,
    ("GET", "/v1/tool-proposals"): ADMINS | AGENT,
    ("GET", "/v1/tool-proposals/:id"): ADMINS | AGENT,
    ("POST", "/v1/tool-proposals/:id/admit"): ADMINS,
    ("POST", "/v1/tool-proposals/:id/dismiss"): ADMINS,
    ("POST", "/access/v1/evaluation"): AGENT,
    ("POST", "/access/v1/evaluations"): AGENT,
    ("POST", "/access/v1/requests"): AGENT,
    ("GET", "/access/v1/requests/:id"): AGENT,
    ("GET", "/.well-known/authzen-configuration"): ANYONE,
    ("GET", "/health/live"): ANYONE,
    ("GET", "/health/ready"): ANYONE,
    ("GET", "/metrics"): ANYONE,
    ("GET", "/api/openapi.json"): ANYONE,
    ("GET", "/api/docs/:asset"): ANYONE,
}
"""Who may call what the contract leaves open; a route that stands in neither table fails a test."""

OF_THE_INSTALLATION = {"/v1/nodes", "/v1/health/history"}
"""For people of the organisation `default` alone, who run it."""

CREDENTIALS = (
    "nobody",
    "wrong token",
    "wrong key",
    "a key as a token",
    "a token as a key",
    "viewer",
    "reviewer",
    "admin",
    "disabled admin",
    "admin of another organisation",
    "agent",
    "revoked agent",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("roles"), [NO_LAUNCHES], live=True) as made:
        yield made


@pytest.fixture(scope="module")
def credentials(service: Served) -> dict[str, dict[str, str]]:
    admin = service.credentials["admin"]
    gone, key = service.user("admin"), service.key()
    revoked = service.key()
    service.answered(admin, "PATCH", f"/v1/users/{gone['userId']}", {"enabled": False})
    service.answered(admin, "DELETE", f"/v1/api-keys/{revoked['keyId']}", status=204)
    return {
        "nobody": {},
        "wrong token": {"Authorization": "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl"},
        "wrong key": {"X-API-Key": "agk_" + "0" * 43},
        "a key as a token": bearer(key["key"]),
        "a token as a key": {"X-API-Key": admin["Authorization"].removeprefix("Bearer ")},
        "viewer": service.credentials["viewer"],
        "reviewer": service.credentials["reviewer"],
        "admin": admin,
        "disabled admin": bearer(gone["token"]),
        "admin of another organisation": service.credentials["other admin"],
        "agent": {"X-API-Key": key["key"]},
        "revoked agent": {"X-API-Key": revoked["key"]},
    }


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


def ask(service: Served, route: Route, headers: dict[str, str]) -> tuple[int, str]:
    """Status and code of a call whose ids and body lead to nothing."""
    path = re.sub(r":[A-Za-z]+", "nothing", route.path)
    options: dict[str, Any] = {} if route.body is None else {"json": {"nothing": "of the kind"}}
    with service.http.stream(route.method, path, headers=headers, **options) as answer:
        code = ""
        if answer.headers["Content-Type"].startswith("application/problem+json"):
            answer.read()
            code = answer.json()["code"]
            if answer.status_code == 401:
                assert answer.headers["WWW-Authenticate"].startswith(("Bearer", "ApiKey"))
        return answer.status_code, code


def expected(route: Route, credential: str) -> str:
    """`401`, `403` or `allowed`: what `who` means for a credential."""
    who = route.who
    if "anyone" in who:
        return "allowed"
    role = {"admin of another organisation": "admin"}.get(credential, credential)
    if role in EVERYBODY:
        if role in who:
            return "403" if role != credential and route.path in OF_THE_INSTALLATION else "allowed"
        # An endpoint for agents alone does not look at tokens: to it there is no credential.
        return "403" if who & EVERYBODY else "401"
    return "allowed" if credential == "agent" and "agent" in who else "401"


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_role_by_endpoint(
    service: Served, credentials: dict[str, dict[str, str]], route: Route, credential: str
) -> None:
    status, code = ask(service, route, credentials[credential])
    match expected(route, credential):
        case "401":
            assert (status, code) == (401, "unauthenticated")
        case "403":
            assert (status, code) == (403, "forbidden")
        case _:
            assert status not in (401, 403) and status < 500, code


def test_the_contract_says_who() -> None:
    table = {(route.method, route.path): set(route.who) for route in ROUTES}
    assert len(CONTRACT) == 21
    for endpoint, who in CONTRACT.items():
        assert table.get(endpoint) == who, endpoint


def test_nothing_is_open_by_accident() -> None:
    """Whoever adds a route says here, in words of their own, who may call it."""
    table = {(route.method, route.path): set(route.who) for route in ROUTES}
    assert table == CONTRACT | OURS


def test_both_credentials_at_once(service: Served, credentials: dict[str, dict[str, str]]) -> None:
    """A token counts where tokens do and a key where keys do; a bad token is not saved by a good key."""
    both = credentials["viewer"] | credentials["agent"]
    assert service.call(both, "GET", "/v1/me").status_code == 200
    assert service.call(both, "GET", "/v1/users").status_code == 403
    bad = credentials["wrong token"] | credentials["agent"]
    assert service.call(bad, "GET", "/v1/runs").status_code == 401


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT"])
def test_another_method_opens_nothing(service: Served, method: str) -> None:
    answer = service.call("nobody", method, "/v1/users")
    assert answer.status_code in (401, 405, 501)
    assert "userId" not in answer.text


@pytest.mark.parametrize(
    "path",
    ["/v1/users/", "//v1/users", "/v1//users", "/V1/users", "/v1/users/..", "/v1/./users", "/v1/users%2f"],
)
def test_another_spelling_of_a_path_opens_nothing(service: Served, path: str) -> None:
    answer = service.call("nobody", "GET", path)
    assert answer.status_code in (401, 404, 405)
    assert "userId" not in answer.text
