"""Alerts in the database are compared with the log: what was said of one, and by whom it was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.audit.verification import verify
from tests.harness.application import NO_LAUNCHES, Service
from tests.harness.watching import alerts, files, look


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE alerts SET count = 99, evidence = '[]'", None),
        ("DELETE FROM alerts", None),
        ("UPDATE alerts SET severity = 'low'", "the log says `repeated-refusals`, `high`"),
        ("UPDATE alerts SET subject = 'another'", "`another`"),
        ("UPDATE alerts SET acknowledged_by = 'nobody@acme.example'", "the log says"),
        ("UPDATE alerts SET acknowledged_by = NULL, acknowledged_at = NULL", "`rita@acme.example`"),
        ("UPDATE alerts SET alert_id = 'alt_x'", "`alt_x` is in the database, but not in the log"),
    ],
)
async def test_alerts_say_what_the_log_says(tmp_path: Path, statement: str, problem: str | None) -> None:
    async with Service(tmp_path, [NO_LAUNCHES], live=True, files=files("repeated-refusals")) as service:
        for number in range(12):
            called = {"toolCallId": f"call-{number}", "toolName": "launch"}
            await service.report("agent", number, "tool.called", **called)
        await look(service)
        (alert,) = await alerts(service)
        await service.call("reviewer", "POST", f"/v1/alerts/{alert['alertId']}/acknowledge")
        store = service.context.store
        assert (await store.read(verify, store, "default"))["problems"] == []
        await service.context.writer.write(lambda transaction: store.rows_changed(statement))
        problems = (await store.read(verify, store, "default"))["problems"]
        assert problems == [] if problem is None else any(problem in each for each in problems), problems
