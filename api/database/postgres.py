"""PostgreSQL for peewee, with few ways to the server and back.

What a transaction of `Database.transaction` writes needs no answer before the commit. So `later` gathers
such statements, and the next one whose answer is waited for - a read, a savepoint, the commit - takes them
along in one pipeline. Rows go in by prepared statements for 1, 2, 4, ... rows each.

INVARIANT: the server gets the statements in their order, and whoever reads sees what was written before.
INVARIANT: a statement that fails fails its transaction (or savepoint): nothing behind it in the pipeline is
run, not even the commit, and a commit that the server has not confirmed is none.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import chain
from secrets import randbits
from time import monotonic
from typing import Any

import peewee
from psycopg import Error, OperationalError, ProgrammingError
from psycopg.adapt import Transformer
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from api.database.errors import ANOTHER, NeedsAnswer
from api.database.lanes.circuit_breaker import PROBE_SECONDS, CircuitBreaker, is_silence
from api.database.lanes.session import BoundedConnection, Rows, Session, Statement
from api.database.lanes.timeline import OldServer, Timelines, each_server
from api.database.models import TABLES
from api.database.table import INSTALLATION

MOST_ROWS = 1_000
"""In one pipeline; more go in by `COPY`, which needs no memory for all."""
MOST_TOGETHER = 32
"""Rows of one statement. Measured: with more the server gains no more."""
_TYPES = {
    "AUTO": "integer",
    "BIGAUTO": "bigint",
    "BIGINT": "bigint",
    "BLOB": "bytea",
    "BOOL": "boolean",
    "DOUBLE": "double precision",
    "INT": "integer",
    "TEXT": "text",
    "UUID": "uuid",
}
REACHED: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "tcp_user_timeout": 20_000,
    "client_encoding": "UTF8",
}
"""How long a connection waits for a server out of reach; and that it speaks as the database does, whatever
PGCLIENTENCODING says."""
TIMEOUTS = {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "5min"}
"""After which the server ends what nobody waits for any more; those that hold the lock of events have less,
see `lanes/locks.py`."""
WITH_TRANSACTION_TIMEOUT = 170_000
"""The first version of the server that has it."""
WHATEVER_IS_SET = (
    "SELECT set_config('default_transaction_isolation', 'read committed', false),"
    " set_config('extra_float_digits', '1', false), set_config('row_security', 'off', false),"
    " CASE current_setting('synchronous_commit')"
    " WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
)
"""INVARIANT: whatever the database or the user is set to, a commit is on disk before it is confirmed,
whoever has waited for a lock sees what was committed meanwhile, times are read as they were written, and no
row is hidden in silence: where a table's policies would hide some, that is an error."""
NO_TIMEOUTS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',"
    " 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')"
)
"""For what takes as long as it takes, whatever the database or the user is set to."""
_ID = f"SELECT value FROM counters WHERE name = '{INSTALLATION}'"
_SET = "SELECT set_config(w.name, w.value, %s) FROM unnest(%s::text[], %s::text[]) AS w(name, value)"


def on_this_machine(host: str, address: str) -> bool:
    """Whether a server is reached by a socket in a folder, or by an address that never leaves the machine."""
    if host.startswith(("/", "@")):
        return True
    with suppress(ValueError):
        return ip_address(address).is_loopback
    return False


class Postgres(peewee.PostgresqlDatabase):
    """See the module."""

    def __init__(self, url: str) -> None:
        self._own = _Own()
        self._inserts: dict[tuple[str, tuple[str, ...], int, str], str] = {}
        self._kinds: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self.breaker = CircuitBreaker(self._probe)
        self._timelines = Timelines()
        self._met = False
        """Each server that the address names was asked which one took over last."""
        self.installation = 0
        """The id of the database that this process works with; 0: any will do."""
        super().__init__(url, prefer_psycopg3=True, autoconnect=True)

    def _connect(self) -> BoundedConnection:
        return self.connected()

    def connected(self) -> BoundedConnection:
        """A new connection. Raises psycopg.Error."""
        self.breaker.check()
        if not self._met:
            self._met = True
            for server in each_server(self.database):
                with suppress(OperationalError):
                    self._connected(**server, connect_timeout=PROBE_SECONDS).close()
        try:
            return self._connected()
        except OldServer:
            for server in each_server(self.database):
                with suppress(OperationalError):
                    return self._connected(**server)
            raise

    def _connected(self, **otherwise: Any) -> BoundedConnection:
        begun = monotonic()
        try:
            connection = BoundedConnection.connect(self.database, autocommit=True, **REACHED | otherwise)
        except OperationalError as error:
            if is_silence(error, monotonic() - begun):
                self.breaker.suspect()
            raise
        except ProgrammingError as error:  # the address is none
            raise OperationalError(str(error)) from None
        connection.breaker = self.breaker
        # The driver numbers what it prepares, and so would name statements as other connections do.
        connection._prepared._prepared_idx = randbits(62)
        try:
            connection.execute(_SET, (False, list(TIMEOUTS), list(TIMEOUTS.values())))
            connection.execute(WHATEVER_IS_SET)
            self._timelines.check(connection)
            self._refuse_another(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_another(self, connection: BoundedConnection) -> None:
        """The database of another installation, put in the place of the one that this process has worked
        with: what is decided and signed here would be recorded there. Raises OperationalError."""
        with suppress(ProgrammingError):  # whoever uses it finds that tables are missing
            row = connection.execute(_ID).fetchone() if self.installation else None
            if row is not None and int(row[0]) != self.installation:
                raise OperationalError(ANOTHER)

    @property
    def exposed(self) -> str | None:
        """The host whose connection others on the way can read; None: it is encrypted, stays on this machine,
        or is meant to be as it is."""
        info = self.connection().info
        plain = not info.pgconn.ssl_in_use and info.get_parameters().get("sslmode") != "disable"
        return info.host if plain and not on_this_machine(info.host, info.hostaddr) else None

    def _probe(self) -> None:
        reached = REACHED | {"connect_timeout": PROBE_SECONDS}
        with BoundedConnection.connect(self.database, autocommit=True, **reached) as connection:
            connection.patience = PROBE_SECONDS
            connection.execute("SELECT 1")

    @contextmanager
    def patient(self) -> Iterator[None]:
        """On this thread a statement may take as long as it takes."""
        connection: BoundedConnection = self.connection()
        connection.patience = math.inf
        try:
            self.execute_sql(_SET, (False, list(TIMEOUTS), ["0"] * len(TIMEOUTS)))
            yield
        finally:
            del connection.patience  # back to that of all
            with suppress(peewee.PeeweeException):  # a new connection has them anyway
                self.execute_sql(_SET, (False, list(TIMEOUTS), list(TIMEOUTS.values())))

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Gather on this thread what may be sent later."""
        own, before = self._own, self._own.gathers
        own.gathers = True
        try:
            yield
        finally:
            own.gathers = before
            own.waiting.clear()

    @contextmanager
    def collecting(self) -> Iterator[list[Statement]]:
        """Gather on this thread what somebody else will send; whoever would wait for an answer gets
        NeedsAnswer."""
        own = self._own
        own.collects, own.gathers = True, True
        own.waiting = []
        try:
            yield own.waiting
        finally:
            own.collects = own.gathers = False
            own.waiting = []

    @property
    def gathers(self) -> bool:
        return self._own.gathers

    def later(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run this before anything else is run; nobody waits for what comes of it."""
        self._own.waiting.append((sql, parameters))
        if not self._own.gathers:
            self.send()

    def push(self) -> None:
        """Let the server begin with what was gathered; how it went shows with the next answer."""
        if self._own.collects:
            return
        session = self._session()
        sent = list(self._own.waiting)
        self._own.waiting.clear()
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
            session.push(sent)

    def send(self) -> None:
        """Run what was gathered."""
        if self._own.collects:
            return
        session = self._own.session
        if self._own.waiting or (session is not None and session.open):
            self._run([])

    def answers(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run what was gathered and these, all in one pipeline; returns the rows of each of these."""
        results = self._run(statements)
        return [self._rows(result) for result in results[len(results) - len(statements) :]]

    def _run(self, statements: Iterable[Statement]) -> list[PGresult]:
        self._refuse_to_wait()
        session = self._session()
        sent = [*self._own.waiting, *statements]
        self._own.waiting.clear()
        with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
            return session.run(sent)

    def _refuse_to_wait(self) -> None:
        if self._own.collects:
            raise NeedsAnswer

    def _session(self) -> Session:
        """Of this thread's connection."""
        own, connection = self._own, self.connection()
        if own.session is None or own.session.connection is not connection:
            own.session = Session(connection)
        return own.session

    def _rows(self, result: PGresult) -> Rows:
        reader = Transformer(self.connection())
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)

    # What peewee runs -----------------------------------------------------------------------------

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        self._refuse_to_wait()
        if sql.startswith("ROLLBACK TO "):
            self._own.waiting.clear()  # it came after the savepoint, which was sent at once
        return super().execute_sql(sql, params)

    def cursor(self, named_cursor: Any = None) -> Any:
        """Whoever takes one is about to run a statement."""
        self._refuse_to_wait()
        self.send()
        return super().cursor(named_cursor)

    def begin(self, isolation_level: Any = None) -> None:
        if self._own.gathers and isolation_level is None:
            self.later("BEGIN")
        else:
            super().begin(isolation_level)

    def commit(self) -> None:
        if not self._own.gathers:
            super().commit()
        elif self._run([("COMMIT", ())])[-1].command_status != b"COMMIT":
            # The server rolls a transaction back in which a statement has failed; that is no error to it.
            raise peewee.InternalError("the transaction was rolled back")

    def rollback(self) -> None:
        self._own.waiting.clear()
        session = self._own.session
        if session is not None and session.open:
            # What comes of it is of no interest any more; a broken connection shows below.
            with suppress(Error):
                session.run([])
        if self._own.gathers and self.connection().info.transaction_status == TransactionStatus.IDLE:
            return  # it has not begun
        super().rollback()

    # Many rows ------------------------------------------------------------------------------------

    def insert(
        self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]], ending: str
    ) -> None:
        """Rows into a table; `ending` is that of the statement."""
        if len(rows) > MOST_ROWS and not ending:
            self._copy(table, columns, rows)
            return
        kinds = self._types(table, columns)
        sent = [_as_sent(type, values) for type, values in zip(kinds, zip(*rows, strict=True), strict=True)]
        rows = list(zip(*sent, strict=True))
        start = 0
        while start < len(rows):
            size = min(MOST_TOGETHER, 1 << ((len(rows) - start).bit_length() - 1))
            statement = self._insert(table, columns, size, ending)
            self.later(statement, list(chain.from_iterable(rows[start : start + size])))
            start += size

    def _insert(self, table: str, columns: tuple[str, ...], size: int, ending: str) -> str:
        """The statement for so many rows."""
        key = table, columns, size, ending
        statement = self._inserts.get(key)
        if statement is None:
            names = ", ".join(f'"{name}"' for name in columns)
            row = ", ".join(f"?::{type}" if type else "?" for type in self._types(table, columns))
            statement = f'INSERT INTO "{table}" ({names}) VALUES {", ".join([f"({row})"] * size)}'
            statement = self._inserts[key] = statement + ending
        return statement

    def _types(self, table: str, columns: tuple[str, ...]) -> list[str]:
        """Of the columns; one that is not ours has none, and is for the server to refuse."""
        types = self._kinds.get((table, columns))
        if types is None:
            fields = next(each for each in TABLES if each._meta.table_name == table)._meta.columns
            types = [_TYPES[fields[name].field_type] if name in fields else "" for name in columns]
            self._kinds[table, columns] = types
        return types

    def _copy(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        cursor = self.cursor()
        cursor.execute("SET LOCAL statement_timeout = 0")  # it takes as long as the network
        with (
            peewee.__exception_wrapper__,  # type: ignore[attr-defined]
            cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy,
        ):
            for row in rows:
                copy.write_row(row)


class _Own(threading.local):
    """What one thread has."""

    def __init__(self) -> None:
        self.gathers = False
        self.collects = False
        self.waiting: list[Statement] = []
        self.session: Session | None = None


def _as_sent(type: str, values: Sequence[Any]) -> Sequence[Any]:
    """Values of a column as they are sent. Numbers go as texts: the driver would give them a type by their
    size, and a statement is prepared for certain types."""
    if type in ("text", "bytea", ""):
        return values
    return [None if each is None else str(each) for each in values]
