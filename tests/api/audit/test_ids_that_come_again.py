"""Ids of events that retention has deleted may come again, for other events; the log stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.retention.cleaning import Retention, clean
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import DAY, changed, cleaned, log_of, signed, verified

YEAR = 365 * 86_400


async def test_the_log_is_whole_and_old_records_go(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.retention.cleaning.BATCH_PAUSE", 0.0)
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": str(YEAR)}
    async with Service(tmp_path, POLICIES, live=True, environment=environment) as service:
        context = service.context
        await service.report("agent", 1, "custom.note", text="the first")
        await service.report("agent", 2, "custom.note", text="the last of its day")
        await signed(service)
        service.clock.advance(3 * DAY)
        await clean(Retention(1, 0), context.id_index, context.writer, service.clock())
        again = await service.report("agent", 1, "custom.note", runId="run-2", text="another one")
        assert again.status_code == 200 and "idempotent-replay" not in again.headers
        await signed(service)
        assert (await verified(service))["problems"] == []
        before = await log_of(service)
        service.clock.advance(40 * DAY)
        assert await cleaned(service) >= len(before)
        assert (await verified(service))["problems"] == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'another', 'any') AS BLOB)",
            "the body of event `event-1`",
        ),
        ("UPDATE events SET body = replace(body, 'another', 'any')", "the body of event `event-1`"),
        ("UPDATE events SET received_at = '2100-01-02T00:00:00.000000Z'", "was never recorded by this log"),
    ],
)
async def test_what_was_changed_is_found_all_the_same(
    tmp_path: Path, statement: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.retention.cleaning.BATCH_PAUSE", 0.0)
    async with Service(tmp_path, POLICIES, environment={"GOVERNANCE_TOKEN_SECONDS": str(YEAR)}) as service:
        context = service.context
        await service.report("agent", 1, "custom.note", text="the first")
        await service.report("agent", 2, "custom.note", text="the last of its day")
        service.clock.advance(3 * DAY)
        await clean(Retention(1, 0), context.id_index, context.writer, service.clock())
        await service.report("agent", 1, "custom.note", text="another one")
        assert (await verified(service))["problems"] == []
        await changed(service, f"{statement} WHERE event_id = 'event-1'")
        problems = (await verified(service))["problems"]
        assert any(problem in each for each in problems), problems
