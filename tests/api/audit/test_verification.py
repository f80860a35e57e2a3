"""What `verify` finds: whatever is changed, cut off or put in, with the database open to the attacker."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.audit.checkpoints import Checkpointer, KeyDiffers
from api.audit.installation_key import InstallationKey, installation_key
from api.audit.verification import Expectation
from api.bootstrap import prepare
from api.database import audit_chain
from api.settings import SettingsError, load
from api.store.notifications import channels
from tests.harness.application import Service, settings_for
from tests.harness.dropping import changed, rekeyed, signed, verified
from tests.harness.policy_bodies import on_tool

AT = "2026-01-31T09:30:00Z"
POLICIES = [
    on_tool("Ask first", "require_approval", "pay"),
    on_tool("No wipes", "block", "wipe"),
]


HELD: dict[str, Any] = {
    "toolCallId": "c-3",
    "toolName": "pay",
    "inputPayload": {"amount": 9},
    "timestamp": AT,
}


@contextlib.asynccontextmanager
async def serving(folder: Path, live: bool = False) -> AsyncIterator[Service]:
    async with Service(folder, POLICIES, live=live) as service:
        await service.report("agent", 1, "run.started", task="pay the bills")
        await service.report("agent", 2, "tool.called", toolCallId="c-1", toolName="look", inputPayload={})
        await service.report("agent", 3, "tool.called", toolCallId="c-2", toolName="wipe", inputPayload={})
        held = await service.report("agent", 4, "tool.called", **HELD)
        path = f"/v1/approvals/{held.json()['approvalId']}/reject"
        await service.call("reviewer", "POST", path, {"reason": "no"})
        await service.report("agent", 5, "tool.completed", toolCallId="c-1", outputPayload={})
        await service.call("admin", "POST", "/v1/halt", {"agentId": "robot"})
        for number, events in enumerate((["tool.blocked"], ["run.failed"], ["run.failed"])):
            body = {"url": f"https://hooks.example/{number}", "events": events, "enabled": number == 0}
            hook = (await service.call("admin", "POST", "/v1/webhooks", body)).json()
        await service.call("admin", "DELETE", f"/v1/webhooks/{hook['webhookId']}")
        chat = {"type": "slack", "secret": "hook", "events": ["agent.halted"]}
        for wanted in ({"ops": chat, "gone": chat}, {"ops": chat | {"groupSeconds": 5}}):
            await service.context.writer.write(partial(channels.sync, **_wanted(wanted)))
        await signed(service)
        yield service


def _wanted(wanted: dict[str, Any]) -> dict[str, Any]:
    return {"organisation_id": "default", "wanted": wanted, "actor": "admin@acme.example"}


async def test_what_is_untouched_is_valid_and_what_is_newer_is_unsigned(tmp_path: Path) -> None:
    async with serving(tmp_path, live=True) as service:
        found = await verified(service)
        assert (found["valid"], found["problems"], found["unsigned"]) == (True, [], 0)
        assert found["signed"] == found["count"] > 0
        assert found["keyId"] == service.context.audit_key.public.key_id
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        found = await verified(service)
        assert (found["valid"], found["unsigned"]) == (True, 1)
        answer = await service.call("admin", "GET", "/v1/audit/verify")
        assert answer.json()["valid"] is True


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM audit", "are gone"),
        ("DELETE FROM audit WHERE organisation_id = 'default' AND sequence > 6", "at the end, are gone"),
        ("UPDATE checkpoints SET body = replace(body, '\"number\":1', '\"number\":2')", "was changed"),
        ("UPDATE checkpoints SET signature = '00'", "signature does not hold"),
        ("UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET tool_name = 'look' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET payload_digest = 'x' WHERE tool_call_id = 'c-1'", "says something else"),
        ("DELETE FROM tool_calls WHERE tool_call_id = 'c-2'", "is gone"),
        ("UPDATE tool_calls SET audit_id = 'aud_x' WHERE tool_call_id = 'c-2'", "never decided by this log"),
        ("UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-3'", "`allowed` in the database"),
        ("UPDATE approvals SET status = 'approved'", "the log says `rejected`"),
        ("UPDATE tool_calls SET reason = 'fine' WHERE tool_call_id = 'c-1'", "says something else"),
        ("UPDATE tool_calls SET blocked_reason = 'x' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET matched = '[]' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET action = 'warn' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET policy_digest = 'x' WHERE tool_call_id = 'c-2'", "says something else"),
        (
            'UPDATE tool_calls SET facts = \'{"user":{"id":"boss"}}\' WHERE tool_call_id = \'c-2\'',
            "says something else",
        ),
        ("UPDATE runs SET agent_id = 'ceo'", "the run `run-1` is of another agent or API key"),
        ("UPDATE runs SET key_id = 'key_x'", "the run `run-1` is of another agent or API key"),
        ("DELETE FROM runs", "the run `run-1` is of another agent or API key"),
        ("UPDATE approvals SET reason = 'harmless'", "the log says `run-1`, `mailer`, `c-3`, `pay`"),
        ("UPDATE webhooks SET url = 'https://evil.example/x'", "`https://evil.example`"),
        ("UPDATE webhooks SET events = '[]'", "webhook"),
        ("UPDATE webhooks SET enabled = 0", "the log says `https://hooks.example`"),
        ("UPDATE webhooks SET config = '{}' WHERE kind <> 'webhook'", "the channel `chn_"),
        ("DELETE FROM webhooks WHERE kind <> 'webhook'", "the channel `chn_"),
        ("DELETE FROM webhooks", "is in the log, but gone from the database"),
        ("UPDATE approvals SET actor = 'boss@example.com'", "`boss@example.com`"),
        ("UPDATE approvals SET decision_reason = 'yes'", "the log says `rejected`"),
        (
            "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), ':9', ':1') AS BLOB)",
            "the body of event",
        ),
        ("UPDATE events SET event_id = 'event-9' WHERE event_id = 'event-5'", "was never recorded"),
        ("UPDATE users SET role = 'admin'", "the log says `vera@acme.example`, `viewer`"),
        ("UPDATE users SET enabled = 0", "`False` in the database; the log says"),
        ("DELETE FROM policy_versions WHERE policy_id = 'no-wipes'", "`no-wipes 1` is in the log, but gone"),
        (
            "UPDATE policy_versions SET digest = 'x' WHERE policy_id = 'no-wipes'",
            "`no-wipes 1` is `x` in the database",
        ),
        (
            "UPDATE policy_versions SET version = 7 WHERE policy_id = 'no-wipes'",
            "`no-wipes 7` is in the database, but not in the log",
        ),
        ("DELETE FROM approvals", "is in the log, but gone from the database"),
        (
            "UPDATE approvals SET status = 'approved', resolved_at = '9999-01-01T00:00:00.000000Z'",
            "the log says `rejected`",
        ),
        ("DELETE FROM users WHERE role = 'viewer'", "is in the log, but gone"),
        ("UPDATE users SET email = 'x@example.com' WHERE role = 'viewer'", "`x@example.com`"),
        ("UPDATE api_keys SET agent_id = 'ceo'", "API key"),
        ("UPDATE api_keys SET user_id = 'ceo'", "API key"),
        ("UPDATE api_keys SET scopes = '[\"admin\"]'", "API key"),
        ("UPDATE api_keys SET expires_at = '2100-01-01T00:00:00.000000Z'", "API key"),
        ("UPDATE halts SET ended_at = created_at", "the log says `agent`, `robot`, `False`"),
        ("DELETE FROM halts", "halt"),
        ("UPDATE blobs SET content = CAST('x' AS BLOB)", "archived text"),
    ],
)
async def test_what_was_changed_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    async with serving(tmp_path, live=True) as service:
        await changed(service, statement)
        found = await verified(service)
        assert found["valid"] is False
        assert any(problem in each for each in found["problems"]), found["problems"]


async def computed_anew(service: Service) -> None:
    """What an attacker does who knows how the chain is made, but not the key."""

    def forge(transaction: Any) -> None:
        store = transaction.store
        previous = audit_chain.GENESIS
        rows = store.rows(
            "SELECT sequence, record FROM audit WHERE organisation_id = 'default' ORDER BY sequence"
        )
        for sequence, text in rows:
            record = json.loads(text) | {"previousHash": previous}
            if record.get("decision") == "blocked":
                record["reason"] = "nothing to see here"
            text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            previous = audit_chain.link(json.loads(text))
            store.rows_changed(
                "UPDATE audit SET record = ?, hash = ? WHERE organisation_id = 'default' AND sequence = ?",
                (text, previous, sequence),
            )

    await service.context.writer.write(forge)


async def test_a_chain_that_was_computed_anew_is_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await computed_anew(service)
        found = await verified(service)
        assert found["firstBroken"] is None
        assert "computed anew" in found["problems"][0]


async def test_with_all_checkpoints_gone_what_was_noted_elsewhere_decides(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        noted = await verified(service)
        await computed_anew(service)
        await changed(
            service,
            "DELETE FROM checkpoints",
            "UPDATE tool_calls SET reason = 'nothing to see here', blocked_reason = 'nothing to see here'"
            " WHERE tool_call_id = 'c-2'",
        )
        found = await verified(service)
        assert found["valid"] and "somebody took them away" in found["notes"][0]
        found = await verified(service, expected=Expectation(noted["count"], noted["lastHash"]))
        assert "that was noted" in found["problems"][0]
        await changed(service, "DELETE FROM audit WHERE sequence > 5")
        found = await verified(service, expected=Expectation(noted["count"]))
        assert any("were noted" in each for each in found["problems"])


async def test_a_forger_with_a_key_of_their_own_is_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await computed_anew(service)
        await changed(service, "DELETE FROM checkpoints")
        forger = Checkpointer(InstallationKey(b"f" * 32))
        await service.context.writer.write(forger.sign)
        found = await verified(service)
        assert "signed with another key" in found["problems"][0]


async def test_a_node_with_another_key_leaves_signing_to_the_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        service.clock.advance(2)
        with pytest.raises(KeyDiffers):
            await service.context.writer.write(Checkpointer(InstallationKey(b"o" * 32)).sign)
        found = await verified(service)
        assert (found["valid"], found["unsigned"]) == (True, 1)


async def test_a_checkpoint_names_only_what_has_grown_and_one_comes_a_second(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        one, two = Checkpointer(service.context.audit_key), Checkpointer(service.context.audit_key)
        write = service.context.writer.write
        assert await write(one.sign) is None, "less than a second ago"
        service.clock.advance(2)
        await service.report("agent", 6, "tool.called", toolCallId="c-4", toolName="look", inputPayload={})
        first = await write(one.sign)
        assert set(first.read().chains) == {"default", "other"}, "a new process signs all it finds"
        assert await write(two.sign) is None
        service.clock.advance(2)
        assert await write(one.sign) is None, "nothing is new"
        await service.report("agent", 7, "tool.called", toolCallId="c-5", toolName="look", inputPayload={})
        second = await write(one.sign)
        assert set(second.read().chains) == {"default"}
        assert (second.number, second.read().previous) == (first.number + 1, first.digest)
        assert (await verified(service))["unsigned"] == 0


async def test_a_stored_answer_is_held_against_its_record(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        await changed(
            service,
            "UPDATE events SET receipt = CAST("
            "replace(CAST(receipt AS TEXT), 'awaiting_approval', 'allowed') AS BLOB)",
        )
        again = await service.report("agent", 4, "tool.called", **HELD)
        assert again.json()["toolCallStatus"] == "blocked"
        assert "the stored answer is not the one of its record" in again.json()["reason"]


def test_nodes_share_the_key_of_a_named_file(tmp_path: Path) -> None:
    named = tmp_path / "keys" / "audit"
    for folder in ("one", "two"):
        settings = load({"GOVERNANCE_AUDIT_KEY_FILE": str(named)}, data_dir=str(tmp_path / folder))
        key = installation_key(settings)
        assert named.read_text().strip() and key.public == installation_key(settings).public
    named.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        installation_key(settings)
    named.chmod(0o600)
    named.write_text("no key\n")
    with pytest.raises(SettingsError, match="32 bytes in hexadecimal"):
        installation_key(settings)


@pytest.mark.parametrize("setting", [True, False])
def test_a_key_file_that_is_gone_is_not_made_anew_while_the_log_is_signed(
    tmp_path: Path, setting: bool
) -> None:
    named = tmp_path / "keys" / "audit" if setting else tmp_path / "data" / "audit-key"
    environment = {"GOVERNANCE_AUDIT_KEY_FILE": str(named)} if setting else {}

    async def start() -> None:
        async with Service(tmp_path, POLICIES, environment=environment) as service:
            await signed(service)

    asyncio.run(start())
    named.unlink()
    with pytest.raises(
        AssertionError, match=r"(keys/audit|data/audit-key).*put the file back .*audit rekey --lost"
    ):
        asyncio.run(start())
    with pytest.raises(SettingsError, match="audit rekey --lost"):
        prepare(settings_for(tmp_path, **environment))
    assert not named.exists()


async def test_whoever_was_handed_over_from_signs_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        before, write = service.context.audit_key, service.context.writer.write
        new = await rekeyed(service)
        service.clock.advance(2)
        with pytest.raises(KeyDiffers):
            await write(Checkpointer(before).sign)
        assert await write(Checkpointer(new).sign) is not None
        for trusted in (before.public, new.public):
            found = await verified(service, trusted=(trusted,))
            assert (found["valid"], len(found["notes"])) == (True, 1)
        # Who has the old key alone cannot write a history of before.
        await changed(service, "DELETE FROM checkpoints WHERE number > 1")
        found = await verified(service, trusted=(new.public,))
        assert "signed with another key" in found["problems"][0]


async def test_a_clock_that_goes_back_is_no_sign_of_tampering(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        service.clock.advance(-3600)
        for number in range(6, 9):
            await service.report("agent", number, "tool.called", toolCallId=f"c-{number}", toolName="look")
            service.clock.advance(-60)
        found = await verified(service)
        assert found["problems"] == []


async def test_a_policy_change_and_a_doubted_decision_leave_the_log_valid(tmp_path: Path) -> None:
    async with serving(tmp_path, live=True) as service:
        await service.answered("admin", "PATCH", "/v1/policies/no-wipes", {"action": "warn"})
        assert (await verified(service))["problems"] == []
        await changed(service, "UPDATE tool_calls SET status = 'allowed' WHERE tool_call_id = 'c-2'")
        again = await service.report("agent", 9, "tool.called", toolCallId="c-2", toolName="wipe")
        assert again.json()["toolCallStatus"] == "blocked"
        await changed(service, "UPDATE tool_calls SET status = 'blocked' WHERE tool_call_id = 'c-2'")
        assert (await verified(service))["problems"] == []
