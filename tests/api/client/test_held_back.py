"""A run that goes on from others is told, and asked about, when it is known whose that is which is left of
them, however many runs, journals and processes stand between."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from governance_client import ClientSettings, Governance, journal
from governance_client.drivers import ClientDriver
from governance_client.events import event
from governance_client.exchange import ClientRequest, ClientResponse, Unreachable

from tests.api.client.conftest import Told, journal_of
from tests.api.client.test_other_keys import has_read, leave, left
from tests.harness.running_service import Served


class Rotated:
    """A run that has read something with a key of before; as what that was known nobody can tell for now."""

    def __init__(self, told: Told, service: Served) -> None:
        key = service.key()
        self.above = has_read(told(api_key=key["key"]))
        (self._note,) = told().journal.glob("*.key")
        self._said = self._note.read_bytes()
        self._note.unlink()
        self.settings = told(api_key=service.rotated(key), fail_mode="open")

    def is_known(self) -> None:
        self._note.write_bytes(self._said)


@pytest.fixture
def rotated(told: Told, service: Served) -> Rotated:
    return Rotated(told, service)


def sends(settings: ClientSettings, run_id: str) -> str:
    with Governance(settings) as governance:
        return governance.run("a task", run_id=run_id).check("send", {}).status


def test_a_conversation_is_held_back_with_each_of_its_turns(rotated: Rotated) -> None:
    with Governance(rotated.settings) as governance:
        last = rotated.above
        for _ in range(4):
            with governance.run("a turn", continues=last) as run:
                assert run.check("send", {}).status == "unavailable"
            last = run.run_id
        rotated.is_known()
        assert governance.run("a turn", continues=last).check("send", {}).status == "blocked"
    assert left(rotated.settings) == []


def test_a_run_that_was_let_through_waits_in_another_process_for_what_it_goes_on_from(
    rotated: Rotated, service: Served
) -> None:
    def away(self: ClientDriver, asked: ClientRequest) -> ClientResponse:
        raise Unreachable("nobody is there", away=True)

    run_id = service.ids("run")
    with pytest.MonkeyPatch.context() as patch, Governance(rotated.settings) as governance:
        patch.setattr(ClientDriver, "_request", away)
        with governance.run("a task", run_id=run_id, continues=rotated.above) as run:
            run.pause()
            run.completed(run.check("list", {}), "a list")
    assert sends(rotated.settings, run_id) == "unavailable"
    rotated.is_known()
    assert sends(rotated.settings, run_id) == "blocked"
    assert left(rotated.settings) == []


def test_with_what_a_run_goes_on_outlasts_its_process(rotated: Rotated, service: Served) -> None:
    run_id = service.ids("run")
    about = {"run_id": run_id, "continues": rotated.above}
    with Governance(rotated.settings) as governance, governance.run("a task", **about) as run:
        run.pause()
        assert run.check("send", {}).status == "unavailable"
    rotated.is_known()
    assert sends(rotated.settings, run_id) == "blocked"


def test_what_is_said_while_a_run_begins_counts_for_what_is_looked_for_then(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose a file is, another process writes down between two looks at it."""
    adopt = journal.OfflineJournal.adopt

    def adopt_and_say(self: journal.OfflineJournal, *runs: Collection[str]) -> list[Any]:
        found = adopt(self, *runs)
        rotated.is_known()
        return found

    with Governance(rotated.settings) as governance:
        governance.run("another").check("list", {})
        monkeypatch.setattr(journal.OfflineJournal, "adopt", adopt_and_say)
        run = governance.run("a task", continues=rotated.above)
        assert run.check("send", {}).status == "blocked"


def test_what_a_process_that_still_runs_holds_is_told_before_what_was_left_behind_it(
    told: Told, service: Served
) -> None:
    above, run_id = has_read(settings := told()), service.ids("run")
    (file,) = left(settings)
    held = journal._locked(file, journal._APPEND)
    assert held is not None
    made = journal_of(settings)
    made.append([event("run.started", (above, run_id), "payer", {"task": "a", "continuesRunId": above})])
    made.close()
    assert sends(settings, run_id) == "blocked"
    held.close()


def test_a_run_waits_for_all_that_it_has_ever_gone_on_with(told: Told, service: Served) -> None:
    files: list[Path] = []
    with Governance(told()) as governance:
        for _ in range(2):
            leave(told(api_key=service.key()["key"]), above := service.ids("run"), {"toolCallId": "c"})
            files += [file for file in left(told()) if file not in files]
            run = governance.run("a task", run_id="turn", continues=above)
            assert run.check("list", {}).status == "unavailable"
        for file, status in zip(reversed(files), ("unavailable", "allowed"), strict=True):
            file.unlink()
            assert run.check("list", {}).status == status
