"""A decision made for one verified user is not given to another; a user's token is stored nowhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from api.auth.credentials import key_digest
from api.ingestion import validation
from api.store import accounts
from tests.harness.application import Service
from tests.harness.policy_bodies import policy_body, where
from tests.harness.waiting import busy

SECRET = "a secret of the organisation that is long enough for any digest"
ALICE_ONLY = policy_body(
    "Only Alice wipes", "block", where("toolName", "equals", "wipe"), where("user.id", "not_equals", "alice")
)

FOR_ALICE = policy_body(
    "Label what was read for Alice",
    "allow",
    where("user.id", "equals", "alice"),
    on="tool.completed",
    labels={"add": ["of-alice"]},
)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, [ALICE_ONLY, FOR_ALICE]) as service:
        for name in ("alice", "bob"):
            await service.context.writer.write(
                lambda transaction, name=name: accounts.add_key(
                    transaction, "default", name, key_digest(f"agk_{name}"), "agk_", "test", user_id=name
                )
            )
            service.credentials[name] = {"X-API-Key": f"agk_{name}"}
        yield service


async def tokens_of(service: Service, *names: str) -> list[str]:
    """Those of end users whom the organisation's key vouches for."""
    rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
    assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
    expires = int(service.clock()) + 600
    return [jwt.encode({"sub": name, "exp": expires}, SECRET, algorithm="HS256") for name in names]


async def test_a_decision_for_one_user_is_not_given_to_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        wipe = {"toolCallId": "c-1", "toolName": "wipe"}
        first = await service.report("alice", 1, "tool.called", **wipe)
        assert first.json()["toolCallStatus"] == "allowed"
        again = await service.report("alice", 2, "tool.called", **wipe)
        assert again.json()["toolCallStatus"] == "allowed"
        other = await service.report("bob", 3, "tool.called", **wipe)
        assert (other.status_code, other.json()["code"]) == (409, "run_conflict")
        replay = await service.report("bob", 1, "tool.called", **wipe)
        assert (replay.status_code, replay.json()["code"]) == (409, "run_conflict")
        own = await service.report("bob", 4, "tool.called", runId="run-2", **wipe)
        assert own.json()["toolCallStatus"] == "blocked"


async def test_an_outcome_is_of_the_user_for_whom_the_call_was_made(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        alice, bob = await tokens_of(service, "alice", "bob")
        for run, token, told, labels in (
            ("run-1", alice, {}, ["of-alice"]),
            ("run-2", alice, {"userToken": bob}, ["of-alice"]),
            ("run-3", bob, {"userToken": alice}, []),
        ):
            call = {"runId": run, "toolCallId": "c-1"}
            await service.report("agent", f"{run}-1", "tool.called", **call, toolName="x", userToken=token)
            await service.report("agent", f"{run}-2", "tool.completed", **call, outputPayload={}, **told)
            assert (await service.call("agent", "GET", f"/v1/runs/{run}")).json()["labels"] == labels


async def test_nor_is_it_within_one_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        alice, bob = await tokens_of(service, "alice", "bob")
        wipe = {"toolCallId": "c-1", "toolName": "wipe"}
        first = await service.report("agent", 1, "tool.called", **wipe, userToken=alice)
        assert first.json()["toolCallStatus"] == "allowed"
        again = await service.report("agent", 2, "tool.called", **wipe, userToken=alice)
        assert again.json()["toolCallStatus"] == "allowed"
        other = await service.report("agent", 3, "tool.called", **wipe, userToken=bob)
        assert (other.status_code, other.json()["code"]) == (409, "tool_call_conflict")
        replay = await service.report("agent", 1, "tool.called", **wipe, userToken=bob)
        assert (replay.status_code, replay.json()["code"]) == (409, "event_id_conflict")
        own = await service.report(
            "agent", 4, "tool.called", toolCallId="c-2", toolName="wipe", userToken=bob
        )
        assert own.json()["toolCallStatus"] == "blocked"


async def test_nor_to_the_same_user_with_other_claims(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
        assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
        expires = int(service.clock()) + 600

        def token(**claims: Any) -> str:
            return jwt.encode({"sub": "alice", "exp": expires, **claims}, SECRET, algorithm="HS256")

        async def status(number: int, **claims: Any) -> tuple[int, str]:
            wipe = {"toolCallId": "c-1", "toolName": "wipe", "userToken": token(**claims)}
            answer = await service.report("agent", number, "tool.called", **wipe)
            return answer.status_code, answer.json().get("toolCallStatus") or answer.json()["code"]

        own = {"role": "admin", "email": "alice@acme.example", "scope": "a b"}
        assert await status(1, **own) == (200, "allowed")
        renewed = {"exp": expires + 60, "iat": expires - 600, "jti": "another", "scope": "b a"}
        assert await status(2, **(own | renewed)) == (200, "allowed")
        others = ({"role": "guest"}, {"email": "eve@acme.example"}, {"scope": "a"})
        for number, other in enumerate(others, 3):
            assert await status(number, **(own | other)) == (409, "tool_call_conflict"), other
        assert await status(6, email="alice@acme.example", scope="a b") == (409, "tool_call_conflict")


async def test_an_approval_for_a_user_is_not_handed_out_to_a_hook_without_one(tmp_path: Path) -> None:
    hold = policy_body(
        "Ask first", "require_approval", where("toolName", "equals", "wipe"), where("user.id", "exists")
    )
    async with Service(tmp_path, [ALICE_ONLY, hold]) as service:
        rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
        assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
        claims = {"sub": "alice", "exp": int(service.clock()) + 600}
        token = jwt.encode(claims, SECRET, algorithm="HS256")
        wipe = {"toolCallId": "c-1", "toolName": "wipe", "inputPayload": {"disk": 1}}
        held = await service.report("agent", 1, "tool.called", **wipe, userToken=token)
        path = f"/v1/approvals/{held.json()['approvalId']}/approve"
        assert (await service.call("reviewer", "POST", path)).status_code == 200
        body = {
            "session_id": "run-1",
            "hook_event_name": "PreToolUse",
            "tool_name": "wipe",
            "tool_input": {"disk": 1},
            "tool_use_id": "t-1",
        }
        answer = await service.call("agent", "POST", "/v1/hooks/claude-code?agentId=mailer", body)
        assert answer.headers["Governance-Outcome"] == "blocked", answer.text


async def test_a_token_under_an_escaped_key_is_not_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
        assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
        token = jwt.encode({"sub": "alice", "exp": int(service.clock()) + 600}, SECRET, algorithm="HS256")
        body = {
            "eventId": "e-1",
            "runId": "r-1",
            "agentId": "a-1",
            "timestamp": service.clock.text,
            "eventType": "tool.called",
            "metadata": {"toolCallId": "c-1", "toolName": "wipe", "inputPayload": {}, "userToken": token},
        }
        raw = json.dumps(body).replace("userToken", "user\\u0054oken")
        answer = await service.call("agent", "POST", "/v1/events", raw=raw)
        assert answer.json()["toolCallStatus"] == "allowed"
        stored = service.context.store.read_here(
            lambda: bytes(service.context.store.rows("SELECT body FROM events")[0][0])
        )
        assert token.encode() not in stored
        assert b"sha256:" in stored


async def test_whatever_reading_a_token_takes_is_time_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = validation.verify_user_token

    def slowly(*arguments: Any) -> Any:
        busy(0.02)
        return verify(*arguments)

    async with serving(tmp_path) as service:
        monkeypatch.setattr(validation, "verify_user_token", slowly)
        (key_id,) = await service.context.store.read(
            lambda: service.context.store.rows("SELECT key_id FROM api_keys WHERE name = 'alice'")[0]
        )
        taken = service.context.intake.processor_time.taken
        assert taken(key_id) == 0
        refused = await service.report("alice", 1, "custom.a", userToken="a.b.c")
        assert refused.status_code == 401 and taken(key_id) >= 0.02
