"""What somebody changes in the database of what decides, who may come in, or what people are shown is found.

Policies in force and before, credentials, the rule for user tokens, tools, approvals, changes, halts.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from api.audit.verification import verify
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import changed, signed, verified

SETTINGS = {"settings": {"changes": {"approvers": 2}}}
RULE = {"algorithm": "HS256", "key": "a secret of 32 bytes or more, as RFC 7518 asks"}
BACK = (
    "INSERT INTO policy_changes (revision, path, at, kind, organisation_id, document_id, digest, version,"
    " created_at, updated_at, source, author)"
    " SELECT revision + 1, path, at, kind, {organisation},"
    " document_id, (SELECT digest FROM policy_versions WHERE policy_id = 'no-wipes' AND version = 2), 2,"
    " created_at, updated_at, source, author FROM policy_changes"
    " WHERE document_id = 'no-wipes' AND version = 3"
)
"""The next revision puts back the version in which the policy was switched off."""
IN_FORCE = "the document in force `policy no-wipes`"
REVISIONS = "the revisions of document `policy no-wipes`"


async def _furnished(service: Service) -> None:
    for enabled in (False, True):
        body = {"enabled": enabled}
        await service.answered("admin", "PATCH", "/v1/policies/no-wipes", body)
    await service.answered("admin", "PUT", "/v1/organisation", {"name": "Default", "userToken": RULE})
    pay = {"toolCallId": "c-1", "toolName": "pay", "inputPayload": {"amount": 9}}
    answer = await service.report("agent", 1, "tool.called", **pay)
    assert answer.json()["toolCallStatus"] == "awaiting_approval"
    await service.call("admin", "POST", "/v1/halt", {"agentId": "robot", "reason": "it talks"})
    tools = [{"name": f"tool-{number}", "definition": f"{number:064x}"} for number in range(60)]
    told = (
        await service.call("agent", "POST", "/v1/tool-proposals", {"server": "git", "tools": tools})
    ).json()
    names = {"digest": told["digest"], "tools": [tool["name"] for tool in tools]}
    path = f"/v1/tool-proposals/{told['proposalId']}/admit"
    await service.answered("admin", "POST", path, names)
    answer = await service.call("admin", "PUT", "/v1/organisation/settings", SETTINGS)
    assert answer.status_code < 300, answer.text
    await service.answered("admin", "PATCH", "/v1/policies/ask-first", {"enabled": False}, status=202)
    service.clock.advance(5)
    await service.report("agent", 2, "tool.called", toolCallId="c-2", toolName="look", inputPayload={})
    await signed(service)


def found_of(folder: Path, *statements: str, **environment: str) -> dict[str, Any]:
    async def play() -> dict[str, Any]:
        async with Service(folder, POLICIES, live=True, environment=environment) as service:
            await _furnished(service)
            before = await verified(service)
            assert (before["valid"], before["problems"], before["notes"]) == (True, [], [])
            await changed(service, *statements)
            return await verified(service)

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (BACK.format(organisation="organisation_id"), REVISIONS),
        (BACK.format(organisation="'ghost'"), REVISIONS),
        ("UPDATE policy_files SET version = 2 WHERE document_id = 'no-wipes'", IN_FORCE),
        ("UPDATE policy_files SET digest = 'x' WHERE document_id = 'no-wipes'", IN_FORCE),
        ("UPDATE policy_files SET kind = 'preset' WHERE document_id = 'no-wipes'", IN_FORCE),
        ("UPDATE policy_files SET path = 'organisations/x/no-wipes.yaml' WHERE version = 3", IN_FORCE),
        ("UPDATE policy_files SET path = 'policies/_.txt' WHERE version = 3", "policies/_.txt"),
        ("DELETE FROM policy_files WHERE document_id = 'no-wipes'", IN_FORCE),
        ("DELETE FROM policy_changes WHERE version = 2", REVISIONS),
        ("UPDATE policy_changes SET author = 'x' WHERE version = 2", REVISIONS),
        ("DELETE FROM blobs", "of a policy is gone"),
        ("UPDATE policy_files SET digest = 'x' WHERE kind = 'settings'", "in force `settings default`"),
        ("UPDATE policy_versions SET state = '{}' WHERE version = 2", "shown state of policy version"),
        ("UPDATE policy_versions SET created_by = 'x' WHERE version = 2", "origin of policy version"),
        ("UPDATE policy_versions SET revision = 9 WHERE version = 2", "origin of policy version"),
        ("UPDATE policy_versions SET archived_by = 'x' WHERE version = 2", "ending of policy version"),
        ("UPDATE policy_versions SET deleted = TRUE WHERE version = 3", "ending of policy version"),
        ("UPDATE api_keys SET digest = 'x' WHERE name = 'agent'", "the credential `key_"),
        ("UPDATE users SET password_hash = 'x' WHERE role = 'viewer'", "the credential `usr_"),
        ("UPDATE organisations SET user_token = '{}'", "the rule for the user tokens"),
        ("UPDATE organisations SET user_token = NULL", "the rule for the user tokens"),
        ("UPDATE tool_definitions SET definition = 'x' WHERE tool_name = 'tool-59'", "`git > tool-59`"),
        ("DELETE FROM tool_definitions WHERE tool_name = 'tool-1'", "`git > tool-1`"),
        ("UPDATE tool_definitions SET admitted_by = 'x' WHERE tool_name = 'tool-1'", "`git > tool-1`"),
        ("UPDATE approvals SET about = NULL", "what reviewers are told of approval"),
        ("UPDATE approvals SET asked_by = '[]'", "what reviewers are told of approval"),
        ("UPDATE approvals SET policy_name = 'x'", "what reviewers are told of approval"),
        ("UPDATE held_changes SET shown = '{}'", "the content of change"),
        ("UPDATE held_changes SET requested_by_id = 'x'", "the content of change"),
        ("UPDATE held_changes SET request = 'x'", "the request of change"),
        ("UPDATE halts SET reason = 'x'", "the words of halt"),
        ("UPDATE halts SET created_by = 'x'", "the words of halt"),
        ("UPDATE tool_calls SET event_no = event_no + 1 WHERE tool_call_id = 'c-1'", "something else than"),
        ("UPDATE tool_calls SET decided_at = '2000' WHERE tool_call_id = 'c-1'", "something else than"),
    ],
)
def test_what_was_changed_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    found = found_of(tmp_path, statement)
    assert found["valid"] is False
    assert any(problem in each for each in found["problems"]), found["problems"]


@pytest.mark.postgres
def test_a_policy_that_was_put_back_is_found_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    statement = BACK.format(organisation="'ghost'")
    found = found_of(tmp_path, statement, GOVERNANCE_DATABASE_URL=postgres_url)
    assert [REVISIONS in each for each in found["problems"]] == [True]


def test_a_rule_that_was_never_made_is_found(tmp_path: Path) -> None:
    statement = f"UPDATE organisations SET user_token = '{json.dumps(RULE)}' WHERE organisation_id = 'other'"

    async def play() -> dict[str, Any]:
        async with Service(tmp_path, POLICIES) as service:
            await changed(service, statement)
            context = service.context
            return await context.store.read(lambda: verify(context.store, "other"))

    assert asyncio.run(play())["problems"][0].startswith(
        "the rule for the user tokens of organisation `other`"
    )


def test_events_that_are_gone_are_told(tmp_path: Path) -> None:
    found = found_of(tmp_path, "DELETE FROM events")
    assert found["valid"] is True  # as after retention
    assert found["notes"] == [
        "of 2 events only the records are left, the newest of 2100-01-01T00:00:05.000000Z: by"
        " GOVERNANCE_EVENT_DAYS old ones go, and newer ones can only have been deleted by hand"
    ]


async def test_what_comes_and_goes_by_files_is_as_the_log_says(tmp_path: Path) -> None:
    async with Service(tmp_path, POLICIES, live=True) as service:
        answer = await service.call("admin", "DELETE", "/v1/policies/no-wipes")
        assert answer.status_code < 300
        await service.answered("admin", "POST", "/v1/policies/no-wipes/rollback", {"version": 1})
        folder = service.settings.policies_dir / "policies"
        (folder / "deep").mkdir()
        (folder / "no-wipes.yaml").rename(folder / "deep" / "no-wipes.yaml")
        for _ in range(100):
            await asyncio.sleep(0.1)
            paths = await service.context.store.read(
                lambda: service.context.store.rows("SELECT path FROM policy_files")
            )
            if ("policies/deep/no-wipes.yaml",) in paths:
                break
        else:
            raise AssertionError(paths)
        await service.answered("admin", "PATCH", "/v1/policies/no-wipes", {"enabled": False})
        assert (await verified(service))["problems"] == []


async def test_tools_of_servers_with_blanks_in_their_names_are_not_mistaken(tmp_path: Path) -> None:
    async with Service(tmp_path, POLICIES, live=True) as service:
        for number, (server, tool) in enumerate((("git hub", "push"), ("git", "hub push"))):
            told = {"server": server, "tools": [{"name": tool, "definition": f"{number:064x}"}]}
            made = (await service.call("agent", "POST", "/v1/tool-proposals", told)).json()
            path = f"/v1/tool-proposals/{made['proposalId']}/admit"
            await service.answered("admin", "POST", path, {"digest": made["digest"]})
        assert (await verified(service))["problems"] == []
        await changed(service, "DELETE FROM tool_definitions WHERE server = 'git hub'")
        (found,) = (await verified(service))["problems"]
        assert "`git hub > push` is in the log, but gone" in found
