"""What all tables have in common: the one database of the process, its counters, and pages of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from peewee import DatabaseProxy, Model, SqliteDatabase, Tuple

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


def page_of(
    query: Any,
    keys: Sequence[Any],
    limit: int,
    after: Any,
    *,
    ascending: bool = False,
    order: Sequence[Any] = (),
) -> tuple[list[Any], int, Any]:
    """The rows behind `after`, which are the `keys` of the last row before; how many there are in all; and
    where the next page begins, if any. `order`: the last ones of the keys, where these are enough."""
    total = int(query.count())
    rows = list(behind(query, order or keys, after, ascending=ascending).limit(limit + 1))
    more, rows = len(rows) > limit, rows[:limit]
    return rows, total, tuple(getattr(rows[-1], key.name) for key in keys) if more else None


def behind(query: Any, order: Sequence[Any], after: Any, *, ascending: bool = False) -> Any:
    """The rows in this order behind `after`, which ends with the values of such a row; None: all of them."""
    if after is not None:
        here, there = Tuple(*order), Tuple(*after[-len(order) :])
        query = query.where(here > there if ascending else here < there)
    return query.order_by(*(key.asc() if ascending else key.desc() for key in order))
