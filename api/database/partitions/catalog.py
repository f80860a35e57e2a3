"""Into which parts PostgreSQL divides events and audit records by their time: a partition for some days each.

There are two others: the first, of whatever came before the table was divided, and one for rows of which no
partition is, so that none is ever refused. What is known here is what the server says; nothing is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from api import clock
from api.database.connection import Database
from api.database.lanes.locks import PARTITIONS

MOST_KEPT: Final = 30
"""About so many partitions hold what is kept."""
UNLIMITED_DAYS: Final = 30
"""Of one partition, where events are kept for ever."""
MOST_OF_RECORDS: Final = 12
"""The same of audit records, which are read by number, from all partitions."""
_FOUND: Final = (
    "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i"
    " JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(?)"
)
_BOUNDS: Final = re.compile(r"FROM \((?:MINVALUE|'([^']*)')\) TO \('([^']*)'\)")


@dataclass(frozen=True, slots=True)
class Divided:
    """A table that is divided. The indexes of a partition are its own, and none of the parent's."""

    name: str
    by: str
    """The column of the time."""
    key: str
    """The primary key of each partition."""
    index: str
    """Columns of another index of each; empty: there is none."""
    most: int
    """About so many partitions hold what is kept."""
    rows: str
    """What they are called."""

    @property
    def first(self) -> str:
        return f"{self.name}_first"

    @property
    def other(self) -> str:
        return f"{self.name}_other"

    def days_of_one(self, kept: int) -> int:
        """How many days a partition is made for, where rows are kept for so many; 0: for ever."""
        return -(-kept // self.most) if kept else UNLIMITED_DAYS


EVENTS: Final = Divided("events", "received_at", "event_no", "", MOST_KEPT, "events")
RECORDS: Final = Divided(
    "audit", "at", "organisation_id, chain, sequence", "organisation_id, at", MOST_OF_RECORDS, "audit records"
)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a time up to another, which is not included (ISO 8601 UTC); no `since`: from the beginning."""

    since: str
    until: str

    def within(self, days: int) -> bool:
        """Whether it is no longer than so many days."""
        return bool(self.since) and clock.seconds(self.until) - clock.seconds(self.since) <= days * clock.DAY


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    span: Span
    name: str


def partitions(store: Database, table: Divided = EVENTS) -> list[Partition]:
    """Those that are of a span, oldest first; none on SQLite."""
    if store.is_sqlite:
        return []
    rows = store.rows(_FOUND, (table.name,))
    found = [(str(name), _BOUNDS.search(str(bounds))) for name, bounds in rows]
    return sorted(Partition(Span(at[1] or "", at[2]), name) for name, at in found if at is not None)


def stay(store: Database) -> None:
    """Part of a transaction: up to its end no partition goes."""
    if not store.is_sqlite:
        store.rows("SELECT pg_advisory_xact_lock_shared(?::bigint)", (str(PARTITIONS),))


def past(store: Database, before: str) -> list[Partition]:
    """Those all of whose events came in before a time; none for an empty one."""
    return [each for each in partitions(store) if each.span.until <= before] if before else []


def mixed(store: Database, days: int, before: str = "") -> Sequence[str]:
    """The tables whose events are of more than so many days, so that old ones among them go row by row: first
    that of no partition, since what a clock wrote that was ahead goes by what is behind it (`expiry.py`).
    Those that hold nothing else than events of before a time are dropped instead."""
    if store.is_sqlite:
        return (EVENTS.name,)
    long = [each for each in partitions(store) if not each.span.within(days)]
    return (EVENTS.other, *(each.name for each in long if not before or each.span.until > before))
