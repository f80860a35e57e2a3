"""The database: opening, migrating, transactions, and reads on worker threads.

SQLite runs in WAL mode with `synchronous=FULL`, so that a committed transaction survives a power cut; a file
lock beside the database keeps several processes in line, so that nobody waits in SQLITE_BUSY retries. On
PostgreSQL an advisory lock does the same for several nodes.

INVARIANT: there is one writing transaction at a time over all processes. The audit chain, rate counts,
duplicate checks and policy revisions rely on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import peewee
from playhouse.migrations import Runner

from api.database.models import database
from api.database.postgres import Postgres, Rows, Statement
from api.database.wal_checkpoints import PAGE, Checkpoints

log = logging.getLogger("governance")

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"
WRITE_LOCK = 0x60BE_4A9C
"""Advisory lock number on PostgreSQL (arbitrary, fixed)."""

_LOCK = "SELECT set_config('lock_timeout', ?, true), pg_advisory_xact_lock(?)"
_END_SILENT = (
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = %s"
    " AND a.datname = current_database() AND a.wait_event = 'ClientRead'"
    " AND a.state_change < now() - make_interval(secs => %s)"
)

SQLITE_START = b"SQLite format 3\0"

LOCK_SECONDS = 10.0
"""How long a transaction waits for the write lock that another process holds."""
LOCK_SECONDS_AGAIN = 1.0
"""The same once a wait was in vain, so that a queue of requests is told soon."""
SILENT_SECONDS = 20
"""A node that held the lock on PostgreSQL in silence for so long has stopped or is out of reach."""


TOGETHER = 32
"""Rows that one statement puts into SQLite, where there are so many. More gain little."""


# SQLite's driver looks in three places for an adapter of each None and each `bytes` before it takes them as
# they are. With these it need not look far; they change nothing.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type]


def marks(values: Sequence[Any]) -> str:
    """As many `?` as there are values, for a list in a statement."""
    return ", ".join("?" * len(values))


def _replacing(columns: Iterable[str], key: Sequence[str]) -> str:
    """The end of an insert whose rows take the place of those with the same key."""
    new = ", ".join(f'"{column}" = excluded."{column}"' for column in columns if column not in key)
    return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {new}"


class DatabaseUnavailable(Exception):
    """The database cannot be reached or written now; nothing of the transaction was kept."""

    operator_message = ""
    """Which database and why, for the person at the command line; never for callers of the API."""


class DatabaseDamaged(DatabaseUnavailable):
    """The file is no database, or what it holds cannot be read."""


class DatabaseFull(DatabaseUnavailable):
    """The disk or the database has no room left; nothing of the transaction was kept."""


def translated(error: BaseException, url: str = "") -> DatabaseUnavailable:
    """The error to raise for a driver's failure."""
    made = _translated(error)
    made.operator_message = operator_message(made, error, url)
    return made


def _translated(error: BaseException) -> DatabaseUnavailable:
    cause: BaseException | None = error
    while cause is not None:
        # What was wrong at first may be hidden by a roll-back that found itself rolled back already.
        text = str(cause).lower()
        if "full" in text or "no space" in text:
            return DatabaseFull("the database has no room left; free disk space and try again")
        if "not a database" in text or "malformed" in text:
            return DatabaseDamaged("the database cannot be reached; try again shortly")
        cause = cause.__context__
    return DatabaseUnavailable("the database cannot be reached; try again shortly")


def operator_message(made: DatabaseUnavailable, error: BaseException, url: str) -> str:
    """Which database it is and what the driver said. INVARIANT: never the password."""
    if isinstance(made, DatabaseFull):
        return str(made)
    if urlsplit(url).scheme == "sqlite":
        path = url.removeprefix("sqlite:///")
        if isinstance(made, DatabaseDamaged):
            return (
                f"`{path}` is no database or is damaged; stop the service and put a copy that "
                f"`governance backup FILE` made in its place, and delete `{path}-wal` and `{path}-shm`; "
                "if the path is wrong, mend --database-url or GOVERNANCE_DATABASE_URL"
            )
        return f"the database `{path}` cannot be used: {_first_line(error)}"
    place, secrets = _postgres_place(url)
    reason = _first_line(error)
    for secret in secrets:
        reason = reason.replace(secret, "***")
    return f"the database {place} cannot be used: {reason}"


def _first_line(error: BaseException) -> str:
    # A failed start of a transaction hides what was wrong at first.
    text = str(error) or str(error.__context__ or "") or type(error).__name__
    return text.strip().splitlines()[0]


def _postgres_place(url: str) -> tuple[str, list[str]]:
    """`host:port/name`, and what must not be shown."""
    from urllib.parse import unquote

    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    rough = urlsplit(url).netloc.rpartition("@")[0].partition(":")[2]
    secrets = [rough, unquote(rough)]
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return "address", [each for each in secrets if each]
    secrets.append(str(parts.get("password") or ""))
    hosts = str(parts.get("host") or "localhost").split(",")
    ports = str(parts.get("port") or "5432").split(",")
    places = [f"{host}:{ports[min(number, len(ports) - 1)]}" for number, host in enumerate(hosts)]
    return f"`{','.join(places)}/{parts.get('dbname') or ''}`", [each for each in secrets if each]


class Database:
    """One process's way to its database. `url` is `sqlite:///path` or `postgresql://...`."""

    def __init__(self, url: str, readers: int = 4) -> None:
        self.url = url
        scheme = urlsplit(url).scheme
        self.is_sqlite = scheme == "sqlite"
        self._lock_file: int | None = None
        self._stuck = False
        """The last wait for the write lock was in vain."""
        self._made = False
        """The tables are there, so from now on there is a file."""
        self._opened = threading.local()
        self._file: tuple[int, int] | None = None
        """The file that was found last, by any thread."""
        self.lost = 0
        """How many connections have failed: behind a new one there may be another database than before."""
        if self.is_sqlite:
            self.path = Path(url.removeprefix("sqlite:///"))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.checkpoints = Checkpoints(self.path)
            self.peewee: peewee.Database = peewee.SqliteDatabase(
                str(self.path),
                pragmas={
                    # Measured: smaller pages cost more writes, larger ones more bytes for each index entry.
                    # Holds for new databases.
                    "page_size": PAGE,
                    "journal_mode": "wal",
                    "synchronous": "full",
                    "foreign_keys": 0,
                    "busy_timeout": 10_000,
                    "cache_size": -65_536,
                    # The commit that reaches it copies so many pages, which others wait for; it should not
                    # come to that, see `wal_checkpoints.py`.
                    "wal_autocheckpoint": 2_000,
                    "journal_size_limit": 67_108_864,
                },
                isolation_level=None,
            )
        else:
            self.peewee = Postgres(url.replace("postgres://", "postgresql://", 1))
        database.initialize(self.peewee)
        self._readers = ThreadPoolExecutor(max_workers=readers, thread_name_prefix="store-read")
        self._statements: dict[tuple[str, tuple[str, ...], int], str] = {}
        self._rows = 0
        """Put in by the transaction."""
        self._looks: dict[tuple[str, int], str] = {}

    def migrate(self) -> None:
        """Bring the tables up to date; safe to call from several processes at once."""
        self._refuse_foreign_file()
        with self.guarded(), self.write_lock(), self._session_lock():
            Runner(self.peewee, str(MIGRATIONS)).up()
        self._made = True

    def _refuse_foreign_file(self) -> None:
        """Before a lock file is made beside it."""
        with contextlib.suppress(OSError):
            if self.is_sqlite and self.path.is_file():
                with self.path.open("rb") as file:
                    start = file.read(len(SQLITE_START))
                if start and start != SQLITE_START:
                    raise translated(peewee.DatabaseError("file is not a database"), self.url)

    @contextlib.contextmanager
    def _session_lock(self) -> Iterator[None]:
        """The write lock over several transactions on PostgreSQL, which makes tables in steps."""
        if self.is_sqlite:
            yield
            return
        self.peewee.execute_sql("SELECT pg_advisory_lock(%s)", (WRITE_LOCK,))
        try:
            yield
        finally:
            # A connection that broke has given the lock back already.
            with contextlib.suppress(peewee.PeeweeException):
                self.peewee.execute_sql("SELECT pg_advisory_unlock(%s)", (WRITE_LOCK,))

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn driver failures into DatabaseUnavailable and drop the broken connection."""
        try:
            self._same_file()
            yield
        except (peewee.OperationalError, peewee.InterfaceError, peewee.InternalError) as error:
            self._give_up()
            raise translated(error, self.url) from error
        except peewee.DatabaseError as error:
            if type(error) is not peewee.DatabaseError:
                raise  # the statement's own fault
            # A damaged file has no class of its own.
            self._give_up()
            raise translated(error, self.url) from error
        except OSError as error:
            raise translated(error, self.url) from error

    def _give_up(self) -> None:
        """Close a connection that has failed."""
        self.lost += 1
        with contextlib.suppress(Exception):
            self.peewee.close()

    def _same_file(self) -> None:
        """Leave a connection whose file was taken away or replaced under it.

        INVARIANT: nothing is written to a file that nobody will find again.
        """
        if not self.is_sqlite:
            return
        try:
            found = self.path.stat()
        except FileNotFoundError:
            if not self._made:
                return  # about to be made
            self._give_up()
            raise DatabaseUnavailable("the database file is gone; put it back") from None
        identity = (found.st_dev, found.st_ino)
        if self._file not in (None, identity):
            self.lost += 1  # also for a thread that has no connection to lose
        self._file = identity
        if self.peewee.is_closed():
            self._opened.file = identity
        elif getattr(self._opened, "file", identity) != identity:
            self._give_up()
            self._opened.file = identity

    @contextlib.contextmanager
    def write_lock(self, *, wait: bool = True) -> Iterator[None]:
        """The process-wide part of the write lock (SQLite only; PostgreSQL locks in `transaction`).

        Raises DatabaseUnavailable when it cannot be had in time. INVARIANT: nobody waits for ever: a sibling
        that was stopped while it held the lock (SIGSTOP, a debugger, a frozen container) would otherwise
        hang every event of every process, and nobody would be told.
        """
        if not self.is_sqlite or os.name == "nt":
            yield
            return
        import fcntl

        if self._lock_file is None:
            self._lock_file = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + self._patience
        pause = 0.0002
        # `flock` knows no time limit, so it is asked again and again; a group commit takes milliseconds.
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait:
                    raise DatabaseUnavailable("another process writes; try again shortly") from None
                if time.monotonic() >= deadline:
                    raise self._held() from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.002)
        self._stuck = False
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @property
    def _patience(self) -> float:
        return LOCK_SECONDS_AGAIN if self._stuck else LOCK_SECONDS

    def _held(self) -> DatabaseUnavailable:
        made = DatabaseUnavailable("another process holds the database; try again shortly")
        made.operator_message = (
            f"another process holds `{self.path}.lock` and does not go on; continue it or end it"
        )
        if not self._stuck:
            log.warning("%s", made.operator_message)
        self._stuck = True
        return made

    def _lock_on_server(self, database: Postgres, first: Sequence[Statement]) -> list[Rows]:
        """The write lock of all nodes on PostgreSQL, see `write_lock`, and the rows of the first statements.

        The server holds the lock of a node that lost its power for hours, so whoever waits in vain ends the
        session of a holder that has been silent for long; what it had not committed is undone.
        """
        database.later(_LOCK, (f"{self._patience:.0f}s", WRITE_LOCK))
        try:
            found = database.answers(first)
        except peewee.OperationalError as error:
            if getattr(getattr(error, "orig", None), "sqlstate", "") == "55P03":  # lock not available
                self._stuck = True
                self._end_silent_holder()
            raise
        self._stuck = False
        return found

    def _end_silent_holder(self) -> None:
        from psycopg import Error, connect

        with contextlib.suppress(Error), connect(self.url, autocommit=True, connect_timeout=5) as connection:
            if connection.execute(_END_SILENT, (WRITE_LOCK, SILENT_SECONDS)).fetchall():
                log.warning("a node that held the database in silence for %s s was cut off", SILENT_SECONDS)

    @contextlib.contextmanager
    def transaction(
        self, *, wait: bool = True, size: int = 0, first: Sequence[Statement] = ()
    ) -> Iterator[list[Rows]]:
        """The one writing transaction: commits at the end, rolls back on any error. `size`: bytes of the
        events that it takes in.

        With `wait=False` (SQLite) it fails at once where it would wait for another process. The rows of the
        `first` statements come with the lock (PostgreSQL; SQLite is asked when they are needed).
        """
        with self.guarded(), self.write_lock(wait=wait):
            if self.peewee.is_closed():
                self.peewee.connect()
            if isinstance(self.peewee, Postgres):
                with self.peewee.gathering(), self.peewee.atomic():
                    yield self._lock_on_server(self.peewee, first)
            else:
                if not wait:
                    self._never_wait()
                self._rows = 0
                with self.peewee.atomic("IMMEDIATE"):
                    yield []
                self.checkpoints.written(self._rows, size)

    def _never_wait(self) -> None:
        """From now on this thread's connection fails at once where it would wait for another process."""
        connection = self.peewee.connection()
        if getattr(self._opened, "hasty", None) is not connection:
            self.peewee.execute_sql("PRAGMA busy_timeout = 0")
            self._opened.hasty = connection

    def insert_many(
        self,
        table: str,
        columns: tuple[str, ...],
        rows: Sequence[Sequence[Any]],
        *,
        key: tuple[str, ...] = (),
    ) -> None:
        """Rows into a table, past peewee's model instances, which cost ten times as much; for PostgreSQL see
        there. With a `key` a row takes the place of the one that has the same; no two of the rows may."""
        if not rows:
            return
        ending = _replacing(columns, key) if key else ""
        if isinstance(self.peewee, Postgres):
            self.peewee.insert(table, columns, rows, ending)
            return
        self._rows += len(rows)
        together = len(rows) - len(rows) % TOGETHER
        try:
            cursor = self.peewee.connection().cursor()
            if together:
                statement = self._insert(table, columns, TOGETHER) + ending
                for start in range(0, together, TOGETHER):
                    cursor.execute(statement, list(chain.from_iterable(rows[start : start + TOGETHER])))
            if together < len(rows):
                cursor.executemany(self._insert(table, columns, 1) + ending, rows[together:])
        except Exception as error:
            # The driver's own exception, given peewee's class, so that callers see one family.
            with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
                raise error

    def _insert(self, table: str, columns: tuple[str, ...], count: int) -> str:
        """The statement that puts in so many rows."""
        statement = self._statements.get((table, columns, count))
        if statement is None:
            names = ", ".join(f'"{column}"' for column in columns)
            values = ", ".join([f"({marks(columns)})"] * count)
            statement = f'INSERT INTO "{table}" ({names}) VALUES {values}'
            self._statements[(table, columns, count)] = statement
        return statement

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement written with `?` marks."""
        if isinstance(self.peewee, Postgres) and self.peewee.gathers:
            return self.peewee.answers([(statement, parameters)])[0]
        if self.peewee.param != "?":
            statement = statement.replace("?", self.peewee.param)
        return list(self.peewee.execute_sql(statement, parameters).fetchall())

    def found(self, statement: str, keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows of a list of keys, each looked up by its index. `{keys}` in the statement stands for them:
        they are the rows of `w`, with `column1` and so on.

        PostgreSQL takes the keys as one array per part. For SQLite the list is filled up to one of a few
        lengths with keys that nothing has, so that it meets few different statements and keeps them prepared.
        """
        wanted = list(keys)
        if not wanted:
            return []
        parameters: list[Any]
        if not self.is_sqlite:
            parameters = [list(part) for part in zip(*wanted, strict=True)]
            arrays = ", ".join("?::text[]" if isinstance(part, str) else "?::bigint[]" for part in wanted[0])
            names = ", ".join(f"column{number}" for number in range(1, len(parameters) + 1))
            return self.rows(statement.replace("{keys}", f"unnest({arrays}) AS w({names})"), parameters)
        length = 1 << (len(wanted) - 1).bit_length()
        parameters = list(chain.from_iterable(wanted))
        parameters += [None] * (length * len(wanted[0]) - len(parameters))
        text = self._looks.get((statement, length))
        if text is None:
            mark = f"({marks(wanted[0])})"
            text = statement.replace("{keys}", f"(VALUES {', '.join([mark] * length)}) AS w")
            self._looks[(statement, length)] = text
        return self.rows(text, parameters)

    def rows_changed(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run a changing statement written with `?` marks; returns how many rows it changed."""
        if self.peewee.param != "?":
            statement = statement.replace("?", self.peewee.param)
        return int(self.peewee.execute_sql(statement, parameters).rowcount)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """The same when nobody asks what came of it; see `postgres.py`."""
        if isinstance(self.peewee, Postgres):
            self.peewee.later(statement, parameters)
        else:
            self.peewee.execute_sql(statement, parameters)

    def push(self) -> None:
        """Let PostgreSQL begin with what was left for later."""
        if isinstance(self.peewee, Postgres):
            self.peewee.push()

    def send(self) -> None:
        """Run what was left for later, so that its errors show now."""
        if isinstance(self.peewee, Postgres):
            self.peewee.send()

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a reading function on a worker thread with a connection of its own."""
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, lambda: self.read_here(function, *arguments)
        )

    def read_here(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a reading function on this thread; one retry, since a kept connection may have died."""
        try:
            with self.guarded():
                return function(*arguments)
        except DatabaseUnavailable:
            with self.guarded():
                return function(*arguments)

    def ping(self) -> bool:
        """True when the database answers."""
        try:
            return self.read_here(lambda: self.rows("SELECT 1")) == [(1,)]
        except DatabaseUnavailable:
            return False

    def leave(self) -> None:
        """Close the connection of this thread."""
        if not self.peewee.is_closed():
            self.peewee.close()

    def close(self) -> None:
        self._readers.shutdown(wait=True)
        if self.is_sqlite:
            self.checkpoints.close()
        self.leave()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None
