"""Arguments that a host writes as JSON in a text: what it can read and we cannot is denied."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from api.hosts.table import NAMES
from tests.api.hosts.conftest import REFUSED, Agent
from tests.harness.agent_host import Consequence, Ended, consequence, told
from tests.harness.running_service import Served

HOSTS = {"copilot": "toolArgs", "cursor": "tool_input", "gemini-cli": "tool_input"}
DEEP = "[" * 50_000 + "]" * 50_000
LONG = "9" * 5_000


def asked(made: Agent, more: str) -> Consequence:
    said = json.loads(told(made.host, "call", session=made.session, command=REFUSED))
    member = HOSTS[made.host]
    said[member] = f"{json.dumps(said[member])[:-1]}{more}}}"
    return consequence(made.host, made.hook(json.dumps(said).encode()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "more", [r'"\u0000"', r'"\ud800"', '1, "more": 2', DEEP, DEEP[49_930:50_070], LONG], ids=range(6)
)
def test_a_call_that_is_not_taken_is_denied_in_words_of_the_host(
    service: Served, name: str, more: str
) -> None:
    """Some go ahead on any other answer where they call the service themselves, and an agent chooses what its
    calls hold."""
    for kind in ("call", "result"):
        raw = told(name, kind, session=f"{name}-not-taken").removeprefix(b"\xef\xbb\xbf")
        raw = b'{"more": %s, %s' % (more.encode(), raw[1:])
        answer = service.call("agent", "POST", f"/v1/hooks/{name}", raw=raw.decode())
        if kind == "result":
            assert answer.status_code in (400, 422) or more == DEEP, "a hook tells it shorter then"
        else:
            assert answer.status_code == 200
            assert not consequence(name, Ended(answer.text, 0)).goes_ahead


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("also", ["\0", "\ud800", b"\xff"], ids=range(3))
def test_what_nobody_can_read_hides_no_call_that_is_not_taken(
    service: Served, name: str, also: str | bytes
) -> None:
    said = json.loads(told(name, "call", session=f"{name}-twice"))
    said[HOSTS[name]] = '{"command": "ls", "command": "rm"' + (also if isinstance(also, str) else "?") + "}"
    raw = json.dumps(said).encode()
    raw = raw if isinstance(also, str) else raw.replace(b"?", also)
    headers = {"Content-Type": "application/json", "X-API-Key": service.api_key}
    answer = service.http.post(f"/v1/hooks/{name}", content=raw, headers=headers)
    assert answer.status_code == 200
    assert not consequence(name, Ended(answer.text, 0)).goes_ahead


@pytest.mark.parametrize("name", HOSTS)
def test_what_else_stands_there_hides_no_command(agent: Callable[..., Agent], name: str) -> None:
    made = agent(name)
    assert "No deletions" in asked(made, "").text
    for more in (DEEP, LONG):
        found = asked(made, f', "more": {more}')
        assert not found.goes_ahead
        assert "is nested too deeply, or has a number that is too long" in found.text
