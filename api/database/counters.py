"""The counters that caches compare with, read outside of a transaction."""

from __future__ import annotations

from api.database.table import database


def value(name: str) -> int:
    """The counter's value; 0 before it was first moved. Many requests ask: it builds no query."""
    statement = f"SELECT value FROM counters WHERE name = {database.param}"
    row = database.execute_sql(statement, (name,)).fetchone()
    return int(row[0]) if row else 0
