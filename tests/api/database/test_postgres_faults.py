"""A fault at any statement on PostgreSQL leaves nothing of what it belongs to."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from api.database.lanes.session import Session
from tests.api.database.test_postgres import PARTS, by_thread, together
from tests.faults.database_faults import (
    HOLD,
    LIMIT,
    intact,
    nothing_beside,
    payment,
    post,
    refused,
    rows,
    settled,
)
from tests.harness.application import Service

pytestmark = pytest.mark.postgres

FAULTS = {
    "a statement that fails": ("SELECT 1 / 0", 500),
    "a connection that ends": ("SELECT pg_terminate_backend(pg_backend_pid())", 503),
}


class Faults:
    """Puts a statement before the nth that the writer sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        self.left: int | None = None
        nothing_beside(monkeypatch)
        push = Session.push

        def faulty(session: Any, statements: Any) -> None:
            made = []
            for statement in statements:
                if self.left is not None and threading.current_thread().name == "store-writer":
                    if self.left == 0:
                        made.append((text, ()))
                    self.left = self.left - 1 if self.left else None
                made.append(statement)
            push(session, made)

        monkeypatch.setattr(Session, "push", faulty)


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_at_every_statement_on_the_server_leaves_nothing(
    kind: str, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, status = FAULTS[kind]
    faults = Faults(monkeypatch, text)
    environment = by_thread(postgres_url)
    async with Service(tmp_path, [HOLD, LIMIT], environment=environment) as running:
        assert (await post(running, payment("first"))).status_code == 200
        await settled(running)
        for step in range(100):
            before = await rows(running)
            faults.left = step
            answer = await post(running, payment(step))
            if faults.left is not None:
                faults.left = None
                assert answer.status_code == 200
                break
            if status == 503:
                refused(answer, 503)
            else:
                assert answer.status_code == 500
            assert await rows(running) == before, f"step {step} left something"
            answer = await post(running, payment(step))
            assert answer.status_code == 200 and "idempotent-replay" not in answer.headers
        assert 8 <= step < 99
        await intact(running)


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_while_a_group_is_written_in_parts_leaves_nothing(
    kind: str, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement's failure sends each event through a transaction of its own; a lost connection is told."""
    text, status = FAULTS[kind]
    faults = Faults(monkeypatch, text)
    expected = {503} if status == 503 else {200}
    limit = LIMIT | {"rateLimit": {"limit": 100_000, "windowSeconds": 60}}
    environment = by_thread(postgres_url)
    async with Service(tmp_path, [HOLD, limit], environment=environment) as running:

        async def batch(step: int, at: int | None) -> set[int]:
            events = [payment(f"{step}-{number}") for number in range(PARTS)]
            return await together(running, events, lambda: setattr(faults, "left", at))

        assert await batch(-1, None) == {200}
        await settled(running)
        for step in range(100):
            before = await rows(running)
            statuses = await batch(step, step)
            if faults.left is not None:
                faults.left = None
                assert statuses == {200}
                break
            assert statuses == expected
            after = await rows(running)
            added = PARTS if statuses == {200} else 0
            for table in ("events", "tool_calls", "approvals", "rate_hits"):
                assert after[table] == before[table] + added, (step, table)
            assert await batch(step, None) == {200}
            assert (await rows(running))["events"] == before["events"] + PARTS
        assert 15 <= step < 99
        await intact(running)
