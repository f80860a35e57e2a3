"""A run that ends and cancels its approvals: what that takes does not follow from how many calls it has."""

from __future__ import annotations

from pathlib import Path

from api.database.connection import Database
from api.database.transaction import Transaction
from api.store import approvals
from tests.faults.database_faults import HOLD
from tests.harness.application import Service, event

MANY = 2_000


async def _told(service: Service, run_id: str, tool: str, count: int) -> None:
    fields = [
        {"eventId": f"{run_id}-{tool}-{each}", "runId": run_id, "toolCallId": f"{tool}-{each}"}
        for each in range(count)
    ]
    for start in range(0, count, 1_000):
        events = [
            event(0, "tool.called", service.clock.text, {**each, "toolName": tool})
            for each in fields[start : start + 1_000]
        ]
        answer = await service.call("agent", "POST", "/v1/events/batch", {"events": events})
        assert {each["status"] for each in answer.json()["results"]} == {200}


async def _steps(service: Service, run_id: str, expected: int) -> int:
    """Of SQLite, to cancel so many approvals of a run."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    def cancel(transaction: Transaction) -> None:
        store: Database = transaction.store
        ((run_no, key_id),) = store.rows("SELECT run_no, key_id FROM runs WHERE run_id = ?", (run_id,))
        connection = store.peewee.connection()
        connection.set_progress_handler(count, 10)
        try:
            assert approvals.cancel_run(transaction, run_no, key_id, "run completed") == expected
        finally:
            connection.set_progress_handler(None, 0)

    await service.context.writer.write(cancel)
    return counted


async def test_a_run_of_many_calls_is_cancelled_in_as_many_steps_as_one_of_few(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD]) as service:
        await _told(service, "few", "read", 2)
        await _told(service, "many", "read", MANY)
        for run_id in ("few", "many"):
            await _told(service, run_id, "pay", 1)
        assert await _steps(service, "many", 1) < 3 * await _steps(service, "few", 1) + 10
        # And those of another run of the key stay.
        await _told(service, "other", "pay", 1)
        assert await _steps(service, "many", 0) < 20
        assert await _steps(service, "other", 1) > 0
