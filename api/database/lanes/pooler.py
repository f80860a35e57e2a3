"""Whether a session with PostgreSQL is the caller's own, or that of a pooler which gives it to somebody else
after each transaction (PgBouncer: `pool_mode = transaction`).

There nothing would hold that the service says once a session: that a commit is on disk before it is
confirmed, the locks of a start, of a copy and of the senders of webhooks, statements that were prepared, and
listening for news.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from psycopg import Connection

from api.database.errors import DatabaseUnavailable

_SESSION: Final = "SELECT pg_backend_pid(), pg_postmaster_start_time()::text"
_ORDER: Final = (0, 1, 1, 0, 0, 1)
"""Who asks: a pooler that takes the sessions in turn gives one of both another one, too."""


def refuse_pooled(connect: Callable[[], Connection[Any]]) -> None:
    """Before anything that a session is to keep. Raises DatabaseUnavailable, psycopg.Error."""
    with ExitStack() as stack:
        both = [stack.enter_context(connect()) for _ in range(2)]
        seen: tuple[set[Any], set[Any]] = (set(), set())
        for who in _ORDER:
            seen[who].add(both[who].execute(_SESSION).fetchone())
    if len(seen[0]) == len(seen[1]) == 1 and seen[0].isdisjoint(seen[1]):
        return
    raise DatabaseUnavailable(
        "a pooler before the PostgreSQL database gives sessions to others after each transaction, while the "
        "service needs its own; let it keep a session's connection (PgBouncer: `pool_mode = session`), or "
        "name the address of the server itself"
    )
