"""The commands reach no organisation but that of whoever is logged in: each of them is tried."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.cli.command_line import parser
from api.store.alerts.alerts import raise_alerts
from tests.api.cli.running.conftest import Operator
from tests.api.cli.running.test_alerts import found
from tests.api.cli.running.test_changes import two as two
from tests.harness.application import PASSWORD, PEOPLE

GROUPS = (
    *("alerts", "approvals", "changes", "grants", "halt", "halts", "login", "logout", "packs", "policies"),
    *("resume", "webhooks"),
)
EMPTY: tuple[tuple[str, ...], ...] = (
    ("halts",),
    ("approvals", "list"),
    ("approvals", "list", "--status", "approved"),
    ("webhooks", "list"),
    ("alerts", "list", "--status", "all"),
    ("policies", "list"),
    ("grants", "list", "--all"),
    ("changes", "list"),
    ("resume", "--yes", "--agent", "agent-1"),
)
"""What finds nothing in an organisation that has nothing."""
TRIED_BELOW = {
    *("approvals watch", "halt", "login", "logout", "packs activate", "packs deactivate", "packs list"),
    *("packs show", "policies apply", "webhooks add"),
}
"""What names nothing of another organisation's; each acts on one's own."""
POLICY = {
    "apiVersion": "governance/v1",
    "kind": "Policy",
    "policyId": "hold-wires",
    "name": "Theirs",
    "action": "warn",
    "enabled": True,
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "wire"}],
}


def refusals(ids: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """Each with an id of the first organisation: to another one it does not exist."""
    approval, webhook, grant, change = (ids[name] for name in ("approval", "webhook", "grant", "change"))
    return (
        ("approvals", "show", approval),
        ("approvals", "approve", approval, "--yes"),
        ("approvals", "approve", approval, "--yes", "--grant", "run"),
        ("approvals", "reject", approval, "--yes"),
        ("webhooks", "remove", webhook, "--yes"),
        ("webhooks", "test", webhook),
        ("webhooks", "deliveries", webhook),
        ("webhooks", "redeliver", webhook, "dlv_1"),
        ("alerts", "show", "alr_1"),
        ("alerts", "acknowledge", "alr_1"),
        ("policies", "show", "hold-wires"),
        ("policies", "enable", "hold-wires"),
        ("policies", "disable", "hold-wires", "--yes"),
        ("policies", "history", "hold-wires"),
        ("policies", "rollback", "hold-wires", "1", "--yes"),
        ("grants", "show", grant),
        ("grants", "revoke", grant, "--yes"),
        ("changes", "show", change),
        ("changes", "approve", change, "--yes"),
        ("changes", "reject", change, "--yes"),
        ("resume", "--yes", "--halt", ids["halt"]),
    )


def test_each_command_for_a_running_service_is_tried() -> None:
    tried = {each[:2] for each in (*EMPTY, *refusals(dict.fromkeys(IDS, "x")), ("grants", "exempt"))}
    names = {" ".join(each for each in words if not each.startswith("-")) for words in tried}
    assert names | TRIED_BELOW == set(_commands(parser(), ())), "a new command belongs into a table above"


def _commands(found: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[str]:
    actions = [each for each in found._actions if isinstance(each, argparse._SubParsersAction)]
    if not actions:
        yield " ".join(words)
    for action in actions:
        for name, below in action.choices.items():
            if words or name in GROUPS:
                yield from _commands(below, (*words, name))


IDS = ("approval", "webhook", "grant", "change", "halt")


def test_no_command_reaches_another_organisation(two: Operator, tmp_path: Path) -> None:
    operator, ids = two, dict.fromkeys(IDS, "")
    ids["halt"] = operator.json("halt", "--agent", "somebody")["haltId"]
    granted = operator.held(1, amount=1)
    operator.done("approvals", "approve", granted, "--yes", "--grant", "agent")
    (grant,) = operator.json("grants", "list")
    ids["grant"], ids["approval"] = grant["grantId"], operator.held(2, amount=2)
    address = "http://127.0.0.1:9/hook"
    ids["webhook"] = operator.json("webhooks", "add", address, "--event", "tool.blocked")["webhookId"]
    assert operator.run("policies", "disable", "hold-wires", "--yes")[0] == 4
    (change,) = operator.json("changes", "list")
    ids["change"] = change["changeId"]
    operator.service.write(lambda transaction: raise_alerts(transaction, [found("alr_1", "high")]))
    before = _state(operator, ids)

    operator.become("other admin")
    for words in EMPTY:
        assert operator.json(*words) == [], words
    for words in refusals(ids):
        assert "the service refuses (404)" in operator.refused(*words), words
    exempt = ("grants", "exempt", "run-1", "--label", "x", "--reason", "y", "--yes")
    assert "there is no run `run-1`" in operator.refused(*exempt)
    _acts_on_its_own(operator, tmp_path)
    operator.become("admin")
    assert _state(operator, ids) == before
    operator.done("changes", "reject", ids["change"], "--yes")


def _acts_on_its_own(operator: Operator, folder: Path) -> None:
    """What a command does that names nothing of another's."""
    (folder / "hold-wires.yaml").write_text(json.dumps(POLICY), encoding="utf-8")
    operator.done("policies", "apply", folder / "hold-wires.yaml", "--yes")
    assert [each["name"] for each in operator.json("policies", "list")] == ["Theirs"]
    operator.done("packs", "activate", "integrity", "--yes")
    assert operator.json("packs", "show", "integrity")["activatedCount"] > 0
    operator.done("halt", "--yes")
    operator.done("webhooks", "add", "http://127.0.0.1:9/theirs", "--event", "tool.blocked")
    _, email, _ = PEOPLE["other admin"]
    operator.environment.delenv("GOVERNANCE_TOKEN")
    operator.environment.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    operator.done("login", "--email", email, "--password-stdin")
    assert [each["url"] for each in operator.json("webhooks", "list")] == ["http://127.0.0.1:9/theirs"]
    operator.done("logout")
    operator.become("other admin")


def _state(operator: Operator, ids: dict[str, str]) -> Any:
    """Of all that the first organisation has."""
    shown = [
        ("approvals", "show", ids["approval"]),
        ("grants", "show", ids["grant"]),
        ("changes", "show", ids["change"]),
        ("policies", "show", "hold-wires"),
        ("packs", "show", "integrity"),
        *((name, "list") for name in ("alerts", "approvals", "changes", "grants", "policies", "webhooks")),
        ("halts",),
    ]
    return [operator.json(*words) for words in shown]
