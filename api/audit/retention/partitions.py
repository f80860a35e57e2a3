"""What of the table of records goes once a certificate lets it: rows, and on PostgreSQL whole partitions.

A partition goes in one piece when it is all of the past and its last record of every chain is let go. Where
it holds days of very different age, or what came while no partition was there, rows go one by one.
INVARIANT: what goes of a chain is always its beginning, so that what is still there leads up to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import peewee

from api.audit.retention.certificate import Certificate
from api.database import audit_chain
from api.database.audit_chain import ChainName
from api.database.connection import Database
from api.database.errors import sqlstate
from api.database.partitions.catalog import RECORDS, Partition, partitions
from api.database.partitions.upkeep import alone
from api.database.transaction import Transaction

Ends = Mapping[ChainName, int]
"""Chain to the number of a last record."""

_LAST: Final = 'SELECT MAX(sequence) FROM "{table}" WHERE organisation_id = ? AND chain = ? AND sequence <= ?'
_DELETE: Final = "DELETE FROM audit WHERE organisation_id = ? AND chain = ? AND sequence <= ?"
_ENDS: Final = (
    "SELECT c.organisation_id, c.chain, e.last FROM chains c"
    " CROSS JOIN LATERAL (SELECT MAX(a.sequence) AS last"
    ' FROM "{table}" a WHERE a.organisation_id = c.organisation_id AND a.chain = c.chain) e'
    " WHERE e.last IS NOT NULL"
)
_STRAYED: Final = (
    "FROM audit WHERE organisation_id = ? AND chain = ? AND sequence < ?::bigint AND at >= ?::text"
)
_LOCK: Final = "LOCK TABLE ONLY audit IN ACCESS EXCLUSIVE MODE"
_UNCHANGED: Final = (
    "SELECT 1 / (CASE WHEN EXISTS (SELECT 1 FROM ({ends}) f"
    " LEFT JOIN unnest(?::text[], ?::bigint[], ?::bigint[]) AS k(organisation_id, chain, last)"
    " ON k.organisation_id = f.organisation_id AND k.chain = f.chain"
    " WHERE k.last IS NULL OR k.last < f.last) THEN 0 ELSE 1 END)"
)
"""Fails when something has been written there since."""
WRITTEN_TO: Final = "22012"
"""So it does: by a division by zero."""
GONE: Final = "42P01"
"""There is no such table: another node has dropped it."""


@dataclass(frozen=True, slots=True)
class LeavingRows:
    ends: Ends


@dataclass(frozen=True, slots=True)
class LeavingPartition:
    partition: Partition
    ends: Ends


def leaving(
    store: Database, known: Certificate, before: str, kept_days: int
) -> LeavingRows | LeavingPartition | None:
    """What goes next of what the certificate lets go, partitions of before a time; None: nothing is left of
    it, or not yet."""
    cut = {
        (name, int(chain)): last
        for name, chains in known.dropped.chains.items()
        for chain, (last, _, _) in chains.items()
    }
    if not cut:
        return None
    if store.is_sqlite:
        return _rows(store, cut, RECORDS.name)
    while True:
        try:
            return _of_partitions(store, before, cut, kept_days)
        except peewee.ProgrammingError as error:
            if sqlstate(error) != GONE:
                raise  # else another node was faster


def _of_partitions(
    store: Database, before: str, cut: Ends, kept_days: int
) -> LeavingRows | LeavingPartition | None:
    for partition in partitions(store, RECORDS):
        if partition.span.since > before:
            break
        ends = _ends(store, partition.name)
        let_go = all(last <= cut.get(name, 0) for name, last in ends.items())
        if let_go and partition.span.until <= before:
            return LeavingPartition(partition, ends)
        if partition.span.within(RECORDS.days_of_one(kept_days)):
            break
        if (rows := _rows(store, cut, partition.name)) is not None:
            return rows
    return _rows(store, cut, RECORDS.other)


def _ends(store: Database, table: str) -> Ends:
    return {(name, int(chain)): int(last) for name, chain, last in store.rows(_ENDS.format(table=table))}


def _rows(store: Database, cut: Ends, table: str) -> LeavingRows | None:
    """What is let go of these rows, with all before it."""
    last = _LAST.format(table=table)
    found = {name: store.rows(last, (*name, end))[0][0] for name, end in cut.items()}
    ends = {name: int(last) for name, last in found.items() if last is not None}
    return LeavingRows(ends) if ends else None


def delete(transaction: Transaction, name: ChainName, last: int, most: int) -> int:
    """A job: some of the records of a chain up to one, oldest first; returns how many, 0: none is left."""
    first = audit_chain.first(*name)
    if first > last:
        return 0
    return transaction.store.rows_changed(_DELETE, (*name, min(last, first + most - 1)))


def drop(store: Database, leaving: LeavingPartition) -> bool:
    """False: not now. What a clock that was set back has put behind goes with it. For a reading thread."""
    table, until, ends = leaving.partition.name, leaving.partition.span.until, leaving.ends
    strayed = [(*name, str(last), until) for name, last in ends.items()]
    strayed = [each for each in strayed if store.rows(f"SELECT 1 {_STRAYED} LIMIT 1", each)]
    known = ([name for name, _ in ends], [chain for _, chain in ends], list(ends.values()))
    try:
        return alone(
            store,
            [
                (_LOCK, ()),
                (_UNCHANGED.format(ends=_ENDS.format(table=table)), known),
                *((f"DELETE {_STRAYED}", each) for each in strayed),
                (f'DROP TABLE "{table}"', ()),
            ],
            RECORDS,
        )
    except (peewee.DataError, peewee.ProgrammingError) as error:
        if sqlstate(error) not in (GONE, WRITTEN_TO):
            raise
        return False
