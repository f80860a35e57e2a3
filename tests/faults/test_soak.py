"""Memory under load stays where it is, and so does the place that runs and waiting agents take."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from api import metrics
from api.alerts.worker import take_step
from api.ingestion.known import runs as known_runs
from tests.harness.application import Service


@pytest.mark.slow
async def test_many_events_leave_nothing_behind_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Runs are remembered up to a bound; a bound that both counts are past leaves only what must not stay.
    monkeypatch.setattr(known_runs, "MOST_REMEMBERED", 10)
    async with Service(tmp_path) as service:

        async def report(first: int, count: int) -> None:
            for start in range(first, first + count, 50):
                numbers = range(start, start + 50)
                await asyncio.gather(*(_call(service, number) for number in numbers))
            # What waits to be filed is bounded too, see `test_id_index.py`; here it is all filed.
            directory = service.context.id_index
            await service.context.writer.write(directory.flush)
            await service.context.writer.write(lambda transaction: directory.find(transaction, []))
            # Records wait for the detectors up to a bound, see `api/alerts/recent.py`; here all are read.
            context = service.context
            while await take_step(context.detection, context.store, context.writer):
                pass
            metrics.catch_up()  # what batches count is counted some at a time

        await report(0, 600)
        gc.collect()
        tracemalloc.start(1)
        await report(600, 300)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await report(900, 900)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # An event's body alone would be 300 bytes.
        assert (after - before) / 900 < 100, f"{(after - before) / 900:.0f} bytes an event stay"
        assert not service.context.hub._waiting and not service.context.hub._streams


async def _call(service: Service, number: int) -> None:
    answer = await service.report(
        *("agent", number, "tool.called"),
        runId=f"run-{number}",
        toolCallId=f"call-{number}",
        toolName="read",
        inputPayload={"text": "x" * 200},
    )
    assert answer.status_code == 200, answer.text
