"""Whether calls, approvals, events, policy versions and people say what the log says of them.

`told` is given every record of one organisation's log, oldest first; `problems` then compares the tables.
Calls and events are read along with the log, in the order in which both were written, so that a long history
needs little memory. What was written after the comparison began is left to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.database.connection import Database

PAGE: Final = 1_000
_decode = msgspec.json.decode

_CALLS: Final = (
    "SELECT call_no, decided_at, audit_id, tool_call_id, tool_name, payload_digest, policy_revision,"
    " status, approval_id FROM tool_calls WHERE organisation_id = ? AND call_no > ? AND call_no <= ?"
    " ORDER BY call_no LIMIT ?"
)
_EVENTS: Final = (
    "SELECT event_no, received_at, event_id, body FROM events WHERE organisation_id = ?"
    " AND event_no > ? AND event_no <= ? ORDER BY event_no LIMIT ?"
)
_APPROVALS: Final = (
    "SELECT a.approval_id, a.status, a.actor, a.resolved_by, a.decision_reason, c.status FROM approvals a"
    " LEFT JOIN tool_calls c ON c.call_no = a.call_no WHERE a.organisation_id = ? AND a.requested_at <= ?"
    " AND (a.resolved_at IS NULL OR a.resolved_at <= ?)"
)
_VERSIONS: Final = (
    "SELECT policy_id, version, digest FROM policy_versions WHERE organisation_id = ? AND created_at <= ?"
)
_BLOBS: Final = (
    "SELECT b.digest, b.content FROM policy_versions v JOIN blobs b ON b.digest = v.digest"
    " WHERE v.organisation_id = ?"
)
_USERS: Final = "SELECT user_id, email, role, enabled FROM users WHERE organisation_id = ?"


class _Along:
    """Rows of a table, taken in step with the records that were written with them, in the same order."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        """Each row begins with its number, when it was written, and its key."""
        self._rows = rows
        self._next = next(rows, None)
        self._at = ""
        self._group: dict[str, tuple[Any, ...]] = {}
        """Rows written at `_at` that no record has asked for yet."""
        self.left: list[tuple[Any, ...]] = []
        """Rows that no record has asked for."""

    def take(self, at: str, key: str) -> tuple[Any, ...] | None:
        """The row that was written at this time under this key; None when it is gone."""
        self._go_to(at)
        return self._group.pop(key, None) if at == self._at else None

    def leave(self, at: str) -> None:
        """Rows of this time are none of ours."""
        self._go_to(at)
        if at == self._at:
            self._group = {}

    def _go_to(self, at: str) -> None:
        if at == self._at:
            return
        while self._next is not None and self._next[1] <= at:
            if self._next[1] != self._at:
                self._close()
                self._at = self._next[1]
            self._group[self._next[2]] = self._next
            self._next = next(self._rows, None)

    def _close(self) -> None:
        self.left += self._group.values()
        self._group = {}

    def finish(self) -> list[tuple[Any, ...]]:
        """All rows that no record has asked for."""
        self._close()
        self.left += ((self._next, *self._rows)) if self._next is not None else ()
        return self.left


class Agreement:
    """One comparison."""

    def __init__(self, store: Database, organisation_id: str) -> None:
        self._store = store
        self._organisation_id = organisation_id
        self._problems: list[str] = []
        ((last_call,),) = store.rows("SELECT MAX(call_no) FROM tool_calls")
        ((last_event,),) = store.rows("SELECT MAX(event_no) FROM events")
        ((last_at,),) = store.rows("SELECT MAX(at) FROM audit WHERE organisation_id = ?", (organisation_id,))
        self._last_at = str(last_at or "")
        self._calls = _Along(self._pages(_CALLS, int(last_call or 0)))
        self._events = _Along(self._pages(_EVENTS, int(last_event or 0)))
        self._approvals: dict[str, tuple[Any, ...]] = {}
        """Approval -> status, actor, who resolved it, reason, status of the call, as the log says."""
        self._versions: dict[tuple[str, int], str] = {}
        self._users: dict[str, dict[str, Any]] = {}

    def _pages(self, statement: str, last: int) -> Iterator[tuple[Any, ...]]:
        number = -1
        while rows := self._store.rows(statement, (self._organisation_id, number, last, PAGE)):
            yield from rows
            number = rows[-1][0]

    # The log --------------------------------------------------------------------------------------

    def told(self, row: tuple[Any, ...]) -> None:
        """The next record, as a row in the order of `audit_chain.COLUMNS`."""
        match row[4]:
            case "decision":
                record = _decode(row[9])
                self._event_of(record)
                self._decision(record)
            case "event" | "decision.repeated":
                self._event_of(_decode(row[9]))
            case "approval.resolved":
                record = _decode(row[9])
                details = record["details"]
                self._approvals[details["approvalId"]] = (
                    record["decision"],
                    record.get("actor"),
                    details.get("resolvedBy"),
                    record.get("reason"),
                    details["toolCallStatus"],
                )
            case "policy.changed":
                details = _decode(row[9])["details"]
                if details["change"] != "deleted":
                    self._versions[(details["policyId"], details["version"])] = details["digest"]
            case "user.created" | "user.updated":
                details = _decode(row[9])["details"]
                person = self._users.setdefault(details["userId"], {"enabled": True})
                person |= {name: details[name] for name in ("role", "enabled") if name in details}

    def _decision(self, record: dict[str, Any]) -> None:
        details, audit_id = record["details"], record["auditId"]
        approval_id = details.get("approvalId")
        if approval_id is not None:
            self._approvals[approval_id] = ("pending", None, None, None, "awaiting_approval")
        row = self._calls.take(record["at"], audit_id)
        call = f"the call `{record['toolCallId']}` of run `{record['runId']}`"
        if row is None:
            self._problems.append(f"{call}, decided by record `{audit_id}`, is gone")
            return
        _, _, _, tool_call_id, tool_name, digest, revision, status, approval = row
        said = (record["toolCallId"], record["toolName"], record["policyRevision"], approval_id)
        same = (tool_call_id, tool_name, revision, approval) == said
        same = same and digest.startswith(details["payloadDigest"])
        if not same or (approval_id is None and status != record["decision"]):
            self._problems.append(f"{call} says something else than its record `{audit_id}`")

    def _event_of(self, record: dict[str, Any]) -> None:
        """Old events go with time, and a repeated one leaves no row; but one that is there is as it was."""
        details = record.get("details") or {}
        if "bodyDigest" not in details:
            self._events.leave(record["at"])  # by a version that did not note it
            return
        row = self._events.take(record["at"], details["eventId"])
        if row is not None and body_digest(bytes(row[3])) != details["bodyDigest"]:
            self._problems.append(
                f"the body of event `{row[2]}` is not the one of record `{record['auditId']}`"
            )

    # The tables -----------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Everything found; asked once, at the end of the log."""
        for row in self._calls.finish():
            self._problems.append(f"the call `{row[3]}` (record `{row[2]}`) was never decided by this log")
        for row in self._events.finish():
            self._problems.append(f"the event `{row[2]}` was never recorded by this log")
        self._compare_approvals()
        self._compare_versions()
        self._compare_users()
        return self._problems

    def _compare_approvals(self) -> None:
        at = self._last_at
        for approval_id, *row in self._store.rows(_APPROVALS, (self._organisation_id, at, at)):
            said = self._approvals.pop(approval_id, None)
            if said is None:
                self._problems.append(f"the approval `{approval_id}` was never asked for by this log")
            elif tuple(row) != said:
                self._problems.append(
                    f"the approval `{approval_id}` or its call says something else than the log: `{row[0]}`"
                    f" by {row[1] or 'nobody'}, call `{row[4]}`; the log says `{said[0]}` by"
                    f" {said[1] or 'nobody'}, call `{said[4]}`"
                )

    def _compare_versions(self) -> None:
        rows = self._store.rows(_VERSIONS, (self._organisation_id, self._last_at))
        found = {(policy_id, int(version)): digest for policy_id, version, digest in rows}
        for (policy_id, version), digest in self._versions.items():
            if found.get((policy_id, version), digest) != digest:
                self._problems.append(f"version {version} of policy `{policy_id}` is not the one of the log")
        for policy_id, version in found.keys() - self._versions.keys():
            self._problems.append(f"version {version} of policy `{policy_id}` is not in the log")
        for policy_id, version in self._versions.keys() - found.keys():
            self._problems.append(f"version {version} of policy `{policy_id}` is gone")
        for digest, content in self._store.rows(_BLOBS, (self._organisation_id,)):
            if sha256(bytes(content)).hexdigest() != digest:
                self._problems.append(f"the archived text `{digest[:16]}` of a policy was changed")

    def _compare_users(self) -> None:
        for user_id, email, role, enabled in self._store.rows(_USERS, (self._organisation_id,)):
            said = self._users.get(user_id)
            if said is None:
                self._problems.append(f"the user `{email}` is not in the log")
            elif (said["role"], said["enabled"]) != (role, bool(enabled)):
                state = "enabled" if said["enabled"] else "disabled"
                self._problems.append(
                    f"the user `{email}` is `{role}`{'' if enabled else ', disabled'}; the log says"
                    f" `{said['role']}`, {state}"
                )


def body_digest(body: bytes) -> str:
    """What a record says of the body of its event."""
    return sha256(body).hexdigest()
