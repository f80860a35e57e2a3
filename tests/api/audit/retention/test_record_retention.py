"""Old records go behind a certificate, and all that is left still proves what it did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from api.audit.verification import Expectation
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import (
    DAY,
    certified,
    changed,
    cleaned,
    log_of,
    retention_of,
    signed,
    verified,
)

YEAR = 365 * 86_400


@asynccontextmanager
async def serving(folder: Path, database_url: str = "") -> AsyncIterator[Service]:
    """A month ago: calls, an approval, a halt, a webhook and people; then nothing, until now."""
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": str(YEAR)}
    async with Service(folder, POLICIES, live=True, environment=environment) as service:
        await month_ago(service)
        yield service


async def month_ago(service: Service) -> None:
    await service.report("agent", 1, "run.started", task="pay the bills")
    await call(service, 2, "look")
    await call(service, 3, "wipe")
    held = await call(service, 4, "pay")
    await signed(service)
    path = f"/v1/approvals/{held}/reject"
    await service.call("reviewer", "POST", path, {"reason": "no"})
    await call(service, 5, "pay")
    await service.call("admin", "POST", "/v1/halt", {"agentId": "robot"})
    hook = {"url": "https://hooks.example/1", "events": ["run.failed"], "enabled": True}
    await service.call("admin", "POST", "/v1/webhooks", hook)
    await signed(service)
    service.clock.advance(40 * DAY)


async def call(service: Service, number: int, tool: str) -> str:
    """A call that is decided; returns its approval."""
    answer = await service.report(
        "agent", number, "tool.called", toolCallId=f"c-{number}", toolName=tool, inputPayload={"n": number}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json().get("approvalId"))


async def test_what_is_old_goes_and_the_log_stays_valid(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        noted, before = await verified(service), await log_of(service)
        of_others = await log_of(service, "other")
        assert noted["dropped"] is None
        await call(service, 6, "look")
        await signed(service)
        assert await cleaned(service, 0) == 0, "0 means for ever"
        assert await cleaned(service) == len(before) + len(of_others)
        assert await cleaned(service) == 0
        left = await log_of(service)
        assert [type for _, _, type in left] == ["decision", "audit.dropped"]
        found = await verified(service)
        assert (found["problems"], found["valid"]) == ([], True)
        assert found["dropped"]["records"] == len(before) == found["count"] - 2
        assert found["dropped"]["setting"] == "GOVERNANCE_AUDIT_DAYS=30"
        for expected in (Expectation(noted["count"], noted["lastHash"]), Expectation(found["count"])):
            assert (await verified(service, expected=expected))["valid"]
        unknown = await verified(service, expected=Expectation(1, "0f" * 32))
        assert "no record has the hash" in unknown["problems"][0]
        assert (await verified(service, "other"))["valid"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-3'", "one was changed, removed"),
        ("UPDATE tool_calls SET reason = 'fine' WHERE tool_call_id = 'c-2'", "one was changed, removed"),
        ("DELETE FROM tool_calls WHERE tool_call_id = 'c-2'", "(there are 3)"),
        (
            "UPDATE tool_calls SET call_no = call_no + 50 WHERE tool_call_id = 'c-3'",
            "one was changed, removed",
        ),
        ("UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-4'", "`allowed` in the database"),
        ("UPDATE runs SET agent_id = 'ceo'", "one was changed, removed"),
        ("UPDATE approvals SET status = 'approved' WHERE status = 'rejected'", "the log says `rejected`"),
        ("UPDATE approvals SET reason = 'harmless'", "the request for approval"),
        ("UPDATE webhooks SET url = 'https://evil.example/x'", "the log says `https://hooks.example`"),
        ("DELETE FROM webhooks", "is in the log, but gone from the database"),
        (
            "UPDATE users SET role = 'admin' WHERE role = 'viewer'",
            "the log says `vera@acme.example`, `viewer`",
        ),
        ("DELETE FROM users WHERE role = 'viewer'", "is in the log, but gone"),
        ("UPDATE api_keys SET agent_id = 'ceo'", "API key"),
        ("UPDATE halts SET ended_at = created_at", "the log says `agent`, `robot`, `False`"),
        ("DELETE FROM policy_versions WHERE policy_id = 'no-wipes'", "`no-wipes 1` is in the log, but gone"),
        # The certificate, and what it carries
        ("DELETE FROM audit_carried", "what dropped records said is not as checkpoint"),
        ("UPDATE audit_carried SET body = replace(body, 'viewer', 'admin')", "it was changed or removed"),
        ("DELETE FROM checkpoints WHERE body LIKE '%dropped%'", "is missing"),
        ("DELETE FROM checkpoints", "does not follow from the one before it"),
        ("UPDATE checkpoints SET body = replace(body, 'DAYS=30', 'DAYS=31')", "its signature does not hold"),
        ("UPDATE checkpoints SET signature = '00' WHERE body LIKE '%dropped%'", "signature does not hold"),
        # What remains, and the boundary
        ("DELETE FROM audit", "are gone"),
        ("DELETE FROM audit WHERE type = 'decision'", "at the end, are gone"),
        ("DELETE FROM audit WHERE type = 'audit.dropped'", "does not follow from the one before it"),
        ("UPDATE audit SET decision = 'blocked' WHERE type = 'decision'", "was changed"),
        ("UPDATE audit SET sequence = sequence + 9 WHERE type = 'decision'", "was changed"),
        (
            "INSERT INTO audit SELECT organisation_id, chain, sequence - 9, audit_id, at, type, agent_id,"
            " run_id, user_id, decision, record, hash FROM audit WHERE type = 'decision'",
            "was changed",
        ),
    ],
)
async def test_what_was_changed_behind_a_certificate_is_found(
    tmp_path: Path, statement: str, problem: str
) -> None:
    async with serving(tmp_path) as service:
        await cleaned(service)
        await call(service, 6, "look")
        await call(service, 7, "wipe")
        await signed(service)
        assert (await verified(service))["problems"] == []
        await changed(service, statement)
        found = await verified(service)
        assert found["valid"] is False
        assert any(problem in each for each in found["problems"]), found["problems"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET hash = 'x' WHERE sequence = 9", "was changed, or does not follow"),
        ("DELETE FROM audit WHERE sequence = 9", "was changed, or does not follow"),
        ("UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-3'", "says something else"),
        ("DELETE FROM tool_calls WHERE tool_call_id = 'c-3'", "is gone"),
        ("UPDATE tool_calls SET audit_id = 'aud_x' WHERE tool_call_id = 'c-2'", "is gone"),
        ("UPDATE checkpoints SET signature = '00' WHERE number = 1", "its signature does not hold"),
        ("DELETE FROM checkpoints WHERE number = 1", "is missing"),
    ],
)
async def test_what_is_not_whole_stays(
    tmp_path: Path, statement: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate would cover it up."""
    async with serving(tmp_path) as service:
        await changed(service, statement)
        before = await log_of(service)
        assert await cleaned(service) == 0
        assert await log_of(service) == before
        assert "nothing is dropped from the audit log" in caplog.text and problem in caplog.text
        assert any(problem in each for each in (await verified(service))["problems"])


async def test_whoever_dies_after_the_certificate_leaves_a_valid_log(
    tmp_path: Path, database_url: str
) -> None:
    async with serving(tmp_path, database_url) as service:
        before = await log_of(service)
        await certified(service)
        assert len(await log_of(service)) == len(before) + 1
        found = await verified(service)
        assert (found["problems"], found["dropped"]["records"]) == ([], len(before))
        gone = "chain <= 1 AND sequence <= 3 AND organisation_id = 'default'"
        await changed(service, f"DELETE FROM audit WHERE {gone}")
        assert (await verified(service))["problems"] == [], "some have gone"
        assert await cleaned(service) == len(before) - 3 + 4
        assert (await verified(service))["problems"] == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET hash = 'x' WHERE sequence = 9",
        "DELETE FROM audit WHERE sequence = 9",
        "UPDATE audit SET record = replace(record, 'wipe', 'wope') WHERE type = 'decision'",
    ],
)
async def test_what_a_certificate_lets_go_and_is_still_there_leads_up_to_it(
    tmp_path: Path, statement: str
) -> None:
    async with serving(tmp_path) as service:
        await certified(service)
        await changed(service, statement)
        assert "was changed" in (await verified(service))["problems"][0]


async def test_what_follows_is_compared_with_what_was_carried(tmp_path: Path, database_url: str) -> None:
    """Things of before change, and the records that say so go in their turn."""
    async with serving(tmp_path, database_url) as service:
        await cleaned(service)
        for _ in range(2):
            user = next(
                each
                for each in (await service.call("admin", "GET", "/v1/users")).json()
                if each["email"].startswith("vera")
            )
            role = "reviewer" if user["role"] == "viewer" else "viewer"
            path = f"/v1/users/{user['userId']}"
            assert (await service.call("admin", "PATCH", path, {"role": role})).status_code == 200
            approvals = (await service.call("reviewer", "GET", "/v1/approvals?status=pending")).json()
            for each in approvals:
                path = f"/v1/approvals/{each['approvalId']}/approve"
                assert (await service.call("reviewer", "POST", path, {})).status_code == 200
            await service.answered("admin", "PATCH", "/v1/policies/no-wipes", {"action": "warn"})
            hooks = (await service.call("admin", "GET", "/v1/webhooks")).json()
            for hook in hooks:
                await service.call("admin", "DELETE", f"/v1/webhooks/{hook['webhookId']}")
            await signed(service)
            assert (await verified(service))["problems"] == []
            service.clock.advance(40 * DAY)
            assert await cleaned(service) > 0
            assert (await verified(service))["problems"] == []
        await changed(service, "UPDATE users SET role = 'admin' WHERE email = 'vera@acme.example'")
        assert "the log says `vera@acme.example`, `viewer`" in (await verified(service))["problems"][0]


async def test_records_wait_for_the_detectors(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        assert await retention_of(service).clean(service.clock()) == 0
        assert await cleaned(service) > 0


async def test_what_was_signed_by_a_clock_that_was_ahead_holds_nothing_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        service.clock.advance(-40 * DAY)
        await call(service, 6, "look")
        service.clock.advance(4000 * DAY)
        await call(service, 7, "look")
        await signed(service)
        service.clock.advance(-4000 * DAY)
        await call(service, 8, "look")
        await signed(service)
        service.clock.advance(40 * DAY)
        before = await log_of(service)
        assert await cleaned(service) == len(before) + 4
        assert (await verified(service))["problems"] == []


async def test_a_clock_that_is_behind_lets_nothing_young_go(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await call(service, 6, "look")
        await signed(service)
        service.clock.advance(-80 * DAY)
        await call(service, 7, "look")
        await signed(service)
        service.clock.advance(80 * DAY)
        await cleaned(service)
        assert [type for _, _, type in await log_of(service)] == ["decision", "decision", "audit.dropped"]
        assert (await verified(service))["problems"] == []
