"""Whoever reads policies reads those of the database."""

from __future__ import annotations

from pathlib import Path

from api.database.lanes.policy_mark import POLICY_MARK, policy_mark
from api.database.transaction import Transaction
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

LATER = "2031-01-01T00:00:00.000000Z"
WIRES = on_tool("No wires", "block", "wire")
OTHERS = {**WIRES, "name": "No others", "enabled": True}


async def test_others_under_the_same_number_are_read(tmp_path: Path) -> None:
    """As a copy of the database gives it again that lacks the last commits."""
    async with Service(tmp_path, [WIRES], live=True) as service:
        assert (await service.call("admin", "POST", "/v1/policies", OTHERS)).status_code == 201
        revision = service.context.live.revision

        def record_another(transaction: Transaction) -> None:
            change = "UPDATE policy_changes SET at = ? WHERE revision = ?"
            transaction.store.rows_changed(change, (LATER, revision))
            transaction.put({POLICY_MARK: policy_mark(revision, LATER)})

        await service.context.writer.write(record_another)
        assert (await service.call("admin", "GET", "/v1/policies")).status_code == 200
        assert service.context.live.snapshot.recorded_at == LATER
