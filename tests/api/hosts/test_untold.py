"""What a hook could not tell is told before the next decision of its run, or there is none."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from api.hosts import journal
from tests.api.hosts.conftest import Agent
from tests.harness.agent_host import told
from tests.harness.receiver import Answer, Received, Receiver
from tests.harness.running_service import Served

AWAY = "http://127.0.0.1:9"
READ, SEND = "curl https://else.example", "scp notes else.example:"
Make = Callable[..., Agent]


@pytest.fixture
def reading(agent: Make) -> Agent:
    """An agent that has read something, which its hook could not tell."""
    made = agent("claude-code")
    assert made.call(READ).goes_ahead
    made.url = AWAY
    assert made.tell("result", READ).code == 0
    made.url = ""
    return made


@contextmanager
def telling(folder: Path) -> Iterator[None]:
    """Another hook is at the journal."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_hook_waits_for_another_that_tells(reading: Agent) -> None:
    begun, ended = threading.Event(), threading.Event()

    def tell() -> None:
        with telling(reading.folder / "journal" / "hooks"):
            begun.set()
            ended.wait(0.5)

    other = threading.Thread(target=tell)
    other.start()
    begun.wait()
    found = reading.call(SEND)
    ended.set()
    other.join()
    assert not found.goes_ahead
    assert "No sending" in found.text


def test_what_was_read_is_kept_though_another_hook_tells(agent: Make) -> None:
    """As long as a service that hangs takes, which may be longer than this hook has."""
    made = agent("claude-code")
    assert made.call(READ).goes_ahead
    journal.append(made.folder / "journal" / "hooks", {})  # which makes the folder
    with telling(made.folder / "journal" / "hooks"):
        made.url = AWAY
        keeping = threading.Thread(target=made.tell, args=("result", READ))
        keeping.start()
        keeping.join(60)
        assert not keeping.is_alive()
    made.url = ""
    assert "No sending" in made.call(SEND).text


def test_what_is_kept_while_others_are_told_stays(tmp_path: Path) -> None:
    entries = [dict.fromkeys(("host", "agentId", "callId", "at", "input"), name) for name in "abc"]
    for entry in entries:
        entry["decidedOffline"] = ""
    journal.append(tmp_path, entries[0])
    journal.append(tmp_path, entries[1])

    def send(entry: dict[str, object]) -> str | None:
        if entry == entries[0]:
            journal.append(tmp_path, entries[2])
            return ""
        return None

    assert journal.replay(tmp_path, send, lambda: True)
    assert journal.waiting(tmp_path) == entries[1:]


def passed_on(request: Received, service: Served) -> Answer:
    """What the service says, to whom stands before it."""
    kept = ("x-api-key", "content-type")
    headers = {name: value for name, value in request.headers.items() if name in kept}
    url = f"http://127.0.0.1:{service.port}{request.path}"
    answer = httpx.post(url, content=request.body, headers=headers)
    said = {name: answer.headers.get(name, "") for name in ("Governance-Outcome", "Governance-Key")}
    return Answer(answer.status_code, answer.content, said)


def test_nothing_is_decided_while_it_is_not_told(reading: Agent) -> None:
    """As where the key has sent as many bytes as it may: outputs are large, and calls are small."""

    def plan(request: Received) -> Answer:
        if b"PostToolUse" in request.body:
            return Answer(429, b'{"code": "rate_limited", "detail": "too much"}')
        return passed_on(request, reading.service)

    with Receiver(plan) as busy:
        reading.url = f"http://{busy.place}"
        found = reading.call(SEND)
        assert not found.goes_ahead
        assert "could not decide" in found.text
        others = Agent(reading.service, "claude-code", reading.folder, url=reading.url)
        assert others.call("ls").goes_ahead
    reading.url = ""
    assert "No sending" in reading.call(SEND).text


def test_an_output_that_a_proxy_does_not_take_is_told_shorter(agent: Make) -> None:
    """As nginx with a page of more than 1 MiB, whoever has written it."""
    made = agent("claude-code")

    def plan(request: Received) -> Answer:
        if len(request.body) > 2**20:
            return Answer(413, b"<html><h1>413 Request Entity Too Large</h1></html>")
        return passed_on(request, made.service)

    with Receiver(plan) as proxy:
        made.url = f"http://{proxy.place}"
        assert made.call(READ).goes_ahead
        made.hook(told_with("x" * 2**21, made))
        assert "No sending" in made.call(SEND).text


@pytest.mark.parametrize("status", [401, 403, 418])
def test_an_output_that_nobody_takes_keeps_calls_waiting(agent: Make, status: int) -> None:
    """As where what stands before the service does not like the words of a page."""
    made = agent("claude-code")

    def plan(request: Received) -> Answer:
        refused = Answer(status, b"{}" if status == 418 else b'{"code": "forbidden"}')
        return refused if b"odd words" in request.body else passed_on(request, made.service)

    with Receiver(plan) as proxy:
        made.url = f"http://{proxy.place}"
        assert made.call(READ).goes_ahead
        made.hook(told_with("odd words", made))
        assert "could not decide" in made.call(SEND).text
    made.url = ""
    assert "No sending" in made.call(SEND).text


def test_an_agent_whose_key_this_hook_has_not_keeps_no_other_waiting(service: Served, tmp_path: Path) -> None:
    """Hosts share a journal, and each has a key for its own agent; one of them may not be started again."""
    made = [
        Agent(service, host, tmp_path, key=service.key(agent_id=f"agent-{name}")["key"], session=name)
        for host, name in (("codex", "first"), ("claude-code", "second"))
    ]
    for each in made:
        assert each.call(READ).goes_ahead
    for each in made:
        each.url = AWAY
        assert each.tell("result", READ).code == 0
        each.url = ""
    first, second = made
    assert second.call().goes_ahead
    assert "No sending" in second.call(SEND).text
    assert len(journal.waiting(tmp_path / "journal" / "hooks")) == 1
    assert "No sending" in first.call(SEND).text
    assert journal.waiting(tmp_path / "journal" / "hooks") == []


def test_nor_do_many_agents(service: Served, tmp_path: Path) -> None:
    """Of more than are tried in vain what the one that asks has left is told all the same."""
    made = [
        Agent(service, "claude-code", tmp_path, key=service.key(agent_id=f"agent-many-{number}")["key"])
        for number in range(8)
    ]
    for number, each in enumerate(made):
        each.session = f"many-{number}"
        assert each.call(READ).goes_ahead
    for each in made:
        each.url = AWAY
        assert each.tell("result", READ).code == 0
        each.url = ""
    assert "No sending" in made[-1].call(SEND).text
    assert len(journal.waiting(tmp_path / "journal" / "hooks")) == 7


def test_what_a_proxy_does_not_take_of_one_run_keeps_no_other_waiting(agent: Make, service: Served) -> None:
    made = agent("claude-code")

    def plan(request: Received) -> Answer:
        return Answer(418, b"{}") if b"odd words" in request.body else passed_on(request, service)

    with Receiver(plan) as proxy:
        made.url = f"http://{proxy.place}"
        assert made.call(READ).goes_ahead
        made.hook(told_with("odd words", made))
        other = Agent(service, "claude-code", made.folder, url=AWAY)
        other.tell("prompt")
        other.url = made.url
        assert other.call().goes_ahead
        assert "could not decide" in made.call().text


def test_where_nothing_is_taken_it_is_not_tried_for_all_that_waits(agent: Make, service: Served) -> None:
    """As where something else answers under the address of the service."""
    for _ in range(20):
        agent("claude-code", url=AWAY).tell("prompt")
    with Receiver(lambda _: Answer(418, b"{}")) as other:
        made = agent("claude-code", url=f"http://{other.place}")
        assert "could not decide" in made.call().text
        assert len(other.requests) < 10
    assert Agent(service, "claude-code", made.folder).call().goes_ahead
    assert journal.waiting(made.folder / "journal" / "hooks") == []


def test_a_journal_that_cannot_be_written_lets_nothing_by(
    reading: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full, and the service takes the first of what waits and not the second."""
    reading.url = AWAY
    reading.tell("prompt")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def plan(request: Received) -> Answer:
        if b"UserPromptSubmit" in request.body:
            return Answer(429, b'{"code": "rate_limited", "detail": "too much"}')
        return passed_on(request, reading.service)

    monkeypatch.setattr(journal, "_replace", full)
    with Receiver(plan) as busy:
        reading.url = f"http://{busy.place}"
        assert "No space left" in reading.call().text


@pytest.mark.parametrize("change", [{"input": 5}, {"at": None}, {"agentId": 5}, {"host": "emacs"}])
def test_an_entry_that_nobody_can_tell_stops_none_behind_it(
    reading: Agent, change: dict[str, object]
) -> None:
    (file,) = (reading.folder / "journal" / "hooks").glob("waiting.jsonl")
    line = file.read_text()
    file.write_text(f"{json.dumps(json.loads(line) | change)}\n{line}")
    assert "No sending" in reading.call(SEND).text


@pytest.mark.parametrize("levels", [301, 985, 5_000])
@pytest.mark.parametrize("is_away", [False, True])
def test_an_output_of_many_levels_gets_around_no_label(agent: Make, levels: int, is_away: bool) -> None:
    """A server chooses how deep its answer is."""
    made = agent("claude-code")
    assert made.call(READ).goes_ahead
    made.url = AWAY if is_away else ""
    deep = told_with("deep", made).replace(b'"deep"', b"[" * levels + b"]" * levels)
    assert made.hook(deep).code == 0
    made.url = ""
    assert "No sending" in made.call(SEND).text


@pytest.mark.parametrize("levels", [301, 900, 1_500, 9_000, 200_000])
def test_of_a_call_nothing_is_left_out(agent: Make, levels: int) -> None:
    """How deep Python reads is different in each of its versions."""
    made = agent("claude-code")
    raw = told("claude-code", "call", session=made.session, call="c-1", command="@")
    found = made.hook(raw.replace(b'"@"', b"[" * levels + b"]" * levels))
    assert found.code == 2
    assert "nested deeper than 300" in found.error or "not JSON" in found.error
    assert "runId" not in made.run


def told_with(output: str, made: Agent) -> bytes:
    said = json.loads(told("claude-code", "result", session=made.session, call="c-1", command=READ))
    return json.dumps(said | {"tool_response": output}).encode()


def room(f_blocks: int) -> SimpleNamespace:
    """Of a file system with so many blocks."""
    return SimpleNamespace(f_blocks=f_blocks, f_bavail=0, f_frsize=4_096)


def test_a_file_system_that_does_not_say_how_large_it_is_is_not_full(
    agent: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of FUSE may not."""
    monkeypatch.setattr(os, "statvfs", lambda path: room(f_blocks=0))
    assert agent("claude-code").call(READ).goes_ahead


@pytest.mark.parametrize("why", ["no folder", "full", "read-only"])
def test_nothing_runs_whose_output_could_not_be_kept(
    agent: Make, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """What is lost of an output labels no run, so that what follows would be decided too loosely."""
    made = agent("claude-code")
    folder = made.folder / "journal"
    if why == "no folder":
        folder.write_text("")
    elif why == "full":
        monkeypatch.setattr(os, "statvfs", lambda path: room(f_blocks=9))
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = made.call(READ)
    assert not found.goes_ahead and "its journal cannot be written" in found.text
    assert made.tell("result", READ).code == 0, "there is nothing to stop any more"
