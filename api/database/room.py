"""Whether PostgreSQL lets the service have as many connections as it uses."""

from __future__ import annotations

from typing import Final

from api.database.connection import Database

BESIDE_LANES: Final = 20
"""Connections of one process at most, beside those that it writes events by."""
_ROOM: Final = (
    "SELECT LEAST(current_setting('max_connections')::int"
    " - current_setting('superuser_reserved_connections')::int,"
    " CASE WHEN NOT r.rolsuper THEN NULLIF(r.rolconnlimit, -1) END,"
    " CASE WHEN NOT r.rolsuper THEN NULLIF(d.datconnlimit, -1) END)"
    " FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()"
)


def too_little(store: Database, lanes: int, workers: int) -> str | None:
    """What to tell whoever starts a node that may run short of connections; None: there is room for it.
    Others need as many."""
    if store.is_sqlite:
        return None
    wanted = workers * (lanes + BESIDE_LANES)
    rows = store.read_here(store.rows, _ROOM)
    room = int(rows[0][0]) if rows else wanted
    if room >= wanted:
        return None
    return (
        f"PostgreSQL allows {room} connections here, and this node alone uses up to {wanted}: when they are "
        "used up, requests fail now and then. Raise `max_connections` or the CONNECTION LIMIT of user or "
        "database, or set fewer GOVERNANCE_LANES or GOVERNANCE_WORKERS."
    )
