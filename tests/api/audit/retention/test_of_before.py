"""What versions of before have recorded, and certified, says less; a database of theirs stays valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from api.audit.retention import carried
from api.audit.testimony import CARRIED_SINCE, NOTED_SINCE
from api.database.transaction import Transaction
from api.store import accounts
from api.store.tools import proposals
from engine.canonical_json import canonical_json
from tests.api.audit.test_verification import POLICIES
from tests.api.audit.test_what_decides import RULE
from tests.harness.application import Service
from tests.harness.dropping import DAY, changed, cleaned, signed, verified

TOOLS = [{"name": f"tool-{number}", "definition": f"{number:064x}"} for number in range(60)]
ENVIRONMENT = {"GOVERNANCE_TOKEN_SECONDS": str(365 * 86_400)}
body_of, record = carried.body_of, proposals._record


def _body_of_before(*told: Any) -> bytes:
    body = json.loads(body_of(*told))
    body["said"] = [said for said in body["said"] if said[0] not in NOTED_SINCE | CARRIED_SINCE]
    del body["words"]
    return canonical_json(body)


@contextmanager
def before() -> Iterator[None]:
    """What is recorded and certified now is as it was before."""

    def named(transaction: Transaction, type: str, *whose: Any) -> None:
        *whose, tools = whose
        whole = len(tools) == proposals.MOST_NAMED
        if type != "tools.admitted" or whole:  # there was one record, which names no more
            record(transaction, type, *whose, [*tools, *TOOLS[proposals.MOST_NAMED :]] if whole else tools)

    with (
        mock.patch.object(accounts, "kept", lambda credential: {}),
        mock.patch.object(proposals, "_record", named),
        mock.patch.object(carried, "body_of", _body_of_before),
    ):
        yield


async def asked(service: Service, method: str, path: str, body: Any = None, who: str = "admin") -> Any:
    answer = await service.call(who, method, path, body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


async def furnished(service: Service) -> None:
    """A rule for user tokens, a policy in its second version, a halt, and 60 tools admitted at once."""
    await asked(service, "PUT", "/v1/organisation", {"name": "Default", "userToken": RULE})
    await asked(service, "PATCH", "/v1/policies/no-wipes", {"enabled": False})
    await asked(service, "POST", "/v1/halt", {"agentId": "robot", "reason": "it talks"})
    told = await asked(service, "POST", "/v1/tool-proposals", {"server": "git", "tools": TOOLS}, "agent")
    path = f"/v1/tool-proposals/{told['proposalId']}/admit"
    await asked(service, "POST", path, {"digest": told["digest"]})
    await signed(service)
    service.clock.advance(40 * DAY)
    await asked(service, "PATCH", "/v1/policies/ask-first", {"enabled": True, "action": "block"})
    await signed(service)


async def assert_valid(service: Service) -> None:
    assert (await verified(service))["problems"] == []


async def played(folder: Path, database_url: str, dropped: bool, *statements: str) -> list[str]:
    """What is found after `statements` in a database of before, whose records were `dropped` then, or are
    dropped now."""
    environment = ENVIRONMENT | {"GOVERNANCE_DATABASE_URL": database_url}
    async with Service(folder, POLICIES, live=True, environment=environment) as service:
        with before():
            await furnished(service)
            if dropped:
                assert await cleaned(service) > 0
        await assert_valid(service)
        if not dropped:
            assert await cleaned(service) > 0
            await assert_valid(service)
        await asked(service, "POST", "/v1/resume", {"agentId": "robot", "reason": "it is quiet"})
        await asked(service, "PATCH", "/v1/policies/no-wipes", {"enabled": True})
        await asked(service, "DELETE", "/v1/policies/ask-first")
        await assert_valid(service)
        await signed(service)
        service.clock.advance(40 * DAY)
        await service.report("agent", 9, "tool.called", toolCallId="c-9", toolName="look")
        await signed(service)
        assert await cleaned(service) > 0
        await assert_valid(service)
        for statement in statements:
            await changed(service, statement)
        found: list[str] = (await verified(service))["problems"]
        return found


@pytest.mark.parametrize("dropped", [True, False], ids=["dropped-before", "dropped-now"])
async def test_an_honest_database_of_before_is_valid(
    tmp_path: Path, database_url: str, dropped: bool
) -> None:
    assert await played(tmp_path, database_url, dropped) == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE policy_files SET version = 2 WHERE document_id = 'no-wipes'", "in force `policy no-wipes`"),
        ("UPDATE policy_versions SET archived_by = 'x' WHERE version = 2", "ending of policy version"),
        ("UPDATE policy_files SET document_id = 'x', path = 'policies/x.yaml' WHERE version = 3", "policy x"),
        ("UPDATE tool_definitions SET definition = 'x' WHERE tool_name = 'tool-1'", "`git > tool-1`"),
    ],
)
async def test_what_is_known_of_such_a_database_is_compared(
    tmp_path: Path, statement: str, problem: str
) -> None:
    found = await played(tmp_path, "", False, statement)
    assert any(problem in each for each in found), found
