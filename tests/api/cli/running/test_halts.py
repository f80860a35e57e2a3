"""Halting and resuming from a terminal."""

from __future__ import annotations

import asyncio

from tests.api.cli.running.conftest import Operator
from tests.harness.watching import look


def test_all_agents_are_halted_after_one_question(operator: Operator) -> None:
    assert "give --yes if you are sure" in operator.refused("halt", code=2)
    for answer in ("", "n\n", "\n", "yesterday\n"):
        operator.types(answer)
        assert operator.refused("halt").endswith("governance: nothing was done\n")
    assert operator.json("halts") == []
    operator.types("y\n")
    said = operator.done("halt", "--reason", "an incident")
    (halt,) = operator.json("halts")
    assert halt["scope"] == "all" and halt["reason"] == "an incident"
    assert said.startswith(f"halted all agents: {halt['haltId']}")
    assert f"governance resume --halt {halt['haltId']}" in said
    assert "an incident" in operator.done("halts")
    operator.leaves()
    assert "give --yes" in operator.refused("resume", code=2)
    operator.types("yes\n")
    assert operator.done("resume").startswith(f"ended the halt of all agents: {halt['haltId']}")
    assert operator.done("halts") == "nothing is halted\n"
    assert operator.done("resume", "--yes").startswith("no halt of all agents was in force")


def test_one_agent_or_run_is_halted_without_a_question(operator: Operator) -> None:
    agent = operator.json("halt", "--agent", "agent-1")
    run = operator.json("halt", "--run", "run-1", "--reason", "it loops")
    assert (agent["scope"], agent["agentId"]) == ("agent", "agent-1")
    assert (run["scope"], run["runId"], run["reason"]) == ("run", "run-1", "it loops")
    assert "not allowed with" in operator.refused("halt", "--agent", "a", "--run", "r", code=2)
    assert operator.json("resume", "--yes") == []
    assert [each["haltId"] for each in operator.json("resume", "--yes", "--halt", run["haltId"])] == [
        run["haltId"]
    ]
    assert [each["haltId"] for each in operator.json("resume", "--yes", "--agent", "agent-1")] == [
        agent["haltId"]
    ]
    assert "the service refuses (404)" in operator.refused("resume", "--yes", "--halt", "hlt_unknown")


def test_a_halt_of_nobody_says_who_may_be_meant(operator: Operator) -> None:
    """In an incident a name is mistyped, and the agent that was meant goes on."""
    operator.held(950, amount=2)
    asyncio.run(look(operator.service))
    assert operator.run("halt", "--agent", "agent-1")[2] == ""
    mistyped = operator.run("halt", "--agent", "agnet-1")
    assert mistyped[0] == 0 and mistyped[1].startswith("halted agent `agnet-1`: ")
    assert mistyped[2] == "governance: no call of agent `agnet-1` is known; did you mean `agent-1`?\n"
    assert operator.run("halt", "--run", "run-1")[2] == ""
    assert "no call of run `run/9` is known, so see that" in operator.run("halt", "--run", "run/9")[2]
    for named in (("--agent", "agent-1"), ("--agent", "agnet-1"), ("--run", "run-1"), ("--run", "run/9")):
        assert operator.done("resume", "--yes", *named).startswith("ended the halt of ")


def test_a_halt_stops_calls_and_approvals(operator: Operator) -> None:
    approval = operator.held(900, amount=1)
    operator.done("halt", "--yes", "--reason", "stop")
    try:
        assert "is halted" in operator.refused("approvals", "approve", approval, "--yes")
    finally:
        operator.done("resume", "--yes")
    assert operator.json("approvals", "approve", approval, "--yes")["status"] == "approved"
