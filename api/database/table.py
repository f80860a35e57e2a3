"""What all tables have in common: the one database of the process, and its counters."""

from __future__ import annotations

from typing import Final

from peewee import DatabaseProxy, Model, SqliteDatabase

database = DatabaseProxy()

INSTALLATION: Final = "#installation"
"""The counter that is the id of the database, by which a policies folder is known to be its own, and a copy
as one of it."""


class Table(Model):
    class Meta:
        database = database
        legacy_table_names = False


def is_sqlite() -> bool:
    return isinstance(database.obj, SqliteDatabase)


def counter(name: str) -> int:
    """The value of a counter that caches compare with, outside of a transaction; 0 before it was first moved.
    Many requests ask: it builds no query."""
    statement = f"SELECT value FROM counters WHERE name = {database.param}"
    row = database.execute_sql(statement, (name,)).fetchone()
    return int(row[0]) if row else 0
