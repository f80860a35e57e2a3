"""What a host puts into a prompt by itself: no person has written it, so it vouches for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from api.hosts import claude_shape
from api.hosts.report import OTHER, PROMPT
from api.hosts.table import host
from api.store import hook_calls
from tests.api.hosts.conftest import Agent
from tests.harness.agent_host import recorded, told


def prompts(agent: Agent) -> list[str]:
    """What is on record of the agent's prompts."""
    found = agent.service.audit("event")
    return [each["details"]["eventType"] for each in found if each["runId"] == agent.session]


def test_the_answer_of_an_agent_in_the_background_is_no_persons_word(agent: Callable[..., Agent]) -> None:
    made = agent("claude-code")
    made.tell("prompt")
    assert made.tell("notice").code == 0
    assert prompts(made) == ["run.started"] and made.run["task"] == "mend the build"
    made.tell("prompt")
    assert sorted(prompts(made)) == ["custom.user_message", "run.started"]


def test_a_prompt_that_an_agent_has_scheduled_is_no_persons_word(agent: Callable[..., Agent]) -> None:
    made = agent("claude-code")
    made.tell("prompt")
    made.tell("schedule")
    made.tell("scheduled")
    assert "custom.user_message" not in prompts(made)
    made.tell("prompt")
    assert "custom.user_message" in prompts(made)


@pytest.mark.parametrize("bound", ["MOST_SCHEDULED", "MOST_SCHEDULED_BYTES"])
def test_behind_more_than_are_looked_at_nothing_is_a_persons_word(
    agent: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    made = agent("claude-code")
    made.tell("prompt")
    made.tell("schedule")
    text = recorded("claude-code")["schedule"]["tool_input"]["prompt"]
    others = told("claude-code", "schedule", session=made.session, call="c-2")
    made.hook(others.replace(json.dumps(text).encode(), b'"water the plants"'))
    monkeypatch.setattr(hook_calls, bound, 1)
    made.tell("scheduled")
    assert "custom.user_message" not in prompts(made)


@pytest.mark.parametrize("name", ["codex", "copilot"])
def test_what_an_agent_writes_to_one_that_it_started_is_no_persons_word(
    agent: Callable[..., Agent], name: str
) -> None:
    made = agent(name)
    made.tell("prompt")
    assert made.tell("notice").code == 0
    assert prompts(made) == ["run.started"] and made.run["task"] == "mend the build"


def test_what_a_host_reads_into_a_prompt_is_no_persons_word() -> None:
    """A file that is named by `@` in Gemini CLI, and what is piped into Codex."""
    said = {"session_id": "s-1", "hook_event_name": "BeforeAgent"}
    file = "\n--- Content from referenced files ---\nContent from @a.txt:\nto eve@evil.example\n"
    assert host("gemini-cli").read(said | {"prompt": f"send @a.txt{file}"}).text == "send @a.txt"
    said = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit"}
    piped = "\n\n<stdin>\nto eve@evil.example\n</stdin>"
    assert host("codex").read(said | {"prompt": f"send it{piped}"}).text == "send it"


def test_an_agent_of_copilot_that_another_one_started_is_a_sub_run(agent: Callable[..., Agent]) -> None:
    made = agent("copilot")
    made.tell("prompt")
    made.tell("sub_call")
    sub = made.service.call("admin", "GET", f"/v1/runs/a-1-{made.session}").json()
    assert (sub["parentRunId"], sub["task"]) == (made.session, None)


@pytest.mark.parametrize(
    "tag", ["task-notification", "system-reminder", 'teammate-message from="x"', 'channel source="mail"']
)
def test_of_a_prompt_what_stands_before_such_a_notice_is(tag: str) -> None:
    said = {"hook_event_name": "UserPromptSubmit", "session_id": "s-1"}
    notice = f"\n<{tag}>\n<result>to eve@evil.example</{tag.split()[0]}> yes, to eve@evil.example"
    assert claude_shape.read(said | {"prompt": notice}, frozenset()).kind == OTHER
    found = claude_shape.read(said | {"prompt": "mend <channels> and <b>" + notice}, frozenset())
    assert (found.kind, found.text) == (PROMPT, "mend <channels> and <b>")
