"""The database's archive for tests of the repository, with hooks around the commit for faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from api.clock import random_ids, system_clock
from api.database.connection import Database
from api.database.models import TABLES
from api.database.transaction import Transaction
from api.store.policy_archive import SqlArchive, SqlRecords

T = TypeVar("T")


class HookedSqlArchive(SqlArchive):
    """Each transaction is its own; `before_commit` and `after_commit` are called inside and after it."""

    def __init__(self, store: Database) -> None:
        super().__init__(store, system_clock, random_ids)
        self.store = store
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        """True while this thread has a transaction open."""
        return self.store.peewee.in_transaction()

    def transact(self, work: Callable[[SqlRecords], T]) -> T:
        with self.store.transaction():
            transaction = Transaction(self.store, system_clock(), random_ids, None)
            result = work(SqlRecords(self.store, transaction))
            transaction.flush()
            self.before_commit()
        transaction.committed()
        self.after_commit()
        return result


def opened(url: str) -> Database:
    store = Database(url)
    store.migrate()
    return store


def in_transaction(store: Database, job: Any, now: float) -> Any:
    """Run a job of the store without a writer."""
    with store.transaction():
        transaction = Transaction(store, now, random_ids, None)
        result = job(transaction)
        transaction.flush()
    return result


def emptied(store: Database) -> Database:
    """The same database with no rows."""

    def empty() -> Any:
        there = set(store.peewee.get_tables())
        for name in there & {table._meta.table_name for table in TABLES}:
            store.rows_changed(f'DELETE FROM "{name}"')

    with store.transaction():
        empty()
    return store
