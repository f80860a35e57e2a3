"""A copy of the database that lacks the last commits gives their numbers again: memory is not believed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from api.ingestion.pipeline import Ingestion
from tests.api.database.lanes.test_dispatch import AT, Lanes, became, lanes, look, post, serving

__all__ = ["lanes"]

pytestmark = pytest.mark.postgres

CHANGES = {
    "organisation": "organisation_id = 'another'",
    "id": "run_id = 'another'",
    "agent": "agent_id = 'another'",
    "key": "key_id = 'another'",
    "start": "started_at = '2026-01-31T09:29:59Z'",
}


def told(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement)  # type: ignore[call-overload]
        return found.fetchall() if found.description else []


@pytest.mark.parametrize("what", CHANGES)
async def test_a_number_that_is_another_run_s(
    what: str, tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    async with serving(tmp_path, postgres_url, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200
        told(postgres_url, f"UPDATE runs SET {CHANGES[what]} WHERE run_id = 'run-1'")
        await post(running, look(2))
        assert lanes.failed == 1, "what was remembered is asked for"
        calls = told(
            postgres_url,
            "SELECT c.tool_call_id, r.organisation_id = c.organisation_id AND r.run_id = 'run-1'"
            " FROM tool_calls c JOIN runs r USING (run_no) WHERE c.tool_call_id = 'c2'",
        )
        assert calls in ([("c2", True)], []), "a refusal, or a run of its own"


async def test_a_number_that_is_another_call_s(tmp_path: Path, postgres_url: str, lanes: Lanes) -> None:
    async with serving(tmp_path, postgres_url, whole=False) as running:
        assert (await post(running, look(1))).status_code == 200
        told(postgres_url, "UPDATE tool_calls SET tool_call_id = 'another' WHERE tool_call_id = 'c1'")
        await post(running, became("c1", "tool.completed", toolCallId="c1"))
        assert lanes.failed == 1
        assert told(postgres_url, "SELECT completed_at FROM tool_calls WHERE tool_call_id = 'another'") == [
            (None,)
        ]


async def test_after_a_loss_nothing_is_remembered(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets: list[int] = []
    forget = Ingestion.forget

    def counted(ingestion: Ingestion) -> None:
        forgets.append(len(ingestion._known_runs._runs))
        forget(ingestion)

    monkeypatch.setattr(Ingestion, "forget", counted)
    async with serving(tmp_path, postgres_url) as running:
        assert (await post(running, look(1))).status_code == 200
        before = len(forgets)
        told(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        for _ in range(500):
            await post(running, look("again"))
            if len(forgets) > before:
                break
            await asyncio.sleep(0.02)
        assert forgets[before] == 1, "what it knew is gone before a lane decides anything"


async def test_the_time_of_a_start_is_the_same_in_memory(
    tmp_path: Path, postgres_url: str, lanes: Lanes
) -> None:
    """With nothing lost, what is remembered holds."""
    async with serving(tmp_path, postgres_url) as running:
        for number in range(5):
            assert (await post(running, look(number))).status_code == 200
            assert (await post(running, became(number, "tool.completed", toolCallId=f"c{number}"))).is_success
        assert lanes.failed == 0 and lanes.committed >= 10
        assert told(postgres_url, f"SELECT count(*) FROM tool_calls WHERE completed_at >= '{AT}'") == [(5,)]
