"""The audit log: hash chains over canonical JSON, one for each organisation and lane.

A lane is a writer (`lanes/`); SQLite has one, whose chain has the number 0, and so has the log of older
databases. Reading many chains as one log is the business of `api/audit/records.py`.

Record: `{auditId, chain, sequence, at, type, organisationId, actor, agentId, runId, toolCallId, userId,
userEmail, keyScopes, delegationChain, toolName, decision, reason, asserted, policyRevision, details,
previousHash, hash}`; keys without a value are absent, as is the chain 0, and `asserted` is what the agent
says and nobody has verified. `hash` is the sha256 (hex) of the canonical JSON of the record without `hash`;
the first record's `previousHash` is 64 zeros. Changing, dropping or swapping any record breaks every later
link of its chain.

INVARIANT: no secret, token, key or payload ever becomes part of a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from peewee import fn

from api.clock import Ids
from api.database.connection import Database
from api.database.models import Audit
from engine.canonical_json import canonical_json

GENESIS = "0" * 64
FIRST_CHAIN = 0
MOST_READ = 2_000
COLUMNS = (
    "organisation_id",
    "chain",
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
    """What a hash covers; see the module. `at`, `auditId`, `chain`, `previousHash` and `sequence` are given
    to it when it is appended. The fields are in the order of their names, so that nobody need sort them."""

    actor: str | None = None
    agentId: str | None = None  # noqa: N815
    asserted: Mapping[str, Any] | None = None
    at: str = ""
    auditId: str = ""  # noqa: N815
    chain: int = FIRST_CHAIN
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


Tip = tuple[int, str]
"""`sequence` and `hash` of a chain's newest record."""

Position = tuple[int, str, int]
"""`sequence`, `hash` and `chain` of a record."""

ChainName = tuple[str, int]
"""Organisation and number."""

Spans = Mapping[ChainName, tuple[int, int]]
"""Chain to the first and last `sequence` of records that belong together."""

_TIP = (
    "SELECT sequence, hash FROM audit WHERE organisation_id = ? AND chain = ? ORDER BY sequence DESC LIMIT 1"
)
_TIP_OF_MANY = "SELECT sequence, hash FROM chains WHERE organisation_id = ? AND chain = ?"
"""On PostgreSQL, where all records of a chain that nobody has written to for long may be dropped."""
_TIPS_OF_ONE_CHAIN = (
    # CROSS JOIN: from each organisation into the index of the log, never over the log.
    "SELECT a.organisation_id, a.chain, a.sequence, a.hash FROM organisations o CROSS JOIN audit a"
    " WHERE a.organisation_id = o.organisation_id AND a.chain = 0 AND a.sequence ="
    " (SELECT MAX(b.sequence) FROM audit b WHERE b.organisation_id = o.organisation_id AND b.chain = 0"
    # Whoever changes one by hand may leave any type, and a text is above all numbers.
    " AND typeof(b.sequence) = 'integer')"
)
BEHIND_ALL = 1 << 62
"""A number that no record has."""
_TIPS = "SELECT organisation_id, chain, sequence, hash FROM chains"
_KEY = ("organisation_id", "chain")
_BEHIND = (
    f"SELECT {', '.join(COLUMNS)} FROM audit"
    " WHERE organisation_id = ? AND chain = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)


def link(record: Mapping[str, Any]) -> str:
    """The hash of a record that has no `hash` yet."""
    return sha256(canonical_json(record)).hexdigest()


class Chain:
    """Appends to one lane's chains within one transaction; writes all records at the end.

    `known` are the tips that the lane remembers; those of others are read once.
    INVARIANT: a chain goes on where it ended, also when its last record was dropped since.
    """

    def __init__(
        self,
        store: Database,
        ids: Ids,
        at: str,
        number: int = FIRST_CHAIN,
        known: Mapping[str, Tip] | None = None,
    ) -> None:
        self._store = store
        self._ids = ids
        self._at = at
        self._number = number
        self._known = known
        self._tips: dict[str, Tip] = {}
        self._before: dict[str, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self.records: list[Record] = []
        """What was appended, in order."""
        self.positions: dict[str, Position] = {}
        """By `auditId`, where each record stands that was appended here."""

    @property
    def spans(self) -> Spans:
        """What was appended so far."""
        return {
            (organisation_id, self._number): (self._before[organisation_id] + 1, last)
            for organisation_id, (last, _) in self._tips.items()
            if last > self._before[organisation_id]
        }

    @property
    def tips(self) -> Mapping[str, Tip]:
        """Organisation to where its chain ends, of those that were asked for."""
        return self._tips

    def append(self, record: Record) -> str:
        """Append a record; returns its `auditId`."""
        organisation_id = record.organisationId
        sequence, record.previousHash = self._tips.get(organisation_id) or self.tip(organisation_id)
        audit_id = record.auditId = self._ids("aud")
        record.sequence = sequence = sequence + 1
        record.at = self._at
        record.chain = number = self._number
        self.records.append(record)
        text = _encode(record)
        digest = sha256(text).hexdigest()
        self._tips[organisation_id] = (sequence, digest)
        self.positions[audit_id] = (sequence, digest, number)
        self._rows.append(
            (
                organisation_id,
                number,
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
            if self._known is not None:
                tip = self._known.get(organisation_id, (0, GENESIS))
            else:
                newest = _TIP if self._store.is_sqlite else _TIP_OF_MANY
                rows = self._store.rows(newest, (organisation_id, self._number))
                tip = (int(rows[0][0]), str(rows[0][1])) if rows else (0, GENESIS)
            self._tips[organisation_id] = tip
            self._before[organisation_id] = tip[0]
        return tip

    def mark(self) -> object:
        return len(self._rows), dict(self._tips)

    def undo(self, mark: Any) -> None:
        count, tips = mark
        del self._rows[count:], self.records[count:]
        self._tips = dict(tips)

    def flush(self) -> None:
        self._store.insert_many("audit", COLUMNS, self._rows)
        if not self._store.is_sqlite:
            moved = [(*name, *self._tips[name[0]]) for name in sorted(self.spans)]
            self._store.insert_many("chains", (*_KEY, "sequence", "hash"), moved, key=_KEY)


def tips(store: Database) -> dict[ChainName, Tip]:
    """Where every chain ends now, as committed. SQLite has one chain, whose end is found by its index."""
    rows = store.rows(_TIPS_OF_ONE_CHAIN if store.is_sqlite else _TIPS)
    return {
        (organisation_id, int(chain)): (int(sequence), digest)
        for organisation_id, chain, sequence, digest in rows
    }


def between(store: Database, name: ChainName, first: int, last: int) -> list[tuple[Any, ...]]:
    """`(type, run_id, record)` of a span of records of one chain, in order."""
    return store.rows(
        "SELECT type, run_id, record FROM audit"
        " WHERE organisation_id = ? AND chain = ? AND sequence BETWEEN ? AND ? ORDER BY sequence",
        (*name, first, last),
    )


def follows(row: tuple[Any, ...], expected: int, previous: str) -> bool:
    """True when a row (in the order of `COLUMNS`) is the intact record number `expected` of its chain."""
    *columns, text, digest = row
    record = _decoded(text)
    if record is None or sha256(text.encode()).hexdigest() != digest:
        return False
    said = [record.get("organisationId"), record.get("chain", FIRST_CHAIN)]
    said += [
        record.get(name)
        for name in ("sequence", "auditId", "at", "type", "agentId", "runId", "userId", "decision")
    ]
    return columns == said and record["sequence"] == expected and record.get("previousHash") == previous


def record_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """The record in a row that `follows`."""
    record: dict[str, Any] = msgspec.json.decode(row[10])
    return record


def numbers(store: Database, organisation_id: str) -> list[int]:
    """Of all chains that an organisation has records of, in order."""
    return sorted(name for name in names(store, organisation_id) if isinstance(name, int))


def names(store: Database, organisation_id: str) -> list[Any]:
    """What records have for their chain: a number, or whatever somebody has put there by hand."""
    rows = store.rows("SELECT DISTINCT chain FROM audit WHERE organisation_id = ?", (organisation_id,))
    return [name for (name,) in rows]


def first(organisation_id: str, chain: int) -> int:
    """The number of the oldest record that a chain has now; `BEHIND_ALL`: it has none."""
    own = (Audit.organisation_id == organisation_id) & (Audit.chain == chain)
    return int(Audit.select(fn.MIN(Audit.sequence)).where(own).scalar() or BEHIND_ALL)


def firsts(store: Database, organisation_id: str) -> dict[int, int]:
    """Where each chain begins now."""
    return {chain: first(organisation_id, chain) for chain in numbers(store, organisation_id)}


def walk(store: Database, name: ChainName, last: int = -(1 << 62)) -> Iterator[tuple[Any, ...]]:
    """All rows of a chain behind one, in order, some at a time, so that a long one needs little memory. They
    are as they are stored: whoever changes one by hand may leave any type."""
    while True:
        rows = store.rows(_BEHIND, (*name, last, MOST_READ))
        yield from rows
        if len(rows) < MOST_READ:
            return
        last = rows[-1][2]


def _decoded(text: Any) -> dict[str, Any] | None:
    if not isinstance(text, str):
        return None
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return record if isinstance(record, dict) else None
