"""An output that the service cannot read as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from api.hosts.report import shallow, shortened, untold
from tests.api.hosts.conftest import Agent
from tests.harness.agent_host import Ended, consequence, told

Make = Callable[..., Agent]


LONG = 10**1_000


@pytest.mark.parametrize(
    "unreadable", ["\0", "\ud800", float("nan"), [LONG] * 20, ["x: " + f"{LONG}, " * 20], f"x: {LONG}, " * 20]
)
@pytest.mark.parametrize("by_host", [False, True])
def test_all_that_such_an_output_says_is_told(agent: Make, unreadable: Any, by_host: bool) -> None:
    """Policies label a run by its members, and by what stands far behind in a text."""
    made = agent("claude-code")
    assert made.call().goes_ahead
    page = {"class": "secret", "text": "x" * 30_000 + "the end", "more": unreadable}
    page |= {name: name for name in ("\ud801", "\ud802", "?", "\0", "\ufffd", "? (2)")}
    said = json.loads(told("claude-code", "result", session=made.session, call="c-1"))
    raw = json.dumps(said | {"tool_response": page}).encode()
    if by_host:
        headers = {"Content-Type": "application/json", "X-API-Key": made.service.api_key}
        place = f"/v1/hooks/claude-code?agentId=agent-{made.session}"
        answer = made.service.http.post(place, content=raw, headers=headers)
        assert answer.headers["Governance-Outcome"] == "recorded"
    else:
        assert made.hook(raw).code == 0
    found = made.run["toolCalls"][0]["outputPayload"]
    assert found["class"] == "secret" and found["text"].endswith("the end")
    alike = {
        "?": "?",
        "? (2)": "? (2)",
        "? (3)": "?",
        "? (4)": "?",
        "\ufffd": "\ufffd",
        "\ufffd (2)": "\ufffd",
    }
    assert found.items() >= alike.items()


CUT = re.compile(r"\.\.\. \([0-9]+ characters\)")
"""By which policies tell that something of an output was left out, as the guide has it."""


def test_what_is_left_out_is_said() -> None:
    for output in (["a"] * 1_001, {"a": [["b" * 20_001]]}):
        assert CUT.search(json.dumps(shortened(output)))
    assert not CUT.search(json.dumps(shortened({"a": ["b" * 20_000] * 1_000})))
    assert CUT.search(shallow(b"[" * 400 + b'"the end"' + b"]" * 400).decode())
    assert not CUT.search(shallow(b"[" * 300 + b"]" * 300).decode())


@pytest.mark.parametrize("by_host", [False, True])
def test_what_nobody_can_tell_is_told_as_left_out(
    agent: Make, by_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it labels its run by the name of its tool all the same."""
    monkeypatch.setattr("api.hosts.report._PLAINER", (lambda value: "\0", untold))
    made = agent("claude-code")
    assert made.call("curl").goes_ahead
    said = json.loads(told("claude-code", "result", session=made.session, call="c-1", command="curl"))
    raw = json.dumps(said | {"tool_response": {str(number): "" for number in range(60_000)}}).encode()
    if by_host:
        headers = {"Content-Type": "application/json", "X-API-Key": made.service.api_key}
        place = f"/v1/hooks/claude-code?agentId=agent-{made.session}"
        assert made.service.http.post(place, content=raw, headers=headers).status_code == 200
    else:
        assert made.hook(raw).code == 0
    assert CUT.search(made.run["toolCalls"][0]["outputPayload"]) and made.run["labels"] == ["read"]


def largest(agent: Agent, **payload: str) -> bytes:
    """A call with arguments that are as large as may be."""
    said = json.loads(told("claude-code", "call", session=agent.session, call="c-1", command="curl"))
    bare = len(json.dumps(said | {"tool_input": payload | {"command": "curl", "text": ""}}))
    text = "x" * (2**20 - 2**17 - bare)
    return json.dumps(said | {"tool_input": payload | {"command": "curl", "text": text}}).encode()


def result_of(agent: Agent, call: bytes, output: Any) -> bytes:
    said = json.loads(told("claude-code", "result", session=agent.session, call="c-1", command="curl"))
    made = said | {"tool_input": json.loads(call)["tool_input"], "tool_response": output}
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("output", ["a page", "\x01\ue000" * 600_000])
def test_what_a_call_of_the_largest_arguments_gave_is_told(agent: Make, output: str) -> None:
    """One of larger ones is not made: of what it gives nothing could be told beside them."""
    made = agent("claude-code")
    call = largest(made)
    beyond = consequence("claude-code", made.hook(call.replace(b"xx", b"xxx", 1)))
    assert not beyond.goes_ahead and "no room for its output" in beyond.text
    assert consequence("claude-code", made.hook(call)).goes_ahead
    assert made.hook(result_of(made, call, output)).error == ""
    assert made.run["labels"] == ["read"] and made.run["toolCalls"][0]["outputPayload"]


def test_arguments_take_no_more_room_behind_a_call(agent: Make) -> None:
    made = agent("claude-code")
    said = json.loads(told("claude-code", "call", session=made.session, call="c-1", command="curl"))
    said["tool_input"] = {"command": "curl", "text": "\u044f" * 250_000}
    call = json.dumps(said, ensure_ascii=False).encode()
    assert consequence("claude-code", made.hook(call)).goes_ahead
    assert made.hook(result_of(made, call, "x" * 700_000)).error == ""
    assert made.run["labels"] == ["read"]


def test_an_output_with_a_number_that_python_does_not_read_is_told(agent: Make) -> None:
    made = agent("claude-code")
    assert made.call("curl").goes_ahead
    said = told("claude-code", "result", session=made.session, call="c-1", command="curl")
    raw = json.dumps(json.loads(said) | {"tool_response": {"page": "a page", "n": "N"}}).replace(
        '"N"', "9" * 5_000
    )
    assert made.hook(raw.encode()).error == ""
    assert made.run["toolCalls"][0]["outputPayload"] == {"page": "a page", "n": "9" * 5_000}


def test_an_output_of_half_a_character_is_kept_while_the_service_is_away(agent: Make) -> None:
    made = agent("claude-code")
    assert made.call("curl").goes_ahead
    said = json.loads(told("claude-code", "result", session=made.session, call="c-1", command="curl"))
    raw = json.dumps(said | {"tool_response": "a \ud800 b"}, ensure_ascii=False).encode(
        errors="surrogatepass"
    )
    away = agent("claude-code", session=made.session, url="http://127.0.0.1:9")
    assert away.hook(raw) == Ended("{}", 0, "")
