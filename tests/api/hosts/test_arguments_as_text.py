"""Arguments that a host writes as JSON in a text: what it can read and we cannot is denied."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from api.hosts.table import NAMES
from tests.api.hosts.conftest import REFUSED, Agent
from tests.harness.agent_host import Consequence, Ended, consequence, told
from tests.harness.effort import slowness
from tests.harness.running_service import Served

HOSTS = {"copilot": "toolArgs", "cursor": "tool_input", "gemini-cli": "tool_input"}
DEEP = "[" * 50_000 + "]" * 50_000
LONG = "9" * 5_000


def asked(made: Agent, more: str) -> Consequence:
    said = json.loads(told(made.host, "call", session=made.session, command=REFUSED))
    member = HOSTS[made.host]
    said[member] = f"{json.dumps(said[member])[:-1]}{more}}}"
    return consequence(made.host, made.hook(json.dumps(said).encode()))


NOT_TAKEN = {
    "NUL": rb'"\u0000"',
    "half a character": rb'"\ud800"',
    "no character": b'"\xff"',
    "twice": b'1, "more": 2',
    "deep": DEEP.encode(),
    "too deep": DEEP[49_930:50_070].encode(),
    "long": LONG.encode(),
    "large": b'"%s"' % (b"x" * 2**20),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", NOT_TAKEN)
@pytest.mark.parametrize("arguments", [None, '{"command": "ls", "command": "rm"}'])
def test_a_call_that_is_not_taken_is_denied_in_words_of_the_host(
    service: Served, name: str, more: str, arguments: str | None
) -> None:
    """Some go ahead on any other answer where they call the service themselves, and an agent chooses what its
    calls hold. The hook, which names each call, denies by itself, and tells what became of one shorter."""
    said = json.loads(told(name, "call", session=f"{name}-not-taken").removeprefix(b"\xef\xbb\xbf"))
    if arguments is not None:
        said[HOSTS.get(name, "tool_input")] = arguments
    raw = b'{"more": %s, %s' % (NOT_TAKEN[more], json.dumps(said).encode()[1:])
    headers = {"Content-Type": "application/json", "X-API-Key": service.api_key}
    answer = service.http.post(f"/v1/hooks/{name}", content=raw, headers=headers)
    assert answer.status_code == 200
    assert not consequence(name, Ended(answer.text, 0)).goes_ahead
    named = service.http.post(f"/v1/hooks/{name}?callId=call-1", content=raw, headers=headers)
    assert named.status_code in (400, 413, 422)


@pytest.mark.parametrize("name", HOSTS)
def test_what_else_stands_there_hides_no_command(agent: Callable[..., Agent], name: str) -> None:
    made = agent(name)
    assert "No deletions" in asked(made, "").text
    for more in (DEEP, LONG):
        found = asked(made, f', "more": {more}')
        assert not found.goes_ahead
        assert "is nested too deeply, or has a number that is too long" in found.text


@pytest.mark.parametrize("name", NAMES)
def test_a_body_that_ends_within_a_text_keeps_nobody_waiting(service: Served, name: str) -> None:
    """Whoever has a key sends one; nobody else is answered while a pattern goes through it."""
    raw = b'{"a": "' + b'\\"' * 30_000
    headers = {"Content-Type": "application/json", "X-API-Key": service.api_key}
    begun = time.monotonic()
    answer = service.http.post(f"/v1/hooks/{name}", content=raw, headers=headers)
    assert answer.status_code == 200
    assert not consequence(name, Ended(answer.text, 0)).goes_ahead
    assert time.monotonic() - begun < 2 * slowness()
