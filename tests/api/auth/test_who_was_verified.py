"""Whom the service has verified stands wherever a call is told, apart from what its agent asserts."""

from __future__ import annotations

from pathlib import Path

from tests.api.auth.test_user_tokens import SECRET, event, fresh_token, post, set_rule
from tests.harness.running_service import Served


def test_who_was_verified_and_what_the_key_may_stand_in_record_and_run(tmp_path: Path) -> None:
    with Served(tmp_path) as service:
        assert set_rule(service, {"algorithm": "HS256", "key": SECRET}).status_code == 200
        key = service.key(scopes=("pay", "read"))["key"]
        answer = post(service, event("who-1", fresh_token(email="ada@example.com")), key)
        assert answer.status_code == 200, answer.text
        viewer = {"Authorization": f"Bearer {service.user('viewer')['token']}"}
        (call,) = service.call(viewer, "GET", "/v1/runs/run-who-1").json()["toolCalls"]
        record = next(record for record in service.audit("decision") if record["toolCallId"] == "who-1")
        verified = {"userId": "u-1", "userEmail": "ada@example.com", "keyScopes": ["pay", "read"]}
        for shown in (call, record):
            assert {name: shown.get(name) for name in verified} == verified
