"""Which row has an id, on PostgreSQL: a table of ids, each unique by its index whoever writes.

An id is kept as 128 bits of a hash, with the organisation before it, so that no number need be known before
it is written, and the tables of events may be divided by time. For SQLite see `id_index.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from peewee import Expression

from api.database.lanes.tables import Id
from api.database.models import CallTable, Run
from api.database.transaction import Transaction

COLUMNS = ("organisation_id", "key", "no")

_FORGET = (
    'WITH gone AS MATERIALIZED (SELECT event_no, organisation_id, event_id FROM "{table}"'
    " WHERE event_no > ?::bigint ORDER BY event_no LIMIT {most}),"
    " forgotten AS (DELETE FROM ids USING gone WHERE ids.organisation_id = gone.organisation_id"
    " AND ids.key = {key} AND ids.no = gone.event_no)"
    " SELECT COALESCE(MAX(event_no), 0), COUNT(*) FROM gone"
)
_EVENT_KEY = (
    "encode(substring(sha256(convert_to('event', 'UTF8') || '\\x00'::bytea"
    " || convert_to(gone.organisation_id, 'UTF8') || '\\x00'::bytea"
    " || convert_to(gone.event_id, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid"
)
"""What `event_key` computes."""

KeyRow = tuple[str, str, int]
"""Organisation, key and number."""


def event_key(organisation_id: str, event_id: str) -> str:
    return _key("event", organisation_id, event_id)


def call_key(organisation_id: str, run_id: str, tool_call_id: str) -> str:
    return _key("call", organisation_id, run_id, tool_call_id)


def _key(*parts: str) -> str:
    """128 bits in hexadecimal."""
    return sha256("\0".join(parts).encode()).hexdigest()[:32]


class KeyTable:
    """One per process; see the module."""

    def enter(self, transaction: Transaction, rows: Iterable[KeyRow]) -> None:
        """INVARIANT: in the order of the keys, so that two transactions with the same ids do not wait for
        each other; and plainly, so that of those one fails."""
        transaction.store.insert_many("ids", COLUMNS, sorted(rows))

    def calls_of(self, runs: Sequence[int]) -> Expression:
        """The condition that picks the calls of some runs."""
        return CallTable.run_no.in_(runs)

    def call_of(self, run: Run, tool_call_id: str) -> Expression:
        """The condition that picks one of them by its id."""
        key = call_key(run.organisation_id, run.run_id, tool_call_id)
        named = (Id.organisation_id == run.organisation_id) & (Id.key == key)
        return CallTable.call_no.in_(Id.select(Id.no).where(named)) & (CallTable.run_no == run.run_no)

    def forget_events(self, transaction: Transaction, events: Iterable[tuple[Any, ...]]) -> None:
        """Events, as `(organisation_id, event_id)`, are about to go."""
        keys = [(name, event_key(name, event_id)) for name, event_id in events]
        transaction.store.change(
            "DELETE FROM ids USING unnest(?::text[], ?::text[]::uuid[]) AS w(name, key)"
            " WHERE ids.organisation_id = w.name AND ids.key = w.key",
            [list(part) for part in zip(*keys, strict=True)] if keys else [[], []],
        )

    def forget_events_of(
        self, transaction: Transaction, table: str, after: int, most: int
    ) -> tuple[int, int]:
        """Some of the events in a table, behind a number; returns the last number, and how many they are.

        An id that leads to another event by now stays.
        """
        statement = _FORGET.format(table=table, most=most, key=_EVENT_KEY)
        ((last, count),) = transaction.store.rows(statement, (str(after),))
        return int(last), int(count)
