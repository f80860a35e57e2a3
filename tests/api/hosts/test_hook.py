"""The hook of each host against a real service: what the host does with a call, what the model reads."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from api import cli
from api.handlers.hook_request import HookRequest
from api.hosts import hook
from api.hosts.hook import answered
from api.hosts.last_word import LastWord
from api.hosts.report import PROBE
from api.hosts.table import NAMES, host
from tests.api.hosts.conftest import BRIEF, HELD, REFUSED, Agent
from tests.harness.agent_host import Ended, consequence, recorded, told
from tests.harness.receiver import Answer, Certificate, Received, Receiver
from tests.harness.running_service import Served

Make = Callable[..., Agent]
every_host = pytest.mark.parametrize("name", NAMES)


@every_host
def test_an_allowed_call_is_told_from_first_to_last(agent: Make, name: str) -> None:
    made = agent(name)
    assert made.tell("prompt").code == 0
    assert made.call().goes_ahead
    made.tell("result")
    assert made.run["task"] == "mend the build"
    assert made.run["agentId"] == f"agent-{made.session}"
    (call,) = made.run["toolCalls"]
    assert (call["status"], call["completion"], call["flags"]) == ("allowed", "completed", [])
    if "failure" in recorded(name):
        assert made.call("make").goes_ahead
        made.tell("failure", "make")
        assert made.run["toolCalls"][1]["completion"] == "failed"
    made.tell("other")


@every_host
def test_a_blocked_call_says_why(agent: Make, name: str) -> None:
    found = agent(name).call(REFUSED)
    assert not found.goes_ahead
    assert "refused by policy" in found.text
    assert "No deletions" in found.text


@every_host
def test_a_call_goes_ahead_once_it_is_approved(agent: Make, name: str) -> None:
    made = agent(name)
    thread = made.meanwhile(lambda: made.resolve("approve", made.approval()))
    found = made.call(HELD)
    thread.join()
    assert found.goes_ahead, found.text
    made.tell("result", HELD)
    (call,) = made.run["toolCalls"]
    assert (call["status"], call["completion"], call["flags"]) == ("allowed", "completed", [])


@every_host
def test_a_call_that_still_waits_is_found_when_it_is_repeated(agent: Make, name: str) -> None:
    made = agent(name)
    found = made.call(HELD, impatient=True)
    assert not found.goes_ahead
    approval_id = made.approval()
    assert f"approval `{approval_id}` is still open" in found.text
    assert "exactly the same arguments" in found.text
    assert "is still open" in made.call(HELD, impatient=True).text
    made.resolve("approve", approval_id)
    assert made.call(HELD).goes_ahead
    assert [call["approvalId"] for call in made.run["toolCalls"]] == [approval_id]
    made.tell("result", HELD)
    assert made.run["toolCalls"][0]["completion"] == "completed"
    assert not made.call(HELD, impatient=True).goes_ahead, "one approval allows one call"
    assert made.approval() != approval_id


@every_host
def test_rejected_and_expired_are_different_words(agent: Make, name: str) -> None:
    made = agent(name)
    thread = made.meanwhile(lambda: made.resolve("reject", made.approval()))
    found = made.call(HELD)
    thread.join()
    assert not found.goes_ahead
    assert "A person decided" in found.text
    found = made.call(BRIEF)
    assert not found.goes_ahead
    assert "Nobody decided" in found.text


def test_a_halt_that_comes_while_an_approval_is_handed_out_counts(
    agent: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record waits for its turn, behind that of the halt."""
    made, is_first = agent("claude-code"), HookRequest.is_first

    async def behind(request: HookRequest, *about: Any) -> bool:
        halt = {"agentId": f"agent-{made.session}", "reason": "enough"}
        answer = await asyncio.to_thread(made.service.call, "admin", "POST", "/v1/halt", halt)
        assert answer.status_code == 200
        return await is_first(request, *about)

    assert not made.call(HELD, impatient=True).goes_ahead
    made.resolve("approve", made.approval())
    monkeypatch.setattr(HookRequest, "is_first", behind)
    found = made.call(HELD)
    assert not found.goes_ahead and "a person has stopped this agent" in found.text


@every_host
def test_a_halted_agent_is_told_so(agent: Make, name: str) -> None:
    made = agent(name)
    halt = {"agentId": f"agent-{made.session}", "reason": "enough"}
    assert made.service.call("admin", "POST", "/v1/halt", halt).status_code == 200
    found = made.call()
    assert not found.goes_ahead
    assert "a person has stopped this agent" in found.text


@every_host
def test_a_revoked_key_denies_in_either_mode(agent: Make, name: str) -> None:
    for mode in ("closed", "open"):
        found = agent(name, key="agk_that_was_revoked", fail_mode=mode).call()
        assert not found.goes_ahead
        assert "does not accept the API key" in found.text


def no_pause(seconds: float) -> None:
    """Instead of sleeping."""


@every_host
def test_closed_denies_while_the_service_is_away(agent: Make, name: str) -> None:
    made = agent(name, url="http://127.0.0.1:9")
    found = made.call(sleep=no_pause)
    assert not found.goes_ahead
    assert "cannot be reached" in found.text
    made.url = ""
    assert made.call().goes_ahead
    assert len(made.run["toolCalls"]) == 1


@every_host
def test_open_journals_and_tells_later(agent: Make, name: str) -> None:
    made = agent(name, url="http://127.0.0.1:9", fail_mode="open")
    assert made.call(REFUSED, sleep=no_pause).goes_ahead
    made.tell("result", REFUSED)
    waiting = made.folder / "journal" / "hooks" / "waiting.jsonl"
    assert len(waiting.read_text().splitlines()) == 2
    assert waiting.stat().st_mode & 0o777 == 0o600
    assert waiting.parent.stat().st_mode & 0o777 == 0o700
    made.url = ""
    assert made.call().goes_ahead
    assert waiting.read_text() == ""
    first, second = made.run["toolCalls"]
    assert first["completion"] == "completed"
    assert second["completion"] is None
    rows = made.service.context.store.read_here(
        made.service.context.store.rows, "SELECT body FROM events ORDER BY event_no DESC LIMIT 3", ()
    )
    events = [json.loads(bytes(row[0])) for row in reversed(rows)]
    assert [event["eventType"] for event in events] == ["tool.called", "tool.completed", "tool.called"]
    assert [event["metadata"].get("decidedOffline") for event in events] == [True, None, None]


@every_host
def test_what_came_of_a_call_is_told_later_in_closed_mode_too(agent: Make, name: str) -> None:
    made = agent(name)
    assert made.call().goes_ahead
    made.url = "http://127.0.0.1:9"
    assert made.tell("result").code == 0
    made.url = ""
    assert made.call("pwd").goes_ahead
    assert made.run["toolCalls"][0]["completion"] == "completed"


@every_host
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_nonsense_is_no_answer(agent: Make, name: str, mode: str) -> None:
    with Receiver(
        [Answer(200, b"{}"), Answer(200, b"<html>"), Answer(404, b"no"), Answer(302, b"")]
    ) as other:
        made = agent(name, url=f"http://{other.place}", fail_mode=mode)
        for _ in range(4):
            found = made.call(sleep=no_pause)
            assert not found.goes_ahead
            assert "could not decide" in found.text


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_where_no_tls_comes_about_nothing_runs(agent: Make, service: Served, mode: str) -> None:
    with Receiver(tls=Certificate("127.0.0.1")) as other:
        for port, why in ((service.port, "WRONG_VERSION_NUMBER"), (other.port, "CERTIFICATE_VERIFY_FAILED")):
            found = agent("claude-code", url=f"https://127.0.0.1:{port}", fail_mode=mode).call(sleep=no_pause)
            assert not found.goes_ahead and f"no TLS comes about: [SSL: {why}" in found.text, found


@every_host
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\x00",
        b"{}",
        b'{"hook_event_name": "Other", "session_id": "s"}',
    ],
    ids=repr,
)
def test_what_cannot_be_read_is_denied(agent: Make, name: str, raw: bytes) -> None:
    found = consequence(name, agent(name).hook(raw))
    assert not found.goes_ahead
    assert "does not understand" in found.text


@every_host
def test_a_hook_without_its_setup_denies(name: str) -> None:
    for words in ([], ["--nope"], ["--url"], ["--url", "x", "--key-file", "/nothing"], ["--timeout", "soon"]):
        said = answered(name, words, {}, told(name, "call"), time.monotonic())
        found = consequence(name, Ended(said.output.decode(), said.code, said.error))
        assert not found.goes_ahead
        assert "governance doctor" in found.text


@every_host
def test_a_fault_of_the_hook_denies(agent: Make, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("api.hosts.hook.post", fail)
    found = agent(name).call()
    assert not found.goes_ahead
    assert "no room" in found.text


@every_host
def test_the_probe_is_always_denied(service: Served, agent: Make, name: str) -> None:
    raw = json.dumps(host(name).probe).encode()
    assert PROBE.encode() in raw
    found = consequence(name, agent(name).hook(raw))
    assert not found.goes_ahead
    assert "the gate is live" in found.text
    assert service.call("agent", "GET", "/v1/runs/governance-doctor").status_code == 404


def test_outputs_too_large_are_told_shorter(agent: Make) -> None:
    made = agent("claude-code")
    assert made.call().goes_ahead
    raw = told("claude-code", "result", session=made.session).replace(b"done", b"x" * 2_000_000)
    assert made.hook(raw).code == 0
    assert made.run["toolCalls"][0]["completion"] == "completed"
    raw = told("claude-code", "call", session=made.session, command="x" * 2_000_000)
    assert not consequence("claude-code", made.hook(raw)).goes_ahead


def test_a_service_that_goes_away_while_a_call_waits_lets_nothing_through(agent: Make) -> None:
    waiting = Answer(200, b'{"decision": "deny"}', {"Governance-Outcome": "waiting"})
    with Receiver([waiting, Answer(503)]) as other:
        made = agent("gemini-cli", url=f"http://{other.place}", fail_mode="open", timeout=8.0)
        found = made.call(HELD)
    assert not found.goes_ahead
    assert "cannot be reached" in found.text


def nested(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def test_a_line_that_is_no_entry_stops_none_after_it(agent: Make) -> None:
    made = agent("claude-code", url="http://127.0.0.1:9", fail_mode="open")
    folder = made.folder / "journal" / "hooks"
    folder.mkdir(parents=True)
    (folder / "waiting.jsonl").write_bytes(b"\0\0\n[]\n{}\n")
    assert made.call(sleep=no_pause).goes_ahead
    made.url = ""
    assert made.call().goes_ahead
    assert len(made.run["toolCalls"]) == 2
    assert (folder / "waiting.jsonl").read_text() == ""
    assert len((folder / "refused.jsonl").read_text().splitlines()) == 3


UNREADABLE = {
    "NUL": "a\0b",
    "half a character": "a\ud800b",
    "nested": nested(70),
    "nested further": nested(700),
    "many keys": {str(number): 1 for number in range(120_000)},
    "many texts": [{"text": "x" * 20_000}] * 100,
}


@every_host
@pytest.mark.parametrize("output", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("by_host", [False, True])
def test_an_output_that_the_service_cannot_read_is_told_as_a_text(
    agent: Make, name: str, output: Any, by_host: bool
) -> None:
    """By the hook, or where the host calls the service itself by that, as far as it takes so much."""
    made = agent(name)
    assert made.call().goes_ahead
    said = json.loads(told(name, "result", session=made.session, call="c-1").removeprefix(b"\xef\xbb\xbf"))
    members = [each for each in host(name).outputs if each in said]
    assert members
    raw = json.dumps(said | {each: json.dumps(output) if name == "cursor" else output for each in members})
    if by_host and len(raw) < 2**20:
        headers = {"Content-Type": "application/json", "X-API-Key": made.service.api_key}
        place = f"/v1/hooks/{name}?agentId=agent-{made.session}"
        answer = made.service.http.post(place, content=raw.encode(), headers=headers)
        assert answer.headers["Governance-Outcome"] == "recorded"
    else:
        ended = made.hook(raw.encode())
        assert (ended.code, ended.error) == (0, "")
    assert made.run["toolCalls"][0]["completion"] == "completed"


@pytest.mark.parametrize("status", [408, 429, 500])
def test_a_service_that_fails_at_a_call_is_not_away(agent: Make, status: int) -> None:
    answer = Answer(status, b'{"code": "internal_error", "detail": "it broke"}')
    with Receiver([answer] * 8) as other:
        made = agent("claude-code", url=f"http://{other.place}", fail_mode="open")
        found = made.call(sleep=no_pause)
        assert not found.goes_ahead
        assert "could not decide" in found.text
        made.tell("result")
    assert len((made.folder / "journal" / "hooks" / "waiting.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(("status", "goes_ahead"), [(200, False), (403, False), (404, False), (503, True)])
def test_a_service_that_keeps_a_call_waiting_is_not_away(agent: Make, status: int, goes_ahead: bool) -> None:
    """As it does with a key that takes more than its share: so an agent would get around every policy."""

    def plan(request: Received) -> Answer:
        return Answer(status) if request.path == "/health/ready" else Answer(delay=60)

    with Receiver(plan) as busy:
        made = agent("claude-code", url=f"http://{busy.place}", fail_mode="open", timeout=2.0)
        found = made.call(sleep=no_pause)
    assert found.goes_ahead is goes_ahead
    assert goes_ahead or "could not decide" in found.text


@every_host
def test_the_name_of_a_tool_is_never_another_one(agent: Make, name: str) -> None:
    raw = told(name, "call")
    said = json.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    member = "toolName" if "toolName" in said else "tool_name"
    found = consequence(name, agent(name).hook(json.dumps(said | {member: "mcp__x__" + "y" * 200}).encode()))
    assert not found.goes_ahead
    assert "has more than 200 characters" in found.text


def test_no_text_holds_the_key(service: Served) -> None:
    words = ["--url", f"http://127.0.0.1:{service.port}"]
    for key in ("agk_secret\nagk_secret", "agk_secret\u00e9", "agk_secret\0"):
        said = answered("codex", words, {"GOVERNANCE_API_KEY": key}, told("codex", "call"), time.monotonic())
        assert b"holds no API key" in said.output
        assert b"secret" not in said.output and "secret" not in said.error


@pytest.mark.parametrize("fails", ["answered", "setup", "decoded"])
def test_whatever_goes_wrong_denies(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fails: str
) -> None:
    """Claude Code goes on where a hook ends with 1, as Python does for an exception that nobody expects."""

    def fail(*_: object) -> Any:
        raise RecursionError("too much")

    taken: list[LastWord[Any]] = []
    take = LastWord.take
    monkeypatch.setattr(LastWord, "take", lambda word: (taken.append(word), take(word)))
    monkeypatch.setattr(hook, fails, fail)
    raw = told("claude-code", "call", session="s", call="c-1", command="ls")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    monkeypatch.setenv("GOVERNANCE_API_KEY", "k")
    monkeypatch.setattr(cli, "BEGUN", time.monotonic())  # not when the tests were, for minutes by now
    assert cli.main(["hook", "claude-code"]) == 2
    assert "too much" in capfd.readouterr().err
    assert len(taken) == 1, "else the process is ended later, by whoever watches the time"
