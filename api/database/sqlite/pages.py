"""Whether the pages of an SQLite file are as they should be, as far as that shows within some seconds."""

from __future__ import annotations

import threading

import peewee

CHECK_SECONDS = 2.0
_BY_GROWTH = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " ORDER BY name IN ('runs', 'audit', 'tool_calls', 'events', 'deliveries'), name"
)
"""Those that grow with every event come last."""


def are_damaged(database: peewee.Database) -> bool:
    """Reads the tables one by one, those that say who may do what before those that grow."""
    tables = [str(name) for (name,) in database.execute_sql(_BY_GROWTH).fetchall()]
    over = threading.Timer(CHECK_SECONDS, database.connection().interrupt)
    over.start()
    try:
        found = [database.execute_sql(f'PRAGMA quick_check("{name}")').fetchall() for name in tables]
    except peewee.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        found = []
    finally:
        over.cancel()
        over.join()
    return any(rows != [("ok",)] for rows in found)
