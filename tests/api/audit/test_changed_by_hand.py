"""What somebody has changed so that it cannot be read any more is found as any other change is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.audit.test_verification import serving
from tests.harness.dropping import changed, verified


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE tool_calls SET facts = '[]' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET facts = '{\"user\":1}' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE tool_calls SET matched = 'x' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE approvals SET given = '{}'", "the approvers so far of approval"),
        ("UPDATE webhooks SET events = ''", "the webhook"),
        ("UPDATE webhooks SET url = 'http://[::1'", "`http://[::1`"),
        ("UPDATE webhooks SET kind = 'x', config = NULL", "the channel"),
        ("UPDATE api_keys SET scopes = 'admin'", "the API key"),
        *[
            (f"UPDATE audit SET {column} = x'ff00' WHERE sequence = 4", "was changed, or does not follow")
            for column in ("sequence", "audit_id", "at", "type", "run_id", "user_id", "record", "hash")
        ],
        *[
            (f"UPDATE audit SET {column} = CAST(x'ff' AS TEXT) WHERE sequence = 4", "was changed")
            for column in ("audit_id", "at", "type", "record", "hash")
        ],
        ("UPDATE tool_calls SET facts = CAST(x'ff' AS TEXT)", "says something else"),
        ("UPDATE checkpoints SET body = CAST(x'ff' AS TEXT)", "was changed"),
        ("UPDATE webhooks SET url = CAST(x'ff' AS TEXT)", "the webhook"),
        ("UPDATE audit SET chain = 'x' WHERE sequence = 4", "name `x` as their chain"),
        ("UPDATE checkpoints SET body = x'ff00'", "was changed"),
        ("UPDATE checkpoints SET body = CAST(body AS BLOB)", "was changed"),
        ("UPDATE checkpoints SET signature = x'ff00'", "signature does not hold"),
        ("UPDATE blobs SET content = 'x'", "archived text"),
        ("UPDATE blobs SET content = 1.5", "archived text"),
        ("UPDATE events SET body = 1.5 WHERE event_id = 'event-5'", "the body of event"),
        ("UPDATE approvals SET approval_id = x'ff00'", "in the database, but not in the log"),
        ("UPDATE tool_calls SET payload_digest = x'ff00' WHERE tool_call_id = 'c-2'", "says something else"),
        ("UPDATE webhooks SET config = x'ff00' WHERE kind <> 'webhook'", "the channel"),
    ],
)
async def test_what_cannot_be_read_is_said_to_be_changed(
    tmp_path: Path, statement: str, problem: str
) -> None:
    async with serving(tmp_path, live=True) as service:
        await changed(service, statement)
        found = await verified(service)
        assert found["valid"] is False
        assert any(problem in each for each in found["problems"]), found["problems"]
        answer = await service.call("admin", "GET", "/v1/audit/verify")
        assert answer.status_code == 200 and answer.json()["valid"] is False
