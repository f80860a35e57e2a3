"""Which changes of the tables this version knows (`migrations/`), beside those that a database has seen: by
them a node tells that it is older than its database, and a command or worker that it is newer."""

from __future__ import annotations

from api.database.connection import MIGRATIONS, Database


def newer_step(store: Database) -> str | None:
    """The first change of the tables that this version does not know."""
    return min(_applied(store) - _known(), default=None)


def missing_step(store: Database) -> str | None:
    """The first change of the tables that the database has not seen, which may be empty."""
    applied = _applied(store) if store.peewee.table_exists("schema_migration") else set()
    return min(_known() - applied, default=None)


def _known() -> set[str]:
    return {each.stem for each in MIGRATIONS.glob("[0-9]*.py")}


def _applied(store: Database) -> set[str]:
    return {name for (name,) in store.rows("SELECT name FROM schema_migration")}
