"""What one thread works out of a run while another one changes it is not what the next call is decided by."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from api.ingestion.known import runs as known_runs
from api.ingestion.known.runs import KnownRun
from engine.flow.memory import NO_VALUES
from tests.api.ingestion.test_flow import HOLD, LABEL
from tests.harness.application import Service


async def test_facts_of_before_a_label_do_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, labelled = threading.Event(), threading.Event()
    facts_of_run = known_runs.facts_of_run

    def slowly(*columns: Any) -> Any:
        facts = facts_of_run(*columns)
        if threading.current_thread().name.startswith("turns") and not begun.is_set():
            begun.set()
            assert labelled.wait(60)
        return facts

    async with Service(tmp_path, [LABEL, HOLD]) as service:

        async def call(number: int, tool: str, **payload: Any) -> str:
            about = {"toolCallId": f"c{number}", "toolName": tool, "inputPayload": payload}
            answer = await service.report("agent", number, "tool.called", runId="r", **about)
            status: str = answer.json()["toolCallStatus"]
            return status

        await service.report("agent", 0, "run.started", runId="r", task="sum up")
        # Somebody else writes a record, so that the run is read again, by what asks no policy.
        await service.context.writer.write(lambda transaction: transaction.audit("default", "user.login"))
        await service.report("agent", 1, "custom.hello", runId="r")
        monkeypatch.setattr(known_runs, "facts_of_run", slowly)
        large = asyncio.create_task(call(2, "note", text="x" * 20_000))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        assert await call(3, "read_secret") == "allowed"
        labelled.set()
        assert await large == "allowed"
        assert await call(4, "send") == "awaiting_approval"


class _Interrupted(KnownRun):
    """Another thread changes it behind so many of its columns that were read."""

    reads_left: int = -1

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in KnownRun.__struct_fields__ and self.reads_left >= 0:
            self.reads_left -= 1
            if self.reads_left < 0:
                self.values = NO_VALUES.with_task("more")
                self.labels = '["secret"]'
                self.changed()
        return value


def _run() -> _Interrupted:
    run = _Interrupted(1, "default", "r", "a", "running", "sum up", None, None, None, "", None, "key")
    run.values = NO_VALUES
    return run


def test_what_is_read_during_a_change_is_not_taken_for_what_is_there_then() -> None:
    for reads in range(12):
        run = _run()
        run.reads_left = reads
        memory = run.memory()
        run.reads_left = -1
        assert memory.version != run.flow or memory.loaded is run.values
    for reads in range(12):
        run = _run()
        run.reads_left = reads
        run.facts()
        run.reads_left = -1
        assert run.facts() == {"task": "sum up"} | ({"labels": ["secret"]} if run.flow else {})
