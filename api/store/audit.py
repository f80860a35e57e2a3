"""The audit log: one hash chain per organisation over canonical JSON.

Record: `{auditId, sequence, at, type, organisationId, actor, agentId, runId, toolCallId, userId,
delegationChain, toolName, decision, reason, policyRevision, details, previousHash, hash}`; keys without a
value are absent. `hash` is the sha256 (hex) of the canonical JSON of the record without `hash`; the first
record's `previousHash` is 64 zeros. Changing, dropping or swapping any record breaks every later link.

INVARIANT: no secret, token, key or payload ever becomes part of a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from api.clock import Ids
from api.store.database import Database
from api.store.models import Audit

GENESIS = "0" * 64
FIELDS = frozenset(
    {
        "actor",
        "agentId",
        "runId",
        "toolCallId",
        "userId",
        "delegationChain",
        "toolName",
        "decision",
        "reason",
        "policyRevision",
        "details",
    }
)
COLUMNS = (
    "organisation_id",
    "sequence",
    "audit_id",
    "at",
    "type",
    "agent_id",
    "run_id",
    "user_id",
    "decision",
    "record",
    "hash",
)
_encode = msgspec.json.Encoder(order="sorted").encode


def link(record: Mapping[str, Any]) -> str:
    """The hash of a record that has no `hash` yet."""
    return sha256(_encode(record)).hexdigest()


class Chain:
    """Appends within one transaction: reads each organisation's tip once, writes all records at the end."""

    def __init__(self, store: Database, ids: Ids, at: str) -> None:
        self._store = store
        self._ids = ids
        self._at = at
        self._tips: dict[str, tuple[int, str]] = {}
        self._rows: list[tuple[Any, ...]] = []

    def append(self, organisation_id: str, type: str, fields: Mapping[str, Any]) -> str:
        unknown = fields.keys() - FIELDS
        if unknown:
            raise ValueError(f"no such audit field: {sorted(unknown)}")
        sequence, previous = self._tips.get(organisation_id) or self._tip(organisation_id)
        audit_id = self._ids("aud")
        record = {name: value for name, value in fields.items() if value is not None}
        record |= {
            "auditId": audit_id,
            "sequence": sequence + 1,
            "at": self._at,
            "type": type,
            "organisationId": organisation_id,
            "previousHash": previous,
        }
        text = _encode(record)
        digest = sha256(text).hexdigest()
        self._tips[organisation_id] = (sequence + 1, digest)
        self._rows.append(
            (
                organisation_id,
                sequence + 1,
                audit_id,
                self._at,
                type,
                fields.get("agentId"),
                fields.get("runId"),
                fields.get("userId"),
                fields.get("decision"),
                text.decode(),
                digest,
            )
        )
        return audit_id

    def _tip(self, organisation_id: str) -> tuple[int, str]:
        rows = self._store.rows(
            "SELECT sequence, hash FROM audit WHERE organisation_id = ? ORDER BY sequence DESC LIMIT 1",
            (organisation_id,),
        )
        return (int(rows[0][0]), str(rows[0][1])) if rows else (0, GENESIS)

    def mark(self) -> object:
        return len(self._rows), dict(self._tips)

    def undo(self, mark: Any) -> None:
        count, tips = mark
        del self._rows[count:]
        self._tips = dict(tips)

    def flush(self) -> None:
        self._store.insert_many("audit", COLUMNS, self._rows)


def verify(organisation_id: str) -> dict[str, Any]:
    """Walk one organisation's chain: `{valid, count, firstBroken}`, the last an `auditId` or null."""
    previous, expected, count = GENESIS, 1, 0
    for row in _walk(organisation_id):
        sequence, audit_id, text, digest = row
        record = _decoded(text)
        intact = (
            record is not None
            and sequence == expected == record.get("sequence")
            and record.get("previousHash") == previous
            and record.get("auditId") == audit_id
            and sha256(str(text).encode()).hexdigest() == digest
        )
        if not intact:
            return {"valid": False, "count": count, "firstBroken": audit_id}
        previous, expected, count = digest, expected + 1, count + 1
    return {"valid": True, "count": count, "firstBroken": None}


def _walk(organisation_id: str) -> Iterator[tuple[int, str, str, str]]:
    query = (
        Audit.select(Audit.sequence, Audit.audit_id, Audit.record, Audit.hash)
        .where(Audit.organisation_id == organisation_id)
        .order_by(Audit.sequence)
        .tuples()
    )
    yield from query.iterator()


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        record = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return record if isinstance(record, dict) else None
