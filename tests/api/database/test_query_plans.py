"""No statement of an event, or of what runs each second, reads a table that grows from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import InstallationKey
from api.database import audit_chain
from api.database.connection import Database
from api.store import expiry
from api.store.webhooks import deliveries
from tests.faults.database_faults import HOLD
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

LIMIT = on_tool("Few searches", "block", "search", rateLimit={"limit": 2, "windowSeconds": 60})
GROWING = {"events", "tool_calls", "runs", "audit", "approvals", "rate_hits", "deliveries", "checkpoints"}


class Recorder:
    """Every statement that was run, with values that it was run with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: dict[str, Sequence[Any]] = {}
        for name in ("rows", "rows_changed", "change"):
            monkeypatch.setattr(Database, name, self._recorded(getattr(Database, name)))

    def _recorded(self, run: Any) -> Any:
        def recorded(store: Database, statement: str, parameters: Sequence[Any] = ()) -> Any:
            self.statements[statement] = parameters
            return run(store, statement, parameters)

        return recorded


def scans(store: Database, statement: str, parameters: Sequence[Any]) -> list[str]:
    """What SQLite says of the tables that grow and that it reads without an index."""
    if statement.endswith(("LIMIT ?", "LIMIT 1")) and "WHERE" not in statement:
        return []  # as many rows as were asked for, from one end
    names = _names(statement)
    plan = [str(row[-1]) for row in store.peewee.execute_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    return [
        step
        for step in plan
        if step.startswith("SCAN ") and "INDEX" not in step and names.get(step.split()[1]) in GROWING
    ]


def _names(statement: str) -> dict[str, str]:
    """Name or other name of a table in a statement -> the table."""
    words = statement.replace('"', " ").replace(",", " , ").replace("(", " ( ").replace(")", " ) ").split()
    found = {}
    for place, word in enumerate(words):
        if word in GROWING:
            following = words[place + 1 : place + 3]
            if following[:1] == ["AS"]:
                following = following[1:]
            found[word] = word
            if following:
                found[following[0]] = word
    return found


async def test_no_statement_of_an_event_or_of_each_second_reads_a_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Service(tmp_path, [HOLD, LIMIT]) as service:
        store, writer = service.context.store, service.context.writer
        recorder = Recorder(monkeypatch)
        for _ in range(2):  # the second time they are known
            for number, tool in enumerate(["read", "pay", "search", "search", "search"]):
                call = {"toolName": tool, "toolCallId": f"call-{number}"}
                assert (await service.report("agent", number, "tool.called", **call)).status_code == 200
        for number, kind in enumerate(["tool.completed", "run.completed"]):
            ended = {"toolCallId": "call-0", "toolName": "read"} if kind == "tool.completed" else {}
            assert (await service.report("agent", f"e{number}", kind, **ended)).status_code == 200
        await service.housekeeping()
        await writer.write(Checkpointer(InstallationKey(bytes(32))).sign)
        await store.read(audit_chain.tips, store)
        await store.read(deliveries.sweep, store, service.clock())
        await store.read(expiry.anything, store, service.clock(), service.clock.text, service.clock.text)
        assert len(recorder.statements) > 15
        found = {
            text: scans(store, text, values)
            for text, values in recorder.statements.items()
            if "PRAGMA" not in text
        }
    assert {text: plan for text, plan in found.items() if plan} == {}


def test_the_look_at_a_plan_sees_a_whole_table(tmp_path: Path) -> None:
    store = Database(f"sqlite:///{tmp_path}/some.db")
    store.migrate()
    assert scans(store, "SELECT a.at FROM audit AS a WHERE a.hash = ?", ("x",)) == ["SCAN a"]
    assert scans(store, "SELECT record FROM audit WHERE organisation_id = ?", ("default",)) == []
    store.close()
