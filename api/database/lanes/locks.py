"""Who waits for whom on PostgreSQL: events share, jobs go one at a time, and a change that events must know
excludes them for the moment of its commit.

| Lock | events | jobs | jobs that move a counter |
|---|---|---|---|
| `EVENTS` | shared | - | exclusive, from their last pipeline on |
| `JOBS` | - | exclusive | exclusive |

So events of all nodes are written side by side, each job sees what the one before has left, and once a
change is answered no event anywhere is decided without it.

INVARIANT: nobody waits for ever: a server keeps the lock of a node that lost its power for hours. So it is
told to end a transaction of events that stands still, and whoever waits in vain ends the session of a holder
that has been silent for long; what it had not committed is undone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import peewee
from psycopg import Error

from api.database.errors import sqlstate
from api.database.lanes.pooler import refuse_pooled
from api.database.lanes.session import Rows, Statement
from api.database.postgres import WITH_TRANSACTION_TIMEOUT, Postgres

log = logging.getLogger("governance")

EVENTS = 0x60BE_4A9C
JOBS = EVENTS + 1
PARTITIONS = EVENTS + 2
"""Their numbers (arbitrary, fixed)."""
BUCKETS = 0x60BE
"""The class of the locks of rate counts."""
LOCK_SECONDS = 10.0
"""How long a transaction waits for a lock."""
LOCK_SECONDS_AGAIN = 1.0
"""The same once a wait was in vain, so that a queue of requests fails soon."""
SILENT_SECONDS = 20
"""A node that held a lock in silence for so long has stopped or is out of reach; less than a lease."""

SHARED = "SELECT set_config('lock_timeout', ?, true), pg_advisory_xact_lock_shared(?::bigint)"
_SHARED_FOR = (
    "SELECT set_config('lock_timeout', ?, true), set_config('idle_in_transaction_session_timeout', ?, true),"
    "{more} pg_advisory_xact_lock_shared(?::bigint)"
)
_EXCLUSIVE = "SELECT set_config('lock_timeout', ?, true), pg_advisory_xact_lock(?::bigint)"
LOCK_BUCKETS = f"SELECT pg_advisory_xact_lock({BUCKETS}, w.hash) FROM unnest(?::int[]) AS w(hash)"
"""In the order of the list; those who count take it before all rows."""
_END_SILENT = (
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid IN (%s, %s)"
    " AND a.datname = current_database() AND a.wait_event = 'ClientRead'"
    " AND a.state_change < now() - make_interval(secs => %s)"
)


class ServerLock:
    """Of one process, in its open transaction."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._stuck = False
        """The last wait was in vain."""

    @property
    def seconds(self) -> str:
        return f"{LOCK_SECONDS_AGAIN if self._stuck else LOCK_SECONDS:.0f}s"

    def take(self, first: Sequence[Statement], *, shared: bool) -> list[Rows]:
        """Take the lock of events (`shared`) or of jobs up to the end of the transaction; returns the rows of
        the first statements."""
        if shared:
            self._database.later(*self._shared())
        else:
            self._database.later(_EXCLUSIVE, (self.seconds, str(JOBS)))
        return self._database.answers(first)

    def _shared(self) -> Statement:
        """The server gives it back in the name of a node that has stopped: between two pipelines, and from
        PostgreSQL 17 on also within one."""
        silent = f"{SILENT_SECONDS}s"
        if self._database.connection().info.server_version < WITH_TRANSACTION_TIMEOUT:
            return _SHARED_FOR.format(more=""), (self.seconds, silent, str(EVENTS))
        more = " set_config('transaction_timeout', ?, true),"
        return _SHARED_FOR.format(more=more), (self.seconds, silent, silent, str(EVENTS))

    def exclude_events(self) -> None:
        """From here to the end of the transaction no event is written anywhere."""
        self._database.later(_EXCLUSIVE, (self.seconds, str(EVENTS)))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Around a transaction: whoever waits in vain looks for the one that has fallen silent."""
        try:
            yield
        except peewee.OperationalError as error:
            if sqlstate(error) == "55P03":  # lock not available
                self._stuck = True
                self._end_silent_holder()
            raise
        self._stuck = False

    def _end_silent_holder(self) -> None:
        with contextlib.suppress(Error), self._database.connected() as connection:
            if connection.execute(_END_SILENT, (EVENTS, JOBS, SILENT_SECONDS)).fetchall():
                log.warning("a node that held the database in silence for %s s was cut off", SILENT_SECONDS)

    @contextlib.contextmanager
    def over_transactions(self, needed: Callable[[], object]) -> Iterator[None]:
        """All locks over several transactions, for tables that are made in steps; none where they are not
        `needed`: who only looks may have to wait for somebody who holds a table, and no event with it. Raises
        DatabaseUnavailable where they would not last so long."""
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
            refuse_pooled(self._database.connected)
        if not needed():
            yield
            return
        with self._database.patient():
            for lock in (JOBS, EVENTS):
                self._database.execute_sql("SELECT pg_advisory_lock(%s)", (lock,))
            try:
                yield
            finally:
                # A connection that broke has given the locks back already.
                with contextlib.suppress(peewee.PeeweeException):
                    self._database.execute_sql("SELECT pg_advisory_unlock_all()")


def bucket_hash(bucket: str) -> int:
    """32 bits, signed, of the name of a rate count; two that share them only wait for each other."""
    return int.from_bytes(bytes.fromhex(bucket[:8]), signed=True)
