"""Makes the partitions of the days to come, and takes away those of days long past (PostgreSQL).

Any node does it, and another one may do the same at the time; a lock keeps them apart.
INVARIANT: whatever changes a table waits for its readers hardly at all, and is tried again a minute later:
who waits for a table has all who come after wait, too.
INVARIANT: no id leads to an event that is gone: ids are forgotten before their partition is dropped. How far
that has come is kept in the transaction that forgets them, so that any node goes on where one was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import peewee

from api import clock
from api.database.connection import Database
from api.database.errors import sqlstate
from api.database.lanes.keys import KeyTable
from api.database.lanes.locks import PARTITIONS
from api.database.lanes.session import Statement
from api.database.partitions.catalog import EVENTS, Divided, Partition, Span, partitions, stay
from api.database.postgres import Postgres
from api.database.transaction import Transaction

log = logging.getLogger("governance")

AHEAD_DAYS: Final = 7
"""For so many days to come there are partitions: as long may nobody be there to make them."""
LOCK_TIMEOUT: Final = "500ms"
LOCK_NOT_AVAILABLE: Final = "55P03"
DUPLICATE_TABLE: Final = "42P07"
_ALONE: Final = (
    "SELECT set_config('lock_timeout', ?, true), pg_advisory_xact_lock(?::bigint)",
    (LOCK_TIMEOUT, str(PARTITIONS)),
)
LONG_SECONDS: Final = 1.0
"""Who has read for so long, such as a dump, will not be done within the timeout."""
_LONG: Final = (
    "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.relation = to_regclass(?) AND l.granted AND a.pid <> pg_backend_pid()"
    " AND a.xact_start < clock_timestamp() - make_interval(secs => ?::float8) LIMIT 1"
)
_UNDONE: Final = "DELETE FROM counters WHERE name = ?"


class Partitions:
    """Those of a table; one per process, used by one task at a time."""

    def __init__(self, store: Database, kept_days: int, table: Divided = EVENTS) -> None:
        self._store = store
        self.table = table
        self._days = table.days_of_one(kept_days)
        self._refused: set[Span] = set()
        """Spans that get no partition."""
        self.until: str | None = None
        """Up to when each day from today on has its partition, as far as this process knows."""

    def prepare(self, now: float) -> None:
        """Make those that are missing. For a reading thread."""
        if self._store.is_sqlite:
            return
        for span in missing(self._spans(), midnight(now), midnight(now, AHEAD_DAYS + 1), self._days):
            if span not in self._refused and not self._make(span):
                break
        self.until = covered(self._spans(), midnight(now))

    def _spans(self) -> list[Span]:
        return [each.span for each in partitions(self._store, self.table)]

    def _make(self, span: Span) -> bool:
        """False: not now."""
        store, table = self._store, self.table
        name = f"{table.name}_from_{span.since[:10].replace('-', '')}"
        bounds = f"FROM ('{span.since}') TO ('{span.until}')"
        made: list[Statement] = [
            (f'CREATE TABLE "{name}" (LIKE {table.name} INCLUDING ALL, PRIMARY KEY ({table.key}))', ())
        ]
        if table.index:
            made.append((f'CREATE INDEX ON "{name}" ({table.index})', ()))
        made.append((f'ALTER TABLE {table.name} ATTACH PARTITION "{name}" FOR VALUES {bounds}', ()))
        in_other = f'SELECT 1 FROM "{table.other}" WHERE {table.by} >= ? AND {table.by} < ? LIMIT 1'
        try:
            if not store.rows(in_other, (span.since, span.until)):
                return alone(store, made, table)
            why = f"{table.rows} of those days came in before"
        except peewee.IntegrityError:
            why = "one of those days came in just now"
        except peewee.ProgrammingError as error:
            if sqlstate(error) != DUPLICATE_TABLE:
                raise
            if any(each.name == name for each in partitions(store, table)):
                return True  # another node was faster
            why = f"there is a table `{name}`, which is none; rename or drop it and start again"
        self._refused.add(span)
        log.warning("%s of %s to %s get no partition: %s", table.rows, span.since, span.until, why)
        return True


def missing(there: Sequence[Span], since: str, until: str, days: int) -> Iterator[Span]:
    """What is to be made between two midnights, in spans of so many days, beside what is there."""
    while (since := covered(there, since)) < until:
        later = [each.since for each in there if each.since > since]
        end = min([midnight(clock.seconds(since), days), *later])
        yield Span(since, end)
        since = end


def covered(there: Sequence[Span], since: str) -> str:
    """Up to when spans follow each other from a time on."""
    while here := next((each.until for each in there if each.since <= since < each.until), None):
        since = here
    return since


def forget(transaction: Transaction, partition: Partition, keys: KeyTable, most: int) -> int:
    """The ids of some more events of a partition; returns of how many, 0: there are no more."""
    stay(transaction.store)
    if partition not in partitions(transaction.store):
        return 0  # another node has dropped it
    name = _progress(partition)
    last, count = keys.forget_events_of(transaction, partition.name, transaction.counter(name), most)
    if count:
        transaction.put({name: last})
    return count


def drop(store: Database, partition: Partition) -> bool:
    """False: not now, since somebody else does, or reads. For a reading thread."""
    dropped = f'DROP TABLE IF EXISTS "{partition.name}"'
    return alone(store, [(dropped, ()), (_UNDONE, (_progress(partition),))])


def alone(store: Database, statements: Sequence[Statement], table: Divided = EVENTS) -> bool:
    """Run statements in one transaction, while no other process does; False: they would have to wait.

    They go in one way to the server, the commit included, so that nobody who stops holds the table.
    """
    if store.rows(_LONG, (table.name, str(LONG_SECONDS))):
        return False
    database = store.peewee
    assert isinstance(database, Postgres)
    try:
        with database.gathering(), database.atomic():
            for statement, parameters in (_ALONE, *statements):
                store.change(statement, parameters)
    except peewee.OperationalError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def midnight(now: float, days: int = 0) -> str:
    """The beginning of a day, or of one so many days later."""
    day = clock.moment(clock.iso(now)[:10]) + timedelta(days=days)
    return f"{day:%Y-%m-%d}T00:00:00.000000Z"


def _progress(partition: Partition) -> str:
    return f"forgotten.{partition.name}"
