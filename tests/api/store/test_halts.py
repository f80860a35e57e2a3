"""How many halts may be in force: whoever stops everything is never refused."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path

import pytest

import api.handlers.halts as halts_endpoint
from api.clock import random_ids
from api.database.connection import Database
from api.database.transaction import Transaction
from api.store import halts
from tests.harness.application import Service


async def test_halts_in_force_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With each change of one all are read again before the next event, of whichever organisation."""
    monkeypatch.setattr(halts, "MOST_IN_FORCE", 3)
    async with Service(tmp_path) as service:

        async def halt(who: str, body: dict[str, str]) -> int:
            return (await service.call(who, "POST", "/v1/halt", body)).status_code

        for number in range(3):
            assert await halt("other admin", {"agentId": f"agent-{number}"}) == 200
        refused = await service.call("other admin", "POST", "/v1/halt", {"agentId": "agent-3"})
        assert refused.status_code == 409 and "halt all agents" in refused.json()["detail"]
        assert await halt("admin", {"agentId": "agent-3"}) == 200, "of another organisation"
        assert await halt("other admin", {}) == 200, "an emergency"
        assert await halt("other admin", {}) == 409, "which all agents are halted by already"
        assert (await service.call("other admin", "POST", "/v1/resume", {})).json()[0]["scope"] == "all"
        assert (await service.call("other admin", "POST", "/v1/resume", {"agentId": "agent-0"})).json()
        assert await halt("other admin", {"agentId": "agent-3"}) == 200


async def test_whoever_halts_is_answered_before_very_many_runs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has not ended costs an agent nothing."""
    counting = threading.Event()
    monkeypatch.setattr(halts, "affected_agents", lambda *scope: counting.wait(30))
    monkeypatch.setattr(halts_endpoint, "COUNTING", 0.2)
    async with Service(tmp_path) as service:
        try:
            made = await service.call("admin", "POST", "/v1/halt", {})
            assert made.status_code == 200 and made.json()["affectedAgents"] is None
            answer = await service.report("agent", 1, "tool.called", toolName="read", toolCallId="call-1")
            assert answer.json()["toolCallStatus"] == "blocked"
        finally:
            counting.set()


def test_a_halt_counts_also_where_the_one_before_it_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who remembers the one that a copy of the database lacks reads anew after as many changes, and says what
    is halted no more."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path}/g.sqlite")) as store:
        store.migrate()
        book = halts.HaltBook()

        def halted(transaction: Transaction, agent: str) -> None:
            halts.halt(transaction, "default", "agent", agent, "r", "admin")
            book.refresh(transaction.counter("halts"))

        with pytest.raises(RuntimeError), store.transaction():
            halted(Transaction(store, 0.0, random_ids, None), "lost")
            raise RuntimeError
        assert book.covering("default", "lost", "run")
        with store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            halted(transaction, "kept")
            transaction.flush()
        assert book.covering("default", "kept", "run") and not book.covering("default", "lost", "run")
        (told,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert "agent 'lost' by admin" in told and "halt again" in told
        with store.transaction():
            transaction = Transaction(store, 0.0, random_ids, None)
            assert halts.resume(transaction, "default", "agent", "kept", "admin", None)
            book.refresh(transaction.counter("halts"))
            transaction.flush()
        assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 1
