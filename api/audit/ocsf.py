"""A record of the audit log as an event of OCSF, the Open Cybersecurity Schema Framework, version 1.8.0.

Logins are Authentication (3002), everything else is API Activity (6003), decisions with the profile of
security controls. What has no place there stands in `unmapped`, so that nothing of a record is lost; the hash
among it is that of the record as it is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from api import clock
from api.version import VERSION

SCHEMA: Final = "1.8.0"
NAME: Final = "Agent Governance Service"
AUTHENTICATION, API_ACTIVITY = 3002, 6003
CREATE, UPDATE, DELETE, OTHER = 1, 3, 4, 99
LOGON: Final = 1

_ACTIVITIES: Final = {
    CREATE: ("Create", frozenset({"created"})),
    UPDATE: ("Update", frozenset({"changed", "updated", "rotated", "rekeyed", "disabled", "enabled"})),
    DELETE: ("Delete", frozenset({"deleted", "revoked", "dropped"})),
}
"""By the last word of the record's type."""
_CONTROLS: Final = {
    "allowed": (1, "Allowed", 1, "Allowed"),
    "blocked": (2, "Denied", 2, "Blocked"),
    "awaiting_approval": (99, "awaiting_approval", 14, "Delayed"),
    "approved": (1, "Allowed", 8, "Approved"),
    "rejected": (2, "Denied", 25, "Rejected"),
    "expired": (2, "Denied", 2, "Blocked"),
    "cancelled": (2, "Denied", 2, "Blocked"),
}
"""Decision -> action and disposition, each with its caption."""
_SEVERITIES: Final = {
    "enforcement.gap": (4, "High"),
    "decision.doubtful": (4, "High"),
    "alert.raised": (4, "High"),
    "agent.halted": (3, "Medium"),
    "audit.restored": (3, "Medium"),
    "audit.dropped": (3, "Medium"),
    "policy.reload_failed": (3, "Medium"),
    "login.failed": (2, "Low"),
    "request.refused": (2, "Low"),
}
"""What is no mere information."""
_FAILED: Final = frozenset({"login.failed", "request.refused", "policy.reload_failed"})
_MAPPED: Final = frozenset(
    {
        *("auditId", "sequence", "at", "type", "organisationId", "actor", "agentId", "runId", "toolCallId"),
        *("userId", "userEmail", "toolName", "decision", "reason"),
    }
)
"""Members of a record that have a place of their own."""


def lines(records: bytes) -> bytes:
    """An export of records, one a line, as events, one a line."""
    encode, decode = msgspec.json.encode, msgspec.json.decode
    return b"".join(encode(event_of(decode(line))) + b"\n" for line in records.splitlines())


def event_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a record with its `hash`."""
    kind: str = record["type"]
    login = kind in ("login", "login.failed")
    class_uid = AUTHENTICATION if login else API_ACTIVITY
    activity_id, activity = (LOGON, "Logon") if login else _activity(kind)
    severity_id, severity = _SEVERITIES.get(kind, (1, "Informational"))
    status_id, status = (2, "Failure") if kind in _FAILED else (1, "Success")
    event: dict[str, Any] = {
        "category_uid": class_uid // 1000,
        "category_name": "Identity & Access Management" if login else "Application Activity",
        "class_uid": class_uid,
        "class_name": "Authentication" if login else "API Activity",
        "activity_id": activity_id,
        "activity_name": activity,
        "type_uid": class_uid * 100 + activity_id,
        "type_name": f"{'Authentication' if login else 'API Activity'}: {activity}",
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "time": round(clock.seconds(record["at"]) * 1000),
        "metadata": _metadata(record),
        "actor": _actor(record),
        "src_endpoint": _source(record),
        "unmapped": {name: value for name, value in record.items() if name not in _MAPPED},
    }
    if (reason := record.get("reason")) is not None:
        event["message"] = reason
    if login:
        return event | {"user": {"name": record.get("actor", "nobody")}, "service": {"name": NAME}}
    event["api"] = _api(record)
    if resources := _resources(record):
        event["resources"] = resources
    return event | _control(record)


def _activity(kind: str) -> tuple[int, str]:
    last = kind.rpartition(".")[2]
    for activity_id, (caption, words) in _ACTIVITIES.items():
        if last in words:
            return activity_id, caption
    return OTHER, kind


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "version": SCHEMA,
        "product": {"name": NAME, "vendor_name": NAME, "version": VERSION},
        "uid": record["auditId"],
        "event_code": record["type"],
        "sequence": record["sequence"],
        "tenant_uid": record["organisationId"],
        "log_name": "audit",
        "original_time": record["at"],
    }
    if record.get("decision") in _CONTROLS:
        found["profiles"] = ["security_control"]
    if "runId" in record:
        found["correlation_uid"] = record["runId"]
    return found


def _actor(record: Mapping[str, Any]) -> dict[str, Any]:
    """The agent and its key, on whose behalf, or the person."""
    who: str = record.get("actor", "service")
    found: dict[str, Any] = {}
    if "@" in who:
        found["user"] = {"name": who, "email_addr": who}
    else:
        found["app_uid"] = who
    if "agentId" in record:
        found["app_name"] = record["agentId"]
    if "userId" in record:
        found["user"] = {"uid": record["userId"]}
        if "userEmail" in record:
            found["user"]["email_addr"] = record["userEmail"]
    return found


def _source(record: Mapping[str, Any]) -> dict[str, str]:
    """Where it came from: the address where the record has one, else who it was."""
    address = (record.get("details") or {}).get("address")
    if isinstance(address, str) and address not in ("", "unknown"):
        return {"ip": address}
    return {"uid": record.get("agentId") or record.get("actor") or "service"}


def _api(record: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operation": record.get("toolName", record["type"]),
        "service": {"name": NAME},
    }
    if "toolCallId" in record:
        found["request"] = {"uid": record["toolCallId"]}
    return found


def _resources(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the record's details name by an id."""
    details = record.get("details") or {}
    return [
        {"type": name.removesuffix("Id"), "uid": value}
        for name, value in details.items()
        if name.endswith("Id") and isinstance(value, str)
    ]


def _control(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was decided, and by which policy."""
    known = _CONTROLS.get(record.get("decision", ""))
    if known is None:
        return {}
    action_id, action, disposition_id, disposition = known
    found: dict[str, Any] = {
        "action_id": action_id,
        "action": action,
        "disposition_id": disposition_id,
        "disposition": disposition,
    }
    details = record.get("details") or {}
    policies = details.get("policyIds") or [details[name] for name in ("policyId",) if details.get(name)]
    if policies:
        found["policy"] = {"uid": policies[0], "is_applied": True}
        if "policyRevision" in record:
            found["policy"]["version"] = str(record["policyRevision"])
    return found
