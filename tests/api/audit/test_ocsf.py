"""Records as events of OCSF: each is what the schema of that version asks for, and nothing of it is lost."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from api.audit import ocsf
from tests.harness.application import PASSWORD, Service
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")
BLOCK = {**HOLD, "policyId": "no-launches", "name": "No launches", "action": "block"} | {
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "launch"}]
}
TYPES = {"string_t": str, "integer_t": int, "long_t": int, "boolean_t": bool}


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        Path(__file__).with_name("ocsf-1.8.0.json").read_text(encoding="utf-8")
    )
    return found


def problems(event: dict[str, Any]) -> list[str]:
    """What the schema has against an event."""
    of_class = schema()["classes"][str(event["class_uid"])]
    found = list(_object(event, of_class, "event"))
    if event["type_uid"] != event["class_uid"] * 100 + event["activity_id"]:
        found.append("type_uid")
    for name in ("activity", "severity", "status", "action", "disposition"):
        number, sibling = f"{name}_id", "activity_name" if name == "activity" else name
        if number in event and event[number] != 99:
            caption = of_class["attributes"][number]["enum"][str(event[number])]
            found += [] if event[sibling] == caption else [f"{sibling} is {event[sibling]}, not {caption}"]
    return found


def _object(value: Any, shape: dict[str, Any], where: str) -> list[str]:
    attributes = shape["attributes"]
    found = [f"{where}.{name} is missing" for name, each in attributes.items() if each.get("required")]
    found = [each for each in found if each.rpartition(".")[2].removesuffix(" is missing") not in value]
    for wanted in (shape.get("constraints", {}).get("at_least_one"),):
        if wanted and not set(wanted) & value.keys():
            found.append(f"{where} has none of {wanted}")
    for name, inner in value.items():
        place = f"{where}.{name}"
        if name not in attributes:
            found.append(f"{place} is not known")
            continue
        rule = attributes[name]
        for each in inner if rule.get("array") else [inner]:
            found += _value(each, rule, place)
    return found


def _value(value: Any, rule: dict[str, Any], place: str) -> list[str]:
    if rule["type"] in schema()["objects"]:
        return _object(value, schema()["objects"][rule["type"]], place)
    wanted = TYPES.get(rule["type"])
    if wanted is not None and type(value) is not wanted:
        return [f"{place} is no {rule['type']}"]
    if "enum" in rule and str(value) not in rule["enum"]:
        return [f"{place} is {value}"]
    return []


def test_the_check_itself_finds_what_is_wrong() -> None:
    sound = ocsf.event_of(
        {
            "auditId": "aud_1",
            "sequence": 1,
            "at": "2026-01-31T09:30:00.123456Z",
            "type": "decision",
            "organisationId": "default",
            "previousHash": "0" * 64,
            "hash": "1" * 64,
        }
    )
    assert problems(sound) == []
    assert problems({**sound, "verdict": 1}) == ["event.verdict is not known"]
    assert problems({**sound, "time": "now"}) == ["event.time is no long_t"]
    assert problems({**sound, "actor": {}})[0].startswith("event.actor has none of")
    assert problems({name: value for name, value in sound.items() if name != "api"}) == [
        "event.api is missing"
    ]
    assert problems({**sound, "severity_id": 1, "severity": "High"})


async def test_every_record_of_a_day_is_a_sound_event(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD, BLOCK], live=True) as service:
        await _a_day(service)
        asked = [await service.call("admin", "GET", f"/v1/audit?format={form}") for form in ("jsonl", "ocsf")]
    records, events = ([json.loads(line) for line in answer.text.splitlines()] for answer in asked)
    assert "audit.ocsf.jsonl" in asked[1].headers["content-disposition"]
    assert len(events) == len(records) > 10
    for record, event in zip(records, events, strict=True):
        assert problems(event) == [], record
        assert event["metadata"]["uid"] == record["auditId"]
        assert event["unmapped"].get("details") == record.get("details"), "nothing is lost"
        assert event["unmapped"]["hash"] == record["hash"]
    told = {event["metadata"]["event_code"]: event for event in reversed(events)}
    assert told.keys() >= {
        "decision",
        "approval.resolved",
        "login",
        "login.failed",
        "key.created",
        "agent.halted",
    }
    assert told["login"]["class_uid"] == 3002 and told["login"]["user"]["name"] == "admin@acme.example"
    assert told["login.failed"]["status"] == "Failure"
    assert told["key.created"]["activity_name"] == "Create"
    assert told["approval.resolved"]["disposition"] == "Approved"
    by_tool = {event["api"]["operation"]: event for event in events if event["class_uid"] == 6003}
    blocked = by_tool["launch"]
    assert (blocked["action"], blocked["disposition"]) == ("Denied", "Blocked")
    assert blocked["policy"]["uid"] == "no-launches"
    assert (blocked["actor"]["app_name"], blocked["metadata"]["correlation_uid"]) == ("mailer", "run-1")
    assert blocked["time"] == round(service.clock.START * 1000)


async def _a_day(service: Service) -> None:
    for number, tool in enumerate(("launch", "pay", "look")):
        answer = await service.report("agent", number, "tool.called", toolCallId=f"c{number}", toolName=tool)
        if tool == "pay":
            approval = answer.json()["approvalId"]
    await service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve")
    for password in (PASSWORD, "not the password"):
        await service.call(
            "nobody", "POST", "/auth/login", {"email": "admin@acme.example", "password": password}
        )
    await service.call("admin", "POST", "/v1/api-keys", {"name": "another"})
    await service.call("admin", "PATCH", "/v1/policies/no-launches", {"enabled": False})
    await service.call("admin", "DELETE", "/v1/policies/no-launches")
    await service.call("admin", "POST", "/v1/halt", {"agentId": "mailer", "reason": "misbehaves"})
    await service.report("agent", 9, "tool.called", toolCallId="c9", toolName="look")
    await service.call("admin", "POST", "/v1/resume", {"agentId": "mailer"})
    await service.report("agent", 10, "tool.completed", toolCallId="unknown", toolName="look")
    await service.call("viewer", "POST", "/v1/policies", {})
    await service.housekeeping()


DECISIONS = ("allowed", "blocked", "awaiting_approval", "approved", "rejected", "expired", "cancelled")


@pytest.mark.parametrize("decision", DECISIONS)
def test_each_decision_has_an_action_and_a_disposition(decision: str) -> None:
    record = {
        "auditId": "aud_1",
        "sequence": 1,
        "at": "2026-01-31T09:30:00.123456Z",
        "type": "decision",
        "organisationId": "default",
        "decision": decision,
        "hash": "1" * 64,
        "userId": "ann",
        "userEmail": "ann@example.com",
        "agentId": "mailer",
        "toolCallId": "c1",
        "toolName": "pay",
    }
    event = ocsf.event_of(record)
    assert problems(event) == []
    assert event["metadata"]["profiles"] == ["security_control"]
    assert event["actor"]["user"] == {"uid": "ann", "email_addr": "ann@example.com"}
