"""Arguments that a host writes as JSON in a text: what it can read and we cannot is denied."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.api.hosts.conftest import REFUSED, Agent
from tests.harness.agent_host import Consequence, consequence, told

HOSTS = {"copilot": "toolArgs", "cursor": "tool_input", "gemini-cli": "tool_input"}
DEEP = "[" * 50_000 + "]" * 50_000
LONG = "9" * 5_000


def asked(made: Agent, more: str) -> Consequence:
    said = json.loads(told(made.host, "call", session=made.session, command=REFUSED))
    member = HOSTS[made.host]
    said[member] = f"{json.dumps(said[member])[:-1]}{more}}}"
    return consequence(made.host, made.hook(json.dumps(said).encode()))


@pytest.mark.parametrize("name", HOSTS)
def test_what_else_stands_there_hides_no_command(agent: Callable[..., Agent], name: str) -> None:
    made = agent(name)
    assert "No deletions" in asked(made, "").text
    for more in (DEEP, LONG):
        found = asked(made, f', "more": {more}')
        assert not found.goes_ahead
        assert "is nested too deeply, or has a number that is too long" in found.text
