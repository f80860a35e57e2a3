"""Changes that need two admins, from a terminal: nothing is said to be done before it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.cli.running.conftest import Operator


@pytest.fixture
def two(operator: Operator) -> Iterator[Operator]:
    """Where the organisation asks for two admins."""
    place = "/v1/organisation/settings"
    settings = {"settings": {"changes": {"approvers": 2}}}
    assert operator.service.call("admin", "PUT", place, settings).status_code == 200
    yield operator
    change = operator.service.answered("admin", "PUT", place, {"settings": {}}, status=202)
    body = {"decision": "approved"}
    path = f"/v1/changes/{change['changeId']}/resolve"
    assert operator.service.call("second admin", "POST", path, body).status_code == 200


def test_a_resume_waits_for_another_admin_and_a_halt_does_not(two: Operator) -> None:
    halt = two.json("halt", "--agent", "agent-2")["haltId"]
    error = two.refused("resume", "--halt", halt, "--yes", code=4)
    assert "nothing was done yet: another admin must agree until " in error
    (change,) = two.json("changes", "list")
    assert f"governance changes approve {change['changeId']}" in error and change["subject"] == halt
    assert [each["haltId"] for each in two.json("halts")] == [halt]
    assert "the service refuses (403)" in two.refused("changes", "approve", change["changeId"], "--yes")
    assert "mayNotApprove: you asked for this change" in two.done("changes", "show", change["changeId"])
    two.become("second admin")
    assert "give --yes" in two.refused("changes", "approve", change["changeId"], code=2)
    said = two.done("changes", "approve", change["changeId"], "--yes", "--reason", "it is over")
    assert halt in said and said.splitlines()[-1].startswith("applied: ")
    assert two.done("halts") == "nothing is halted\n"


def test_a_change_of_a_policy_is_shown_as_it_would_be(two: Operator) -> None:
    code, output, error = two.run("policies", "disable", "hold-wires", "--yes", "--json")
    assert code == 4, error
    change = json.loads(output)["changeId"]
    shown = two.done("changes", "show", change)
    assert "policies/hold-wires.json is updated:" in shown or "policies/hold-wires.yaml is updated:" in shown
    assert "+" in shown and "false" in shown
    assert two.json("changes", "reject", change, "--yes", "--reason", "no")["status"] == "rejected"
    assert two.json("policies", "show", "hold-wires")["enabled"]
    assert change in two.done("changes", "list", "--status", "rejected")
    assert two.json("changes", "list") == []


def test_a_pack_is_made_and_deleted_by_two(two: Operator) -> None:
    assert two.run("packs", "activate", "integrity", "--yes")[0] == 4
    (change,) = two.json("changes", "list")
    two.become("second admin")
    two.done("changes", "approve", change["changeId"], "--yes")
    code, output, error = two.run("packs", "deactivate", "integrity", "--yes", "--json")
    waiting = json.loads(output)
    assert code == 4 and f"{len(waiting)} deletions wait for another admin" in error
    two.become("admin")
    for each in waiting:
        assert two.json("changes", "approve", each["changeId"], "--yes")["status"] == "applied"
    assert two.json("packs", "show", "integrity")["activatedCount"] == 0
