"""Hosts and projects of one machine share a journal, and each may have a key of its own: what one of them
could not tell is told with its key, or with that of who has its runs."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.hosts import hook, journal
from tests.api.hosts.conftest import Agent
from tests.api.hosts.test_untold import AWAY, READ, SEND, passed_on, telling
from tests.harness.receiver import Answer, Received, Receiver
from tests.harness.running_service import Served

Make = Callable[..., Agent]


def waiting(made: Agent) -> list[dict[str, Any]]:
    return journal.waiting(made.folder / "journal" / "hooks")


@contextlib.contextmanager
def at_times(service: Served) -> Iterator[tuple[str, threading.Event]]:
    """An address of the service, which is away as long as the other is set."""
    away = threading.Event()
    with Receiver(lambda asked: Answer(503) if away.is_set() else passed_on(asked, service)) as proxy:
        yield f"http://{proxy.place}", away


def key_file(made: Agent) -> Path:
    return made.folder / "journal" / "hooks" / f"key-{journal.tag_of(made.key)}"


def has_read(made: Agent) -> Agent:
    """It has read something, which its hook could not tell."""
    assert made.call(READ).goes_ahead
    url, made.url = made.url, AWAY
    assert made.tell("result", READ).code == 0
    made.url = url
    return made


@pytest.fixture
def reading(service: Served, agent: Make) -> Agent:
    return has_read(agent("claude-code", key=service.key()["key"]))


def runs(service: Served, made: Agent, key: str) -> int:
    """How the run of an agent is answered to a key."""
    headers = {"X-API-Key": key}
    return service.http.get(f"/v1/runs/{made.session}", headers=headers).status_code


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_a_hook_with_another_key_leaves_it(service: Served, reading: Agent, host: str) -> None:
    other = Agent(service, host, reading.folder, key=service.key()["key"])
    assert other.call().goes_ahead
    assert len(waiting(other)) == 1
    assert "No sending" in reading.call(SEND).text
    assert waiting(reading) == []


def test_nor_does_another_organisation_learn_of_it(service: Served, reading: Agent) -> None:
    service.organisation("rival")
    rival = service.key("rival")["key"]
    assert Agent(service, "claude-code", reading.folder, key=rival).call().goes_ahead
    assert runs(service, reading, rival) == 404
    assert "No sending" in reading.call(SEND).text


def test_it_is_asked_once_who_a_hook_is(service: Served, reading: Agent) -> None:
    """What is left of another key costs others next to nothing."""
    with Receiver(lambda request: passed_on(request, service)) as proxy:
        url, key = f"http://{proxy.place}", service.key()["key"]
        other = Agent(service, "claude-code", reading.folder, url=url, key=key)
        for _ in range(3):
            assert other.call().goes_ahead
        assert len(proxy.requests) == 3 + 1


def test_those_of_a_key_that_is_gone_keep_none_from_being_told(service: Served, agent: Make) -> None:
    made = agent("claude-code", url=AWAY, key="agk_gone")
    for number in range(8):
        made.session = f"gone-{number}"
        made.tell("prompt")
    key = service.key()
    has_read(Agent(service, "claude-code", made.folder, key=key["key"]))
    after = Agent(service, "claude-code", made.folder, key=service.rotated(key))
    assert after.call().goes_ahead
    assert len(waiting(after)) == 8


def test_nor_do_runs_that_turn_out_to_be_of_another_key(service: Served, agent: Make) -> None:
    """As where a key is not rotated but replaced while sessions go on: they are not tried again each time."""
    first, key = service.key()["key"], service.key()["key"]
    made = [agent("claude-code", key=first)]
    made += [Agent(service, "claude-code", made[0].folder, key=first) for _ in range(7)]
    for each in made:
        assert each.call(READ).goes_ahead
    for each in made:
        each.key, each.url = key, AWAY
        assert each.tell("result", READ).code == 0
    last = Agent(service, "claude-code", made[0].folder, key=key, url=AWAY)
    last.tell("prompt")
    other = Agent(service, "claude-code", made[0].folder, key=key)
    for _ in range(2):
        assert other.call().goes_ahead
    assert len(waiting(other)) == 8
    assert runs(service, last, key) == 200
    made[0].key, made[0].url = first, ""
    assert "No sending" in made[0].call(SEND).text


def test_a_run_that_is_not_known_yet_is_not_begun_with_another_key(service: Served, agent: Make) -> None:
    made = agent("claude-code", key=service.key()["key"], url=AWAY)
    assert made.tell("prompt").code == 0
    other = Agent(service, "claude-code", made.folder, key=service.key()["key"])
    assert other.call().goes_ahead
    assert runs(service, made, other.key) == 404
    made.url = ""
    assert made.call().goes_ahead


def test_what_an_older_hook_has_left_stays_where_the_run_is_of_another_key(
    service: Served, reading: Agent
) -> None:
    """It does not say whose it is."""
    file = reading.folder / "journal" / "hooks" / journal.WAITING
    entry = json.loads(file.read_text(encoding="utf-8"))
    del entry["key"]
    file.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    other = Agent(service, "claude-code", reading.folder, key=service.key()["key"])
    assert other.call().goes_ahead
    assert len(waiting(other)) == 1
    assert "No sending" in reading.call(SEND).text


@pytest.mark.parametrize("same_run", [True, False])
def test_after_a_rotation_the_new_key_tells_it(service: Served, agent: Make, same_run: bool) -> None:
    key = service.key()
    made = has_read(agent("claude-code", key=key["key"]))
    made.key = service.rotated(key)
    other = made if same_run else Agent(service, "claude-code", made.folder, key=made.key)
    assert other.call().goes_ahead
    assert waiting(other) == []
    assert "No sending" in made.call(SEND).text


def test_it_waits_for_none_that_tells_of_others(service: Served, reading: Agent) -> None:
    """Whose service may be slow to answer."""

    def slept(seconds: float) -> None:
        raise AssertionError(f"it waits for {seconds} s")

    other = Agent(service, "claude-code", reading.folder)
    with telling(Path(reading.folder / "journal" / "hooks")):
        assert other.call(sleep=slept).goes_ahead


def test_it_waits_for_none_with_another_key_that_tells_of_its_own(service: Served, reading: Agent) -> None:
    """Whose service may not answer, for as long as its hooks ask; each takes away what it has told."""
    other = has_read(Agent(service, "claude-code", reading.folder, key=service.key()["key"]))
    asked: list[dict[str, Any]] = []

    def hangs(entry: dict[str, Any]) -> str | None:
        asked.append(entry)
        if len(asked) == 1:
            assert "No sending" in other.call(SEND).text
            return None
        return ""

    folder = reading.folder / "journal" / "hooks"
    assert journal.replay(folder, hangs, lambda: True, journal.tag_of(reading.key))
    assert len(asked) == 2
    assert waiting(reading) == asked[:1]


def test_a_run_whose_name_is_half_a_character_stops_no_other(service: Served, reading: Agent) -> None:
    file = reading.folder / "journal" / "hooks" / journal.WAITING
    entry = json.loads(file.read_text(encoding="utf-8"))
    entry["input"] = entry["input"].replace(reading.session, "\\ud800")
    file.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    other = Agent(service, "claude-code", reading.folder, key=service.key()["key"])
    assert other.call().goes_ahead
    assert len(waiting(other)) == 1


def test_two_hooks_of_one_session_tell_each_of_its_own(service: Served, agent: Make) -> None:
    """As where the user has one of the company and the project one of a customer, whose organisation has a
    run of the same name: what one of them could not tell does not stand there, nor is it lost."""
    service.organisation("customer")
    mine = agent("claude-code", key=service.key()["key"])
    theirs = Agent(
        service, "claude-code", mine.folder, key=service.key("customer")["key"], session=mine.session
    )
    assert mine.call(READ).goes_ahead and theirs.call(READ).goes_ahead
    mine.url = AWAY
    mine.tell("result", READ)
    mine.url = ""
    theirs.tell("result", READ)
    (left,) = waiting(mine)
    assert left["key"] == journal.tag_of(mine.key)
    assert theirs.call().goes_ahead, "it waits for nothing that the other hook has to tell"
    assert "No sending" in mine.call(SEND).text
    assert waiting(mine) == []


@pytest.mark.parametrize("comes", [True, False])
def test_a_hook_that_nobody_knows_yet_tells_its_own_first(service: Served, agent: Make, comes: bool) -> None:
    """As where the first thing that it had to tell met a service that was away: the other hook of its session
    gives it time to come, since it may be another organisation's."""
    service.organisation(customer := service.ids("customer"))
    mine = agent("claude-code", key=service.key()["key"], url=AWAY, fail_mode="open")
    assert mine.call(READ).goes_ahead and mine.tell("result", READ).code == 0
    mine.url = ""
    theirs = Agent(
        service, "claude-code", mine.folder, key=service.key(customer)["key"], session=mine.session
    )
    came: list[bool] = []

    def slept(seconds: float) -> None:
        if comes and not came:
            came.append("No sending" in mine.call(SEND).text)
        time.sleep(seconds)

    assert theirs.call(SEND, sleep=slept).goes_ahead, "the customer has no policies"
    assert came == [True] * comes
    assert waiting(mine) == []


def test_after_a_rotation_it_is_known_again_as_what_the_service_knows_the_key(
    service: Served, agent: Make
) -> None:
    """Also where the service has never heard of the run, and no run is looked for."""
    key = service.key()
    made = agent("claude-code", key=key["key"])
    assert made.call().goes_ahead
    gone = Agent(service, "claude-code", made.folder, url=AWAY, key=key["key"])
    assert gone.tell("prompt").code == 0
    made.key = service.rotated(key)
    assert made.call().goes_ahead and made.call().goes_ahead
    assert waiting(made) == []
    assert runs(service, gone, made.key) == 200


def test_a_new_secret_of_one_of_them_tells_nothing_of_the_other(service: Served, agent: Make) -> None:
    """No file says yet as what the service knows it, so that it is asked first."""
    service.organisation("another-customer")
    mine, key = agent("claude-code", key=service.key()["key"]), service.key("another-customer")
    theirs = Agent(service, "claude-code", mine.folder, key=key["key"], session=mine.session)
    assert theirs.call(READ).goes_ahead
    has_read(mine)
    key_file(theirs).unlink()
    assert theirs.call().goes_ahead
    assert len(waiting(mine)) == 1
    assert "No sending" in mine.call(SEND).text


@pytest.mark.parametrize("content", ["", "\0\0\0\0", "[[", "[]", '{"URL": "default/key_of_nobody"}'])
def test_a_file_that_is_damaged_keeps_nothing_from_being_told(
    service: Served, agent: Make, content: str
) -> None:
    key = service.key()
    made = has_read(agent("claude-code", key=key["key"]))
    made.key = service.rotated(key)
    url = f"http://127.0.0.1:{service.port}"
    key_file(made).write_text(content.replace("URL", url), encoding="ascii")
    assert "No sending" in made.call(SEND).text
    assert waiting(made) == []
    assert json.loads(key_file(made).read_bytes())[url] == f"default/{key['keyId']}"


def test_a_key_that_was_replaced_tells_what_nobody_else_has(service: Served, agent: Make) -> None:
    """As by an operator who made another one while the service was away, and nothing of the run was told."""
    first, second = service.key()["key"], service.key()["key"]
    with at_times(service) as (url, away):
        made = agent("claude-code", key=first, url=url, fail_mode="open")
        for key in (first, second):
            assert Agent(service, "claude-code", made.folder, key=key, url=url).call().goes_ahead
        away.set()
        assert made.call(READ).goes_ahead and made.tell("result", READ).code == 0
        away.clear()
        made.key = second
        assert "No sending" in made.call(SEND).text
        assert waiting(made) == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("same_session", [False, True])
def test_two_services_that_have_the_same_key_are_told_apart(
    service: Served, agent: Make, same_session: bool, known: bool
) -> None:
    """As where `GOVERNANCE_API_KEY` is the same for both, also before the other has said who asks."""
    asked = []

    def elsewhere(request: Received) -> Answer:
        event = json.loads(request.body)["hook_event_name"]
        asked.append(event)
        told = {"Governance-Outcome": "allowed" if event == "PreToolUse" else "recorded"}
        return Answer(200, b"{}", {**told, "Governance-Key": "default/key_2"})

    with at_times(service) as (url, away), Receiver(elsewhere) as other:
        mine = agent("claude-code", key=service.key()["key"], url=url)
        theirs = Agent(service, "claude-code", mine.folder, url=f"http://{other.place}", key=mine.key)
        theirs.session = mine.session if same_session else theirs.session
        assert not known or theirs.call().goes_ahead
        assert mine.call(READ).goes_ahead
        away.set()
        assert mine.tell("result", READ).code == 0
        away.clear()
        assert theirs.call().goes_ahead
        assert set(asked) == {"PreToolUse"}
        assert "No sending" in mine.call(SEND).text


def test_what_was_left_is_told_where_the_service_has_moved(service: Served, reading: Agent) -> None:
    with Receiver(lambda request: passed_on(request, service)) as proxy:
        reading.url = f"http://{proxy.place}"
        assert "No sending" in reading.call(SEND).text
    assert waiting(reading) == []


def test_hooks_of_two_services_with_one_key_each_note_theirs(tmp_path: Path) -> None:
    """As where a host starts both at once."""
    ours, theirs = (journal.Owner(tmp_path, f"http://{name}", "agk_1") for name in ("ours", "theirs"))
    ours.keep("default/key_1")
    theirs.keep("default/key_2")
    later = journal.Owner(tmp_path, "http://theirs", "agk_1")
    assert later.has({"key": later.tag, "url": "http://ours"}) is False


def test_what_was_noted_stands_where_a_service_says_nothing(tmp_path: Path) -> None:
    """As an older one behind the same address, while nodes are upgraded one after another."""
    owner = journal.Owner(tmp_path, "http://ours", "agk_1")
    owner.keep("default/key_1")
    owner.keep("")
    assert owner.key_id == journal.Owner(tmp_path, "http://ours", "agk_1").key_id == "default/key_1"


def has_read_unknown(made: Agent) -> Agent:
    """What nobody can tell whose it is waits to be told of its session."""
    url, made.url = made.url, AWAY
    assert made.call(READ).goes_ahead and made.tell("result", READ).code == 0
    made.url = url
    return made


def test_whose_it_is_may_be_noted_while_a_hook_waits(service: Served, agent: Make) -> None:
    service.organisation(customer := service.ids("customer"))
    key = service.key()
    mine = has_read_unknown(agent("claude-code", key=key["key"], fail_mode="open"))
    theirs = Agent(
        service, "claude-code", mine.folder, key=service.key(customer)["key"], session=mine.session
    )

    def slept(seconds: float) -> None:
        journal.Owner(mine.folder / "journal" / "hooks", AWAY, mine.key).keep(f"default/{key['keyId']}")

    assert theirs.call(SEND, sleep=slept).goes_ahead
    assert len(waiting(mine)) == 2
    assert "No sending" in mine.call(SEND).text


def test_it_is_told_however_long_a_look_takes(
    service: Served, agent: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where much of others waits there, or the service is slow to take what comes before it."""
    made = has_read_unknown(agent("claude-code", key="agk_gone", fail_mode="open"))
    made.key = service.key()["key"]
    replay = journal.replay

    def slow(*how: Any) -> bool:
        done = replay(*how)
        time.sleep(hook.PATIENCE)
        return done

    monkeypatch.setattr(hook, "PATIENCE", 0.2)
    monkeypatch.setattr(journal, "replay", slow)
    assert "No sending" in made.call(SEND).text


def test_a_hook_is_patient_for_nothing_of_its_own(service: Served, agent: Make) -> None:
    """Which is not taken, and so would wait for ever."""

    def slept(seconds: float) -> None:
        raise AssertionError(f"it waits for {seconds} s")

    with at_times(service) as (url, away):
        made = agent("claude-code", key=service.key(agent_id="another")["key"], url=url, fail_mode="open")
        away.set()
        assert made.call().goes_ahead
        away.clear()
        assert "bound to the agent" in made.call(sleep=slept).text
