"""Grants from a terminal: given with an approval, exempted, listed, shown and ended."""

from __future__ import annotations

from tests.api.cli.running.conftest import Operator


def test_an_approval_can_come_with_a_grant(operator: Operator) -> None:
    approval = operator.held(1, to="bob\u202e")
    operator.types("y\n")
    code, output, error = operator.run(
        "approvals", "approve", approval, "--grant", "run", "--calls", "2", "--minutes", "30"
    )
    assert code == 0 and "in this run at most 2 times more in 30 minutes?" in error, error
    grant_id = output.split("the same call is allowed until ")[1].split(": ")[1].strip()
    (listed,) = operator.json("grants", "list")
    assert (listed["grantId"], listed["calls"], listed["approvalId"]) == (grant_id, 2, approval)
    assert operator.held_status(2, to="bob\u202e") == "allowed"
    assert operator.json("grants", "show", grant_id)["used"] == 1
    shown = operator.done("grants", "show", grant_id)
    assert shown.startswith("active: ") and "  calls: 1 of 2\n" in shown and "\u202e" not in shown
    assert "policy: Hold wires (hold-wires, version 1)" in shown
    assert "1 of 2" in operator.done("grants", "list", "--run", "run-1", "--agent", "agent-1")
    assert operator.json("grants", "list", "--run", "another") == []
    operator.types("n\n")
    assert "nothing was done" in operator.refused("grants", "revoke", grant_id)
    operator.types("y\n")
    assert operator.done("grants", "revoke", grant_id, "--reason", "enough").startswith("revoked: ")
    assert operator.held_status(3, to="bob\u202e") == "awaiting_approval"
    assert operator.json("grants", "list") == []
    assert [each["grantId"] for each in operator.json("grants", "list", "--all")] == [grant_id]


def test_terms_without_a_grant_and_what_cannot_be_granted_are_refused(operator: Operator) -> None:
    approval = operator.held(11, people=2)
    said = operator.refused("approvals", "approve", approval, "--yes", "--calls", "3", code=2)
    assert "give --grant run or agent, too" in said
    said = operator.refused("approvals", "approve", approval, "--yes", "--grant", "agent")
    assert "the service refuses (422)" in said and "so nobody can grant it" in said
    said = operator.refused("approvals", "approve", approval, "--yes", "--grant", "run", "--calls", "101")
    assert "the service refuses (422)" in said
    assert operator.json("approvals", "show", approval)["status"] == "pending"


def test_a_run_is_exempted_from_labels(operator: Operator) -> None:
    operator.held(21, paper="of the board")
    words = ("grants", "exempt", "run-1", "--label", "secret", "--reason", "looked at it")
    assert "Nobody can be asked here" in operator.refused(*words, code=2)
    made = operator.json(*words, "--minutes", "5", "--yes")
    assert (made["kind"], made["labels"], made["reason"]) == ("labels", ["secret"], "looked at it")
    assert "labels that do not count: secret" in operator.done("grants", "list")
    assert operator.json("grants", "revoke", made["grantId"], "--yes")["status"] == "revoked"
    refused = operator.refused("grants", "exempt", "nothing", "--label", "a", "--reason", "x", "--yes")
    assert "there is no run `nothing`" in refused
    assert "the service refuses (404)" in operator.refused("grants", "show", "grt_unknown")
    operator.become("viewer")
    assert "the service refuses (403)" in operator.refused(*words, "--yes")
