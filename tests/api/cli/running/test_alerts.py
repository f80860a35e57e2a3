"""Alerts from a terminal."""

from __future__ import annotations

from api.store.alerts.alerts import NewAlert, raise_alerts
from tests.api.cli.running.conftest import Operator

SUMMARY = "agent `clerk\x1b[2J\u202e` called 30 different tools"


def found(alert_id: str, severity: str) -> NewAlert:
    at = "2026-01-31T09:30:00Z"
    told = ("Many tools", severity, "look at what it does", SUMMARY, "agentId", "clerk", "clerk", None)
    return NewAlert(alert_id, "default", "many-tools", 1, *told, 30, 20, 60, at, at, ["aud_1", "aud_2"])


def test_alerts_are_listed_shown_and_acknowledged(operator: Operator) -> None:
    alerts = [found("alr_1", "high"), found("alr_2", "low")]
    operator.service.write(lambda transaction: raise_alerts(transaction, alerts))
    assert {each["alertId"] for each in operator.json("alerts", "list")} == {"alr_1", "alr_2"}
    (high,) = operator.json("alerts", "list", "--severity", "high", "--agent", "clerk")
    assert high["alertId"] == "alr_1" and high["summary"] == SUMMARY
    for words in (("list",), ("show", "alr_1")):
        said = operator.done("alerts", *words)
        assert "agent `clerk\\u001b[2J\\u202e`" in said.replace("\n", "") and "\x1b" not in said
    said = operator.done("alerts", "show", "alr_1")
    assert said.startswith("high, open: ") and "evidence: aud_2" in said and "threshold: 20" in said
    assert operator.done("alerts", "acknowledge", "alr_1", "--note", "a new agent").startswith(
        "acknowledged by "
    )
    assert operator.json("alerts", "show", "alr_1")["note"] == "a new agent"
    assert [each["alertId"] for each in operator.json("alerts", "list")] == ["alr_2"]
    assert len(operator.json("alerts", "list", "--status", "all")) == 2
    assert operator.json("alerts", "acknowledge", "alr_2")["status"] == "acknowledged"
    assert operator.json("alerts", "list") == []
    assert "the service refuses (404)" in operator.refused("alerts", "show", "alr_3")
    operator.become("viewer")
    assert "the service refuses (403)" in operator.refused("alerts", "acknowledge", "alr_2")
