"""The log of a real process, as a collector reads it: JSON lines that name their request, and no secret."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import jwt

from tests.harness.application import PASSWORD, SECRET
from tests.harness.nodes import KEY, called, serve

USERS_SECRET = "of-the-users-and-thirty-two-bytes-long-or-more"
WRONG = "not-the-password-but-near-it"
HOOK = "https://hooks.example.com/T0123/B4567/token-of-a-webhook"
METRICS = "token-of-whoever-collects-metrics"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_json_lines_that_name_their_request_and_tell_no_secret(tmp_path: Path) -> None:
    settings = {
        "GOVERNANCE_LOG_FORMAT": "json",
        "GOVERNANCE_ACCESS_LOG": "on",
        "GOVERNANCE_METRICS_TOKEN": METRICS,
        "GOVERNANCE_JWT_SECRET": SECRET,
        "GOVERNANCE_ADMIN_PASSWORD": PASSWORD,
        "GOVERNANCE_API_KEY": KEY,
    }
    with serve(tmp_path, **settings) as service:
        secrets = _used(service.ready().http)
        assert service.stop() == 0
        *_, start = first = [json.loads(line) for line in service.output.splitlines()]
        assert start["message"].startswith("Agent Governance Service ")
        assert start["service"] == str(service.http.base_url).rstrip("/")
        assert start["admin"] == "admin@localhost" and start.keys().isdisjoint(("password", "apiKey"))
        lines = [*first, *(json.loads(line) for line in service.errors.splitlines())]
        for secret in (*settings.values(), *secrets):
            assert secret in ("json", "on") or secret not in service.errors
    for line in lines:
        assert line.keys() >= {"time", "level", "logger", "message"}
    (failed,) = (line for line in lines if line["message"].startswith("login of "))
    assert failed["requestId"] == "req-of-a-login", "what a job of the writer logs names its request, too"
    (access,) = (line for line in lines if line.get("requestId") == "req-of-an-event")
    assert (access["logger"], access["path"]) == ("governance.access", "/v1/events")
    assert (access["traceId"], access["status"]) == (TRACE, 200)
    assert access["actor"].startswith("key:")


def _used(http: httpx.Client) -> list[str]:
    """Requests that carry every kind of secret, in every place; and the secrets."""
    wrong = {"email": "admin@localhost", "password": WRONG}
    assert http.post("/auth/login", json=wrong, headers={"X-Request-Id": "req-of-a-login"}).status_code == 401
    login = http.post("/auth/login", json=wrong | {"password": PASSWORD})
    token = login.json()["accessToken"]
    admin = {"Authorization": f"Bearer {token}"}
    rule = {"name": "Default", "userToken": {"algorithm": "HS256", "key": USERS_SECRET}}
    assert http.put("/v1/organisation", json=rule, headers=admin).status_code == 200
    made = http.post("/v1/webhooks", json={"url": HOOK, "events": ["tool.blocked"]}, headers=admin)
    assert made.status_code == 201, made.text
    claims = {"sub": "ann", "iss": "https://users.example", "exp": int(time.time()) + 600}
    user_token = jwt.encode(claims, USERS_SECRET, "HS256")
    body = called(1)
    body["metadata"]["userToken"] = user_token
    assert http.post("/v1/events", json=body, headers={"X-API-Key": KEY}).status_code == 200
    traced = {"X-Request-Id": "req-of-an-event", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    answer = http.post("/v1/events", json=called(2), headers={"X-API-Key": KEY, **traced})
    assert answer.status_code == 200
    for path in (f"/v1/runs/{KEY}", f"/nothing/{token}", f"/v1/runs?cursor={token}", f"/{HOOK}"):
        http.get(path, headers=admin)
    http.get("/metrics", headers={"Authorization": f"Bearer {METRICS}"})
    return [token, WRONG, user_token, USERS_SECRET, made.json()["secret"], "token-of-a-webhook"]
