"""The audit log: one hash chain per organisation over canonical JSON.

Record: `{auditId, sequence, at, type, organisationId, actor, agentId, runId, toolCallId, userId, userEmail,
keyScopes, delegationChain, toolName, decision, reason, asserted, policyRevision, details, previousHash,
hash}`; keys without a value are absent, and `asserted` is what the agent says and nobody has verified. `hash`
is the sha256 (hex) of the canonical JSON of the record without `hash`; the first record's `previousHash` is
64 zeros. Changing, dropping or swapping any record breaks every later link.

INVARIANT: no secret, token, key or payload ever becomes part of a record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import msgspec
from peewee import SqliteDatabase, fn

from api.clock import Ids
from api.database.connection import Database
from api.database.models import Audit
from api.database.table import database
from engine.canonical_json import canonical_json

GENESIS = "0" * 64
MOST_READ = 2_000
TIME_OF_ID = len("aud_") + 12
"""Characters of an `auditId` up to the end of its time."""
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


_encode = msgspec.json.Encoder(order="deterministic").encode
"""Canonical JSON of a `Record`, whose fields are sorted already: what `canonical_json` writes, but faster."""


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a hash covers; see the module. `at`, `auditId`, `previousHash` and `sequence` are given to it when
    it is appended. The fields are in the order of their names, which canonical JSON need not sort then."""

    actor: str | None = None
    agentId: str | None = None  # noqa: N815
    asserted: Mapping[str, Any] | None = None
    at: str = ""
    auditId: str = ""  # noqa: N815
    decision: str | None = None
    delegationChain: list[Any] | None = None  # noqa: N815
    details: Mapping[str, Any] | None = None
    keyScopes: Sequence[str] | None = None  # noqa: N815
    organisationId: str  # noqa: N815
    policyRevision: int | None = None  # noqa: N815
    previousHash: str = ""  # noqa: N815
    reason: str | None = None
    runId: str | None = None  # noqa: N815
    sequence: int = 0
    toolCallId: str | None = None  # noqa: N815
    toolName: str | None = None  # noqa: N815
    type: str
    userEmail: str | None = None  # noqa: N815
    userId: str | None = None  # noqa: N815


TIP = (
    "SELECT organisation_id, sequence, hash FROM audit WHERE organisation_id = ?"
    " ORDER BY sequence DESC LIMIT 1"
)
"""The newest record of a chain."""


Tip = tuple[int, str]
"""`sequence` and `hash` of a chain's newest record."""

Spans = Mapping[str, tuple[int, int]]
"""Organisation to the first and last `sequence` of records that belong together."""


def link(record: Mapping[str, Any]) -> str:
    """The hash of a record that has no `hash` yet."""
    return sha256(canonical_json(record)).hexdigest()


class Chain:
    """Appends within one transaction: reads each organisation's tip once, writes all records at the end."""

    def __init__(self, store: Database, ids: Ids, at: str) -> None:
        self._store = store
        self._ids = ids
        self._at = at
        self._tips: dict[str, Tip] = {}
        self._before: dict[str, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._positions: dict[str, Tip] = {}

    @property
    def spans(self) -> Spans:
        """What was appended so far."""
        return {
            organisation_id: (self._before[organisation_id] + 1, last)
            for organisation_id, (last, _) in self._tips.items()
            if last > self._before[organisation_id]
        }

    def append(self, record: Record) -> str:
        """Append a record; returns its `auditId`."""
        organisation_id = record.organisationId
        sequence, record.previousHash = self.tip(organisation_id)
        audit_id = record.auditId = self._ids("aud")
        record.sequence = sequence = sequence + 1
        record.at = self._at
        text = _encode(record)
        digest = sha256(text).hexdigest()
        self._tips[organisation_id] = (sequence, digest)
        self._positions[audit_id] = (sequence, digest)
        self._rows.append(
            (
                organisation_id,
                sequence,
                audit_id,
                self._at,
                record.type,
                record.agentId,
                record.runId,
                record.userId,
                record.decision,
                text.decode(),
                digest,
            )
        )
        return audit_id

    def tip(self, organisation_id: str) -> Tip:
        """The newest record, of this transaction or before; sequence 0 when there is none."""
        tip = self._tips.get(organisation_id)
        if tip is None:
            rows = self._store.rows(TIP, (organisation_id,)) or [(organisation_id, 0, GENESIS)]
            tip = self.begin(*rows[0])
        return tip

    def begin(self, organisation_id: str, sequence: int, digest: str) -> Tip:
        """Go on after this record."""
        tip = self._tips[organisation_id] = (int(sequence), str(digest))
        self._before[organisation_id] = tip[0]
        return tip

    def position(self, audit_id: str) -> Tip | None:
        """`sequence` and `hash` of a record that was appended here."""
        return self._positions.get(audit_id)

    def mark(self) -> object:
        return len(self._rows), dict(self._tips)

    def undo(self, mark: Any) -> None:
        count, tips = mark
        del self._rows[count:]
        self._tips = dict(tips)

    def flush(self) -> None:
        self._store.insert_many("audit", COLUMNS, self._rows)


def tips(store: Database) -> dict[str, int]:
    """Organisation to the `sequence` of its newest record."""
    rows = store.rows(
        "SELECT o.organisation_id, (SELECT MAX(a.sequence) FROM audit a"
        " WHERE a.organisation_id = o.organisation_id) FROM organisations o"
    )
    return {organisation_id: int(tip or 0) for organisation_id, tip in rows}


def between(store: Database, organisation_id: str, first: int, last: int) -> list[tuple[Any, ...]]:
    """`(type, run_id, record)` of a span of records, in order."""
    return store.rows(
        "SELECT type, run_id, record FROM audit"
        " WHERE organisation_id = ? AND sequence BETWEEN ? AND ? ORDER BY sequence",
        (organisation_id, first, last),
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records of one organisation; None: all. `since` is included, `until` is not (ISO 8601 UTC)."""

    organisation_id: str
    since: str | None = None
    until: str | None = None
    agent_id: str | None = None
    user_id: str | None = None
    run_id: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    type: str | None = None
    decision: str | None = None
    last: int | None = None
    """The newest `sequence` to include."""

    def where(self) -> Any:
        chosen = Audit.organisation_id == self.organisation_id
        if self.last is not None:
            chosen &= Audit.sequence <= self.last
        if self.since is not None:
            chosen &= Audit.at >= self.since
        if self.until is not None:
            chosen &= Audit.at < self.until
        for column, value in (
            (Audit.agent_id, self.agent_id),
            (Audit.user_id, self.user_id),
            (Audit.run_id, self.run_id),
            (_member("toolCallId"), self.tool_call_id),
            (_member("toolName"), self.tool_name),
            (Audit.type, self.type),
            (Audit.decision, self.decision),
        ):
            if value is not None:
                chosen &= column == value
        return chosen


def _member(name: str) -> Any:
    """A member of the record that has no column of its own."""
    if isinstance(database.obj, SqliteDatabase):
        return fn.json_extract(Audit.record, f"$.{name}")
    return fn.json_extract_path_text(Audit.record.cast("json"), name)


def find_record(organisation_id: str, audit_id: str) -> dict[str, Any] | None:
    """The record with this id, in the shape of `list_records`; in the whole chain, when it is not where ids
    of its time are."""
    found = find_near(organisation_id, audit_id)
    if found is None:
        query = Audit.select(Audit.record, Audit.hash).where(
            (Audit.organisation_id == organisation_id) & (Audit.audit_id == audit_id)
        )
        found = next(_records(query.limit(1)), None)
    return found


def find_near(organisation_id: str, audit_id: str) -> dict[str, Any] | None:
    """The record with this id. Ids have no index, which every event would pay for; they begin with the time,
    so a record is looked for where the chain reaches that time."""
    begin = audit_id[:TIME_OF_ID]
    near = _from(organisation_id, Audit.audit_id, lambda found: found[:TIME_OF_ID] < begin)
    return next(_records(near.where(Audit.audit_id == audit_id)), None)


def at_time(organisation_id: str, at: str, type: str) -> Iterator[dict[str, Any]]:
    """The records of this type that were written at this moment."""
    near = _from(organisation_id, Audit.at, lambda found: found < at)
    return _records(near.where((Audit.at == at) & (Audit.type == type)))


def _from(organisation_id: str, column: Any, is_before: Callable[[str], bool]) -> Any:
    """Records from the first on that is not before, `MOST_READ` of them; the column grows along the chain."""
    own = Audit.organisation_id == organisation_id

    def reached(sequence: int) -> bool:
        found = Audit.select(column).where(own & (Audit.sequence == sequence)).scalar()
        return not is_before(str(found or ""))

    newest = Audit.select(fn.MAX(Audit.sequence)).where(own).scalar() or 0
    first = 1 + bisect_left(range(1, newest + 1), True, key=reached)
    return Audit.select(Audit.record, Audit.hash).where(
        own & Audit.sequence.between(first, first + MOST_READ)
    )


def _records(query: Any) -> Iterator[dict[str, Any]]:
    for text, digest in query.tuples():
        yield {**msgspec.json.decode(text), "hash": digest}


def list_records(
    chosen: Filter, limit: int, after: int | None, ascending: bool
) -> tuple[list[dict[str, Any]], int, int | None]:
    """One page in order of `sequence`, how many there are in all, and where the next page begins."""
    total = Audit.select().where(chosen.where()).count()
    rows = _rows(chosen, limit + 1, after, ascending)
    more = len(rows) > limit
    rows = rows[:limit]
    records = [{**msgspec.json.decode(text), "hash": digest} for _, text, digest in rows]
    return records, int(total), rows[-1][0] if more else None


def export_lines(chosen: Filter, limit: int, after: int | None, ascending: bool) -> tuple[bytes, int | None]:
    """The next lines of an export, and where to go on (None: that was all).

    Each line is the canonical record, byte for byte as hashed, with `hash` put at its end, so that anybody
    can check the chain without the service.
    """
    rows = _rows(chosen, limit, after, ascending)
    lines = "".join(f'{text[:-1]},"hash":"{digest}"}}\n' for _, text, digest in rows)
    return lines.encode(), rows[-1][0] if len(rows) == limit else None


def up_to_now(chosen: Filter) -> Filter:
    """The same records without those that are still to come."""
    newest = Audit.select(fn.MAX(Audit.sequence)).where(Audit.organisation_id == chosen.organisation_id)
    return replace(chosen, last=int(newest.scalar() or 0))


def _rows(chosen: Filter, limit: int, after: int | None, ascending: bool) -> list[tuple[int, str, str]]:
    where = chosen.where()
    if after is not None:
        where &= (Audit.sequence > after) if ascending else (Audit.sequence < after)
    order = Audit.sequence if ascending else Audit.sequence.desc()
    query = Audit.select(Audit.sequence, Audit.record, Audit.hash).where(where).order_by(order).limit(limit)
    rows: list[Any] = list(query.tuples())
    return rows


def follows(row: tuple[Any, ...], expected: int, previous: str) -> bool:
    """True when a row (in the order of `COLUMNS`) is the intact record number `expected`."""
    *columns, text, digest = row
    record = _decoded(text)
    if record is None or sha256(text.encode()).hexdigest() != digest:
        return False
    said = [
        record.get(name)
        for name in (
            "organisationId",
            "sequence",
            "auditId",
            "at",
            "type",
            "agentId",
            "runId",
            "userId",
            "decision",
        )
    ]
    return columns == said and record["sequence"] == expected and record.get("previousHash") == previous


def walk(organisation_id: str) -> Iterator[tuple[Any, ...]]:
    """All rows in order, some at a time, so that a long chain needs little memory."""
    last = -(1 << 62)
    while True:
        rows: list[Any] = list(
            Audit.select(*(getattr(Audit, column) for column in COLUMNS))
            .where((Audit.organisation_id == organisation_id) & (Audit.sequence > last))
            .order_by(Audit.sequence)
            .limit(MOST_READ)
            .tuples()
        )
        yield from rows
        if len(rows) < MOST_READ:
            return
        last = rows[-1][1]


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return record if isinstance(record, dict) else None
