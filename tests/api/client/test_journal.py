"""The journal alone: what it does with its files, beside what `test_away` shows of whole calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from governance_client import Governance, journal
from governance_client.events import event

from tests.api.client.conftest import Told, journal_of
from tests.harness.running_service import Served


def test_a_closed_file_is_never_written_to(told: Told, tmp_path: Path) -> None:
    """The system gives its number to the next file that is opened: there a call must not be written."""
    made = journal_of(told())
    called = event("tool.called", ("run",), "payer", {"toolName": "pay"})
    made.append([called])
    (file,) = made._open
    file.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    try:
        assert other == file.descriptor
        with pytest.raises(OSError, match="closed"):
            made.append([called])
    finally:
        os.close(other)
    assert (tmp_path / "other").read_bytes() == b""


def test_a_line_whose_metadata_is_no_object_stops_no_other(told: Told) -> None:
    made = journal_of(told())
    made.append([event("tool.called", ("run",), "payer", {"toolName": "pay"})])
    (file,) = made._open
    odd = b'{"eventId": "odd", "runId": "other", "eventType": "tool.called", "metadata": [1]}\n'
    file.path.write_bytes(odd + file.path.read_bytes())
    made.close()
    assert [found.run_id for found, _ in journal_of(told()).adopt()] == ["other", "run"]


def test_what_nobody_can_read_of_a_journal_is_told_plainly(told: Told, service: Served) -> None:
    """A dead process has left it: the start of a run that goes on from another one, and an output."""
    settings, run_id = told(), service.ids("run")
    with Governance(settings) as governance:
        read, reading = governance.run("a task"), governance.run("a task")
        read.completed(read.check("fetch", {}), "a page")
        fetched = reading.check("fetch", {})
    made = journal_of(settings)
    made.append(
        [
            event("run.started", (run_id,), "payer", {"task": "a\0task", "continuesRunId": read.run_id}),
            event(
                "tool.completed",
                (reading.run_id,),
                "payer",
                {"toolCallId": fetched.tool_call_id, "outputPayload": "a\0page"},
            ),
        ]
    )
    made.close()
    with Governance(settings) as governance:
        for each in (run_id, reading.run_id):
            assert governance.run("a task", run_id=each).check("send", {}).status == "blocked"
    assert list(settings.journal.glob("*.jsonl")) == []


def test_files_are_told_by_the_times_of_what_they_hold(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on from another comes behind what that one has read, whatever the files are called."""
    monkeypatch.setattr(journal, "new_id", iter("ba").__next__)
    for name, line in (("tool.completed", ("above",)), ("run.started", ("above", "below"))):
        made = journal_of(told())
        made.append([event(name, line, "payer", {"toolCallId": "c"})])
        made.close()
    assert [found.run_id for found, _ in journal_of(told()).adopt()] == ["above", "below"]
