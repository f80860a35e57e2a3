"""The rows that events leave, as structs: the fields of each are the columns of its table, stated once.

The statements that read and write these rows take their columns from here; a test compares them with the
tables of `database/models.py`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class TableRow(msgspec.Struct, gc=False):
    """One row of a table; the fields are its columns."""

    table: ClassVar[str]


class EventRow(TableRow):
    table: ClassVar[str] = "events"

    event_no: int
    organisation_id: str
    event_id: str
    id_hash: int
    run_no: int
    event_type: str
    received_at: str
    body: bytes
    receipt: bytes


class CallRow(TableRow):
    """A tool call with its decision. What it gave back is written by `Batch.complete` and never read here."""

    table: ClassVar[str] = "tool_calls"

    call_no: int
    organisation_id: str
    run_no: int
    tool_call_id: str
    call_hash: int
    event_no: int
    tool_name: str
    payload_digest: str
    status: str
    action: str
    reason: str
    matched: str
    shadow: str
    policy_revision: int
    policy_digest: str
    decided_at: str
    audit_id: str
    approval_id: str | None
    blocked_reason: str | None
    facts: str
    flags: str
    completed_at: str | None = None

    @property
    def current_reason(self) -> str:
        """Why it is blocked, once a reviewer or the end of its run has blocked it; else as decided."""
        return self.blocked_reason if self.status == "blocked" and self.blocked_reason else self.reason

    def add_flag(self, flag: str) -> None:
        flags = _decode(self.flags)
        if flag not in flags:
            self.flags = _encode([*flags, flag]).decode()


class ApprovalRow(TableRow):
    table: ClassVar[str] = "approvals"

    approval_id: str
    organisation_id: str
    run_no: int
    run_id: str
    agent_id: str
    call_no: int
    tool_call_id: str
    tool_name: str
    policy_id: str
    policy_name: str
    status: str
    reason: str
    requested_at: str
    expires_at: str | None
    about: str
    asked_by: str
    key_id: str
    terms: str | None
    payload_digest: str


class RunRow(TableRow):
    table: ClassVar[str] = "runs"

    run_no: int
    organisation_id: str
    run_id: str
    agent_id: str
    status: str
    task: str | None
    model: str | None
    reason: str | None
    agent_context: str | None
    started_at: str
    ended_at: str | None
    key_id: str
    parent_run_id: str | None = None
    labels: str = "[]"
    steps: str | None = None
    flow: int = 0


class RunValueRow(TableRow):
    table: ClassVar[str] = "run_values"

    run_no: int
    flow: int
    call_no: int
    task: bytes
    trusted: bytes
    untrusted: bytes
    words: bytes
    beyond: int

    @property
    def size(self) -> int:
        """Bytes of its values."""
        return len(self.task) + len(self.trusted) + len(self.untrusted) + len(self.words)


class RateHitRow(TableRow):
    table: ClassVar[str] = "rate_hits"

    bucket: str
    at: float
    expires_at: float


class GrantUseRow(TableRow):
    table: ClassVar[str] = "grant_uses"

    grant_id: str
    call_no: int


ROWS: tuple[type[TableRow], ...] = (
    *(EventRow, CallRow, ApprovalRow, RunRow),
    *(RunValueRow, RateHitRow, GrantUseRow),
)


def columns(row: type[TableRow], alias: str) -> str:
    """The columns of a row for a `SELECT`."""
    return ", ".join(f"{alias}.{name}" for name in row.__struct_fields__)
