"""The journal alone: what it does with its files, beside what `test_away` shows of whole calls."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from governance_client import Governance, journal
from governance_client.events import event

from tests.api.client.conftest import Told, journal_of
from tests.api.client.test_other_keys import has_read, leave, sends
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


def test_a_name_that_an_output_of_a_journal_has_twice_takes_nothing_away(told: Told) -> None:
    made = journal_of(told())
    written = {"outputPayload": '{"1":"a","1":"b"}'}
    made.append([event("tool.completed", ("run",), "payer", {"toolCallId": "c"}, written)])
    made.close()
    ((found, _),) = journal_of(told()).adopt()
    assert found.plainer is not None
    said = json.loads(found.plainer().content)
    assert said["metadata"] == {"toolCallId": "c", "outputPayload": {"1": "a", "1 (2)": "b"}}


def test_files_are_told_by_the_times_of_what_they_hold(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on from another comes behind what that one has read, whatever the files are called."""
    monkeypatch.setattr(journal, "new_id", iter("ba").__next__)
    for name, line in (("tool.completed", ("above",)), ("run.started", ("above", "below"))):
        made = journal_of(told())
        made.append([event(name, line, "payer", {"toolCallId": "c"})])
        made.close()
    assert [found.run_id for found, _ in journal_of(told()).adopt()] == ["above", "below"]


def test_what_a_process_holds_is_read_again_where_it_is_as_long_as_before(
    told: Told, service: Served
) -> None:
    """Whoever holds a file empties it when all of it is recorded."""
    settings, runs = told(), [service.ids("run"), service.ids("run")]
    for run_id in runs:
        with Governance(settings) as governance, governance.run("a task", run_id=run_id) as run:
            run.pause()
            run.check("fetch", {}, tool_call_id="c")
    kept = journal_of(settings)
    with Governance(settings) as governance:
        for run_id in runs:
            about = {"toolCallId": "c", "outputPayload": "a page"}
            (settled,) = kept.append([event("tool.completed", (run_id,), "payer", about)])
            assert governance.run("a task", run_id=run_id).check("send", {}).status == "blocked"
            settled(200, "")
    kept.close()


def test_what_cannot_be_written_is_read(told: Told, service: Served) -> None:
    """As on a file system that was mounted again to be read only."""
    settings = told()
    run_id = has_read(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_locked", failing(OSError(30, "Read-only file system")))
        assert sends(settings, run_id) == "blocked"


@pytest.mark.parametrize("api_key", [None, "agk_of_nobody"])
def test_nothing_is_decided_where_what_is_left_cannot_be_read(
    told: Told, service: Served, api_key: str | None
) -> None:
    """As in a process that has too many files open."""
    settings, run_id = told(), service.ids("run")
    leave(told(api_key=api_key or settings.api_key), run_id, {"toolCallId": "c", "outputPayload": "a page"})
    fails = failing(OSError(24, "Too many open files"))
    for where, name in (journal, "_locked"), (journal, "_left"), (Path, "is_dir"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, fails)
            patch.setattr(Path, "read_bytes", fails)
            with Governance(settings) as governance, governance.run("a task", run_id=run_id) as run:
                run.pause()
                for _ in range(2):
                    asked = run.check("send", {})
                    assert asked.status == "unavailable" and "Too many open files" in asked.reason


def failing(error: OSError) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> Any:
        raise error

    return fails
