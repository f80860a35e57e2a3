"""A run that ends and cancels its approvals: what that takes does not follow from how many calls it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

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


async def _ended(service: Service, run_id: str) -> None:
    fields = {"eventId": f"end-{run_id}", "runId": run_id, "cancelApprovals": True}
    receipt = await service.answered(
        "agent", "POST", "/v1/events", event(0, "run.completed", service.clock.text, fields)
    )
    assert receipt["processed"]
    shown = await service.answered("agent", "GET", f"/v1/runs/{run_id}")
    assert shown["status"] == "completed"


async def test_one_transaction_ends_so_many_approvals_with_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for each of them; so a run of more is ended in several, others' events between."""
    ended: Counter[int] = Counter()
    finish = approvals._finish

    def noted(transaction: Transaction, *row: Any, **how: Any) -> bool:
        ended[id(transaction)] += 1
        kept.append(transaction)
        return finish(transaction, *row, **how)

    kept: list[Transaction] = []
    monkeypatch.setattr(approvals, "_finish", noted)
    async with Service(tmp_path, [HOLD]) as service:
        runs = [("one", 2 * approvals.MOST_AT_ONCE + 1), ("two", approvals.MOST_AT_ONCE), ("three", 3)]
        for run_id, count in runs:
            await _told(service, run_id, "pay", count)
        await asyncio.gather(*(_ended(service, run_id) for run_id, _ in runs))
        assert ended.total() == sum(count for _, count in runs)
        assert max(ended.values()) <= approvals.MOST_AT_ONCE <= 100
        assert await service.answered("reviewer", "GET", "/v1/approvals?status=pending") == []
        verified = await service.answered("admin", "GET", "/v1/audit/verify")
        assert verified["valid"]


async def test_one_that_somebody_else_has_resolved_meanwhile_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reviewer at another node does, between the look at what waits and the change."""
    end, by_others = approvals._end_unresolved, list[str]()

    def ended(transaction: Transaction, row: Any, *said: str) -> bool:
        done = end(transaction, row, *said)
        if not by_others:
            by_others.append(row.approval_id)
            return False
        return done

    monkeypatch.setattr(approvals, "_end_unresolved", ended)
    async with Service(tmp_path, [HOLD]) as service:
        await _told(service, "one", "pay", approvals.MOST_AT_ONCE + 5)
        await _ended(service, "one")
        assert by_others
        assert await service.answered("reviewer", "GET", "/v1/approvals?status=pending") == []
