"""What names calls have: a model may number them from the start in each answer, and no host mends that."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from api.hosts.table import NAMES, host
from tests.api.hosts.conftest import HELD, REFUSED, Agent
from tests.harness.agent_host import told
from tests.harness.running_service import Served

Make = Callable[..., Agent]
every_host = pytest.mark.parametrize("name", NAMES)


@every_host
@pytest.mark.parametrize("times", [1, 7])
def test_one_decision_is_for_one_execution_whatever_names_calls_have(
    agent: Make, name: str, times: int
) -> None:
    """Some models number their calls anew in each answer."""
    made = agent(name)
    for _ in range(times):
        made.calls = 0
        assert made.call("scp a b:").goes_ahead
        made.tell("result", "scp a b:")
    assert made.call("curl b").goes_ahead
    made.tell("result", "curl b")
    made.calls = 0
    assert not made.call("scp a b:").goes_ahead, "its run has read something since"


@pytest.mark.parametrize("times", [2, 7])
def test_one_approval_is_for_one_execution_whatever_names_calls_have(agent: Make, times: int) -> None:
    made = agent("claude-code")
    for _ in range(times):
        assert not made.call(HELD, impatient=True).goes_ahead
        pending = next(each for each in made.run["toolCalls"] if each["status"] == "awaiting_approval")
        made.resolve("approve", pending["approvalId"])
        made.calls = 0
        assert made.call(HELD).goes_ahead
        made.tell("result", HELD)
        made.calls = 0
    assert not made.call(HELD, impatient=True).goes_ahead


@every_host
def test_a_call_whose_name_another_one_has_is_decided_and_told_of_by_what_it_asks_for(
    agent: Make, name: str
) -> None:
    made = agent(name)
    assert not made.call(REFUSED).goes_ahead
    for command in ("ls", "make"):
        made.calls = 0
        assert made.call(command).goes_ahead
        made.tell("result", command)
    made.calls = 0
    assert not made.call(HELD, impatient=True).goes_ahead
    calls = [(each["status"], each["completion"], each["flags"]) for each in made.run["toolCalls"]]
    ran = ("allowed", "completed", [])
    assert calls == [("blocked", None, []), ran, ran, ("awaiting_approval", None, [])]


@every_host
def test_what_ran_with_other_arguments_than_were_decided_is_a_gap(agent: Make, name: str) -> None:
    """Another hook of the host may change them behind ours."""
    made = agent(name)
    assert made.call("ls").goes_ahead
    made.tell("result", "make")
    path = f"/v1/audit?type=enforcement.gap&runId={made.session}"
    (gap,) = made.service.call("admin", "GET", path).json()
    names_calls = bool(host(name).read(json.loads(told(name, "call"))).call_id)
    assert gap["reason"] == (
        "the tool call ran with another payload than the one decided on"
        if names_calls
        else "the tool call was never reported before it ran"
    )


@every_host
def test_a_command_may_leave_its_folder(agent: Make, name: str) -> None:
    made = agent(name)
    assert made.call("cd sub").goes_ahead
    raw = json.loads(told(name, "result", session=made.session, call="c-1", command="cd sub"))
    assert made.hook(json.dumps(raw | {"cwd": "/home/dev/x/sub"}).encode()).code == 0
    (call,) = made.run["toolCalls"]
    assert call["flags"] == []


def test_an_outcome_that_is_never_told_leaves_no_approval_for_the_next_call_of_that_name(agent: Make) -> None:
    made = agent("claude-code")
    assert not made.call(HELD, impatient=True).goes_ahead
    made.resolve("approve", made.approval())
    assert made.call(HELD).goes_ahead, "under another name; it is broken off"
    made.calls = 0
    assert not made.call(HELD, impatient=True).goes_ahead
    made.resolve("approve", made.approval())
    made.calls = 0
    assert made.call(HELD).goes_ahead
    made.tell("result", HELD)
    made.calls = 0
    assert not made.call(HELD, impatient=True).goes_ahead


def test_what_ran_unasked_is_on_record_though_its_name_is_that_of_another_call(service: Served) -> None:
    said = {"session_id": service.ids("run"), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    for number in (1, 2):
        call = said | {"tool_use_id": "call_1", "tool_input": {"command": f"ls {number}"}}
        path = f"/v1/hooks/codex?decidedOffline=true&callId=told-{number}"
        answer = service.call("agent", "POST", path, call)
        assert answer.headers["Governance-Outcome"] == "recorded"
    run = service.call("agent", "GET", f"/v1/runs/{said['session_id']}").json()
    assert [each["flags"] for each in run["toolCalls"]] == [["decided_offline"]] * 2
