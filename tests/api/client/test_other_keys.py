"""Programs of one machine share a journal's folder, and each may have a key of its own: what one of them
could not report is reported with its key, or with that of who has its runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from governance_client import ClientSettings, Governance, core
from governance_client import journal as offline
from governance_client.client_key import ClientKey
from governance_client.drivers import ClientDriver
from governance_client.events import event, new_id
from governance_client.exchange import ClientRequest, ClientResponse, Unreachable
from governance_client.journal import _OthersFile

from tests.api.client import stub
from tests.api.client.conftest import Told, journal_of
from tests.harness.receiver import Answer, Received, Receiver
from tests.harness.running_service import Served
from tests.harness.waiting import until


def has_read(settings: ClientSettings) -> str:
    """A run that has read something, which its process could not report before it ended; its id."""
    with Governance(settings) as governance, governance.run("a task") as run:
        run.pause()
        fetched = run.check("fetch", {})
    told = {"toolCallId": fetched.tool_call_id, "outputPayload": "a page"}
    leave(settings, run.run_id, told)
    return run.run_id


def leave(settings: ClientSettings, run_id: str, told: dict[str, str]) -> None:
    journal = journal_of(settings)
    journal.append([event("tool.completed", (run_id,), "payer", told)])
    journal.close()


def sends(settings: ClientSettings, run_id: str | None = None) -> str:
    with Governance(settings) as governance, governance.run("a task", run_id=run_id) as run:
        run.pause()
        return run.check("send", {}).status


def left(settings: ClientSettings) -> list[Path]:
    return list(settings.journal.glob("*.jsonl"))


def test_a_program_with_another_key_leaves_it(told: Told, service: Served) -> None:
    settings = told(api_key=service.key()["key"])
    run_id = has_read(settings)
    assert sends(told(api_key=service.key()["key"])) == "allowed"
    assert len(left(settings)) == 1
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == []


def test_nor_does_another_organisation_learn_of_it(told: Told, service: Served) -> None:
    settings = told(api_key=service.key()["key"])
    run_id = has_read(settings)
    service.organisation("rival")
    rival = service.key("rival")["key"]
    assert sends(told(api_key=rival)) == "allowed"
    answer = service.http.get(f"/v1/runs/{run_id}", headers={"X-API-Key": rival})
    assert answer.status_code == 404
    assert sends(settings, run_id) == "blocked"


def test_after_a_rotation_the_run_goes_on_with_all_that_it_has_read(told: Told, service: Served) -> None:
    key = service.key()
    run_id = has_read(told(api_key=key["key"]))
    rotated = service.rotated(key)
    assert sends(told(api_key=rotated), run_id) == "blocked"
    assert left(told()) == []


def test_after_a_rotation_the_rest_is_reported_in_the_background(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "ADOPT_SECONDS", 0.1)
    key = service.key()
    has_read(told(api_key=key["key"]))
    leave(told(api_key="agk_of_nobody"), service.ids("run"), {"toolCallId": "c", "outputPayload": "secret"})
    rotated = service.rotated(key)
    with Governance(told(api_key=rotated)) as governance, governance.run("another") as run:
        run.check("send", {})
        until(lambda: len(left(told())) == 1)


def test_what_is_refused_for_the_key_stays_for_another(told: Told, service: Served) -> None:
    """As where a program is started with the key of another agent, and that is put right."""
    settings = told(api_key=service.key()["key"])
    run_id = has_read(settings)
    wrong = told(api_key=service.key(agent_id="another")["key"])
    assert sends(wrong, run_id) == "unauthorized"
    assert len(left(settings)) == 1
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == []


def test_an_output_that_is_refused_for_the_key_is_kept(told: Told) -> None:
    """As where the key is rotated while a batch is on its way."""

    def service(request: Received) -> Answer:
        if request.path.endswith("/batch"):
            error = {"status": 401, "error": {"code": "unauthenticated", "detail": "not valid any more"}}
            return Answer(200, json.dumps({"results": [error] * len(request.json["events"])}).encode())
        return stub.plain_service(request)

    with Receiver(service) as receiver:
        settings = told(receiver.port, decide_seconds=3.0)
        with Governance(settings) as governance, governance.run("a task") as run:
            run.pause()
            run.report("tool.completed", {"toolCallId": "c", "outputPayload": "a page"})
            assert run.check("send", {}).status == "unauthorized"
        (file,) = left(settings)
        assert "a page" in file.read_text(encoding="utf-8")


def test_another_key_of_the_same_agent_leaves_it(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shown the runs of its agent, and may tell of none that another key has begun."""
    monkeypatch.setattr(core, "ADOPT_SECONDS", 0.1)
    settings = told(api_key=service.key()["key"])
    run_id = has_read(settings)
    leave(settings, service.ids("run"), {"toolCallId": "c", "outputPayload": "a page"})
    bound = told(api_key=service.key(agent_id="payer")["key"])
    with Governance(bound) as governance, governance.run("another") as run:
        run.check("list", {})
        time.sleep(0.5)
    assert len(left(settings)) == 2
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == []


def test_what_goes_on_from_a_run_of_another_key_is_left_to_its_own(told: Told, service: Served) -> None:
    one, other = (told(api_key=service.key()["key"]) for _ in range(2))
    above = has_read(other)
    with Governance(one) as governance, governance.run("a task", parent=above) as run:
        run.pause()
        fetched = run.check("fetch", {})
    begun = service.ids("run")
    journal = journal_of(one)
    about = {"toolCallId": fetched.tool_call_id, "outputPayload": "a page"}
    journal.append(
        [
            event("run.started", (above, begun), "payer", {"task": "a task", "parentRunId": above}),
            event("tool.completed", (above, run.run_id), "payer", {**about, "parentRunId": above}),
        ]
    )
    journal.close()
    assert sends(other, above) == "blocked"
    assert len(left(one)) == 1
    assert sends(one, begun) != "invalid", "the other key has begun its run"
    assert sends(one, run.run_id) == "blocked"
    assert left(one) == []


def test_a_run_of_the_same_name_in_another_organisation_learns_nothing(told: Told, service: Served) -> None:
    """As where one program serves several, and names its runs by the day."""
    service.organisation("twin")
    keys = service.key()["key"], service.key("twin")["key"]
    settings, twin = (told(api_key=key) for key in keys)
    with Governance(settings) as governance, governance.run("a task", run_id="nightly-1") as run:
        run.pause()
        fetched = run.check("fetch", {})
    leave(settings, "nightly-1", {"toolCallId": fetched.tool_call_id, "outputPayload": "a secret"})
    for _ in range(2):
        assert sends(twin, "nightly-1") == "allowed"
    assert sends(settings, "nightly-1") == "blocked"


def test_a_client_that_is_closed_meanwhile_keeps_nothing_from_others(told: Told, service: Served) -> None:
    """Which is told whose runs those are only then."""
    settings = told(api_key=service.key()["key"])
    run_id = has_read(settings)
    journal = journal_of(settings)
    journal.close()
    assert list(journal.adopt()) == []
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == []


def test_what_stays_is_read_once(told: Told, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many processes come and go; another key may have left much."""
    leave(told(api_key="agk_gone"), "a run", {"toolCallId": "c", "outputPayload": "a page"})
    read: list[Path] = []
    events = _OthersFile._events
    monkeypatch.setattr(_OthersFile, "_events", lambda file: read.append(file.path) or events(file))
    with Governance(told(api_key=service.key()["key"])) as governance:
        governance.run("a task").check("list", {})
        assert read == []
        for _ in range(3):
            governance.run("a task", run_id=service.ids("run")).check("list", {})
        assert len(read) == 1


@pytest.mark.parametrize("spoilt", [b"", b"{}", b'{"key": "default/'])
def test_nothing_is_decided_before_it_is_said_whose_what_is_left_is(
    told: Told, service: Served, spoilt: bytes
) -> None:
    """As behind a proxy that takes headers away, or where the note of the other key is damaged."""
    key = service.key()
    run_id = has_read(told(api_key=key["key"]))
    rotated = service.rotated(key)
    settings = told(api_key=rotated)
    with pytest.MonkeyPatch.context() as patch:
        if spoilt:
            (note,) = settings.journal.glob("*.key")
            whole = note.read_bytes()
            note.write_bytes(spoilt)
        else:
            patch.setattr(ClientKey, "learn", lambda key, key_id: None)
        assert sends(settings, run_id) == "unavailable"
    if spoilt:
        note.write_bytes(whole)
    assert sends(settings, run_id) == "blocked"


def test_a_folder_that_nobody_may_look_into_stops_no_run(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the home of another user."""

    def refused(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    settings = told()
    monkeypatch.setattr(Path, "is_dir", refused)
    assert sends(settings, service.ids("run")) == "allowed"


def has_read_offline(settings: ClientSettings, run_id: str) -> None:
    """A call of a run was let through while the service was away, so that it knows of none that is told."""

    def away(self: ClientDriver, asked: ClientRequest) -> ClientResponse:
        raise Unreachable("nobody is there", away=True)

    with pytest.MonkeyPatch.context() as patch, Governance(settings) as governance:
        patch.setattr(ClientDriver, "_request", away)
        with governance.run("a task", run_id=run_id) as run:
            run.pause()
            run.completed(run.check("fetch", {}), "a page")


@pytest.mark.parametrize("run_id", [None, "nightly"])
def test_a_run_that_was_let_through_goes_on_after_a_rotation(
    told: Told, service: Served, run_id: str | None
) -> None:
    """Of which the service has never heard; any program has told it the key before."""
    key, run_id = service.key(), run_id or f"run-{new_id()}"
    settings = told(api_key=key["key"], fail_mode="open")
    assert sends(settings) == "allowed"
    has_read_offline(settings, run_id)
    service.organisation(other := service.ids("other"))
    assert sends(told(api_key=service.key(other)["key"]), run_id) == "allowed", "nor is it that one's"
    rotated = service.rotated(key)
    assert sends(told(api_key=rotated), run_id) == "blocked"
    assert left(settings) == []


def test_nothing_is_decided_where_nobody_can_tell_whose_a_run_is(told: Told, service: Served) -> None:
    """No program with that key has been told by the service yet as what it is known."""
    run_id = service.ids("run")
    settings = told(api_key=service.key()["key"], fail_mode="open")
    leave(settings, run_id, {"toolCallId": "c", "outputPayload": "a page"})
    other = told(api_key=service.key()["key"], fail_mode="open")
    with Governance(other) as governance, governance.run("a task", run_id=run_id) as run:
        asked = run.check("send", {})
        assert asked.status == "unavailable" and str(left(settings)[0]) in asked.reason
        assert sends(settings) == "allowed"
        assert run.check("send", {}).status != "unavailable"


def test_it_says_so_where_the_key_is_not_taken(told: Told, service: Served) -> None:
    """Else somebody would take away a file because of a key that is mistyped."""
    run_id = service.ids("run")
    leave(told(api_key=service.key()["key"]), run_id, {"toolCallId": "c", "outputPayload": "a page"})
    with Governance(told(api_key="agk_of_nobody")) as governance:
        asked = governance.run("a task", run_id=run_id).check("send", {})
    assert asked.status == "unauthorized" and "the API key is not valid" in asked.reason


def test_a_file_that_could_not_be_read_for_a_moment_keeps_no_run_waiting(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process had no descriptors left; nobody can tell whose it is."""
    leave(told(api_key="agk_of_nobody"), service.ids("run"), {"toolCallId": "c", "outputPayload": "secret"})
    with Governance(told()) as governance, monkeypatch.context() as without:
        without.setattr(_OthersFile, "_events", Mock(side_effect=OSError(24, "Too many open files")))
        run = governance.run("a task", run_id=service.ids("run"))
        assert "Too many open files" in run.check("list", {}).reason
        without.undo()
        assert run.check("list", {}).allowed


@pytest.mark.parametrize("is_rotated", [True, False])
def test_what_a_process_that_still_runs_holds_is_told_before_the_run_goes_on(
    told: Told, service: Served, is_rotated: bool
) -> None:
    """As where programs are given a new key one after another; what it writes meanwhile is not lost."""
    key = service.key()
    settings = told(api_key=key["key"])
    run_id = has_read(settings)
    (file,) = left(settings)
    held = offline._locked(file, offline._APPEND)
    assert held is not None
    if is_rotated:
        settings = told(api_key=service.rotated(key))
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == [file]
    held.close()
    assert sends(settings, run_id) == "blocked"
    assert left(settings) == []


@pytest.mark.parametrize("api_key", ["agk_gone", None])
def test_a_line_that_nobody_can_read_stops_no_run(told: Told, service: Served, api_key: str | None) -> None:
    settings = told(api_key=api_key or service.api_key)
    leave(settings, "a run", {"toolCallId": "c", "outputPayload": "a page"})
    (file,) = left(settings)
    file.write_bytes(b"[" * 200_000 + b"\n")
    assert sends(told(), service.ids("run")) == "allowed"


def test_of_a_file_of_several_runs_each_is_told_when_it_goes_on(told: Told, service: Served) -> None:
    key = service.key()
    settings = told(api_key=key["key"])
    with Governance(settings) as governance:
        runs = [governance.run("a task", run_id=service.ids("run")) for _ in range(2)]
        fetched = [run.check("fetch", {}) for run in runs]
    journal = journal_of(settings)
    for run, call in zip(runs, fetched, strict=True):
        about = {"toolCallId": call.tool_call_id, "outputPayload": "a page"}
        journal.append([event("tool.completed", (run.run_id,), "payer", about)])
    journal.close()
    rotated = service.rotated(key)
    with Governance(told(api_key=rotated)) as governance:
        for number, run in enumerate(runs):
            assert len(left(settings)) == 1, number
            assert governance.run("a task", run_id=run.run_id).check("send", {}).status == "blocked"
    assert left(settings) == []


@pytest.mark.parametrize("seconds", [0.0, 0.5])
@pytest.mark.parametrize("names", ["continues", "parent"])
def test_a_run_that_goes_on_from_another_after_a_rotation_knows_what_that_one_has_read(
    told: Told, service: Served, names: str, seconds: float
) -> None:
    """However long it is before it asks: nothing of it is told meanwhile."""
    key = service.key()
    above = has_read(told(api_key=key["key"]))
    rotated = service.rotated(key)
    with Governance(told(api_key=rotated)) as governance:
        run = governance.run("a task", **{names: above}).begin()
        with governance.run("a part of it") as below:
            time.sleep(seconds)
            assert below.check("send", {}).status == "blocked"
        assert run.check("send", {}).status == "blocked"
    assert left(told()) == []
    assert service.http.get(f"/v1/runs/{run.run_id}", headers={"X-API-Key": rotated}).status_code == 200


def test_nothing_is_told_of_a_run_while_nobody_can_tell_what_it_has_read(told: Told, service: Served) -> None:
    above, settings = service.ids("run"), told(api_key=service.key()["key"])
    leave(settings, above, {"toolCallId": "c", "outputPayload": "a page"})
    with Governance(told()) as governance, governance.run("a task", continues=above) as run:
        run.said("something")
        asked = governance.run("another", parent=False).check("list", {})
        assert asked.allowed, "others go on"
        time.sleep(0.5)
        assert service.call("agent", "GET", f"/v1/runs/{run.run_id}").status_code == 404
        for file in left(settings):
            file.unlink()
        until(lambda: service.call("agent", "GET", f"/v1/runs/{run.run_id}").status_code == 200)


@pytest.mark.parametrize("run_id", [None, "nightly-2"])
def test_a_run_goes_on_with_the_key_that_took_the_place_of_another(
    told: Told, service: Served, run_id: str | None
) -> None:
    """As by an operator who made another one while the service was away, and nothing of the run was told."""
    key, run_id = service.key(), run_id or f"run-{new_id()}"
    settings = told(api_key=key["key"], fail_mode="open")
    assert sends(settings) == "allowed"
    service.answered("admin", "DELETE", f"/v1/api-keys/{key['keyId']}", status=204)
    has_read_offline(settings, run_id)
    for _ in range(2):
        assert sends(told(api_key=service.key()["key"])) == "allowed", "it is told of no other run"
    assert sends(told(api_key=service.key()["key"]), run_id) == "blocked"
