"""Whether PostgreSQL, and a pooler before it, lets the service have as many connections as it uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from psycopg import Error

from api.database.connection import Database
from api.database.lanes.session import BoundedConnection
from api.database.postgres import REACHED

BESIDE_LANES: Final = 22
"""Connections of one process at most, beside those that it writes events by."""
PATIENCE: Final = 2.0
"""Seconds that a pooler may take for one connection more."""
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
        return _too_few_of_pooler(store.url, wanted)
    return (
        f"PostgreSQL allows {room} connections here, and this node alone uses up to {wanted}: when they are "
        "used up, requests fail now and then. Raise `max_connections` or the CONNECTION LIMIT of user or "
        "database, or set fewer GOVERNANCE_LANES or GOVERNANCE_WORKERS."
    )


def _too_few_of_pooler(url: str, wanted: int) -> str | None:
    # That one has to wait here says nothing of the database, so the circuit breaker is not told.
    room = room_of_pooler(lambda: BoundedConnection.connect(url, autocommit=True, **REACHED), wanted)
    if room is None or room >= wanted:
        return None
    if room == 1:
        return (
            "Others use up the connections of PostgreSQL, or of a pooler before it: this node had none "
            f"beside the one that asks, and it uses up to {wanted}: requests are refused. "
            "Stop what holds them (`pg_stat_activity` names it), or raise `max_connections`; with PgBouncer, "
            "`default_pool_size`."
        )
    return (
        f"The pooler before PostgreSQL gives {room} connections at a time, and this node alone uses up to "
        f"{wanted}: while they are used up, requests of all are refused. Let it keep more (PgBouncer: "
        "`default_pool_size`, `max_db_connections`, `max_client_conn`), or set fewer GOVERNANCE_LANES or "
        "GOVERNANCE_WORKERS."
    )


def room_of_pooler(connect: Callable[[], BoundedConnection], wanted: int) -> int | None:
    """How many of so many connections are served at a time, with the one that the caller has; None: no pooler
    is in between. It accepts clients at once, and lets them wait for a connection with their first statement.
    """
    with ExitStack() as stack:
        for count in range(1, wanted):
            try:
                connection = stack.enter_context(connect())
                connection.patience = PATIENCE
                row = connection.execute("SELECT pg_backend_pid()").fetchone()
            except Error:
                return count
            if row == (connection.info.backend_pid,):
                return None
    return wanted
