"""One call of a run is found by its id, however many the run has: while they are flushed, after a restart, by
a process that only reads, on either database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.database import id_index
from api.database.id_index import IdIndex
from api.database.models import CallTable, Run
from api.store import recorded_calls
from tests.harness.application import Service


async def test_one_call_is_found_among_many(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_index, "MEMTABLE_ENTRIES", 20)
    monkeypatch.setattr(id_index, "FLUSHED_AT_ONCE", 6)
    async with Service(tmp_path, [], database=database_url) as service:
        store, own = service.context.store, service.context.id_index
        for number in range(60):
            for run in ("r", "s"):
                call = {"runId": run, "toolCallId": f"{run}-{number}", "toolName": "read"}
                said = {"reason": f"{run} {number}"}
                await service.report("agent", f"{run}{number}", "tool.called", **call, **said)
            for index in (own, IdIndex(store)):
                for known in {0, number // 2, number}:
                    found = await store.read(
                        recorded_calls.asserted_of_call, index, "default", "r", f"r-{known}"
                    )
                    assert found == {"reason": f"r {known}"}
                for unknown in ("s-0", f"r-{number + 1}"):
                    found = await store.read(recorded_calls.asserted_of_call, index, "default", "r", unknown)
                    assert found is None


async def test_no_more_of_its_run_is_read(tmp_path: Path) -> None:
    async with Service(tmp_path, []) as service:
        await service.report("agent", 1, "tool.called", toolCallId="c-1", toolName="read")
        store, index = service.context.store, service.context.id_index

        def planned() -> str:
            run = Run.get(Run.run_id == "run-1")
            query: Any = CallTable.select(CallTable.call_no).where(index.call_of(run, "c-1"))
            statement, parameters = query.sql()
            return str(store.rows(f"EXPLAIN QUERY PLAN {statement}", parameters))

        assert "directory USING PRIMARY KEY (owner=? AND hash=?)" in await store.read(planned)
