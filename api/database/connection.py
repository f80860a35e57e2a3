"""The database: opening, migrating, transactions, and reads on worker threads.

SQLite runs in WAL mode with `synchronous=FULL`, so that a committed transaction survives a power cut; a file
lock beside the database keeps several processes in line, so that nobody waits in SQLITE_BUSY retries: there
is one writing transaction at a time. On PostgreSQL events are written side by side, see `lanes/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import peewee
from playhouse.migrations import Runner

from api.database.errors import DatabaseUnavailable, NewerDatabase, translated
from api.database.lacking import OWN, count_on, lacking, refuse_foreign, refuse_shadowed, refuse_unkeyed
from api.database.lanes.circuit_breaker import Silence
from api.database.lanes.locks import ServerLock
from api.database.lanes.session import Rows, Statement
from api.database.outage import AGAIN_SECONDS, Outage
from api.database.postgres import Postgres
from api.database.secrets_at_rest import close_to_others
from api.database.sqlite.copied import refuse_copied
from api.database.sqlite.files import SqliteFile, beside_database, resolved
from api.database.sqlite.header import NO_LOG, START, foreign_log, header
from api.database.sqlite.other_name import refuse_other_name
from api.database.sqlite.pages import are_damaged
from api.database.sqlite.wal_checkpoints import Checkpoints
from api.database.sqlite.write_lock import FileLock
from api.database.table import database
from api.loops import Threads

log = logging.getLogger("governance")

T = TypeVar("T")

_UNAVAILABLE = tuple(
    getattr(family, name)
    for family in (peewee, sqlite3)
    for name in ("OperationalError", "InterfaceError", "InternalError")
)
_DAMAGED = peewee.DatabaseError, sqlite3.DatabaseError
"""A damaged file has no class of its own. While rows are fetched the driver's exceptions come as they are."""

MIGRATIONS = Path(__file__).parent / "migrations"

COPY_PROGRESS = "copy_progress"
"""A table that is there while a copy into this database is not whole (`moving/`)."""

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


class Database:
    """One process's way to its database. `url` is `sqlite:///path` or `postgresql://...`."""

    def __init__(self, url: str, readers: int = 4) -> None:
        self.url = url
        scheme = urlsplit(url).scheme
        self.is_sqlite = scheme == "sqlite"
        self._file_lock: FileLock | None = None
        self._server_lock: ServerLock | None = None
        self._sqlite: SqliteFile | None = None
        self.lost = 0
        """How many connections have failed: behind a new one there may be another database than before."""
        if self.is_sqlite:
            self.path = resolved(Path(url.removeprefix("sqlite:///")))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.peewee: peewee.Database = (file := SqliteFile(self.path, self._give_up))
            self._sqlite = file
            self.checkpoints = Checkpoints(file)
            self._file_lock = FileLock(self.path, partial(refuse_copied, self.path))
        else:
            self.peewee = Postgres(url.replace("postgres://", "postgresql://", 1))
            self._server_lock = ServerLock(self.peewee)
        database.initialize(self.peewee)
        self._readers = Threads(readers, "store-read")
        self._first_readers = Threads(2, "store-first")
        self.reading = Outage("reading from the database", settles=AGAIN_SECONDS)
        """Around whatever callers read, on their event loop."""
        self._statements: dict[tuple[str, tuple[str, ...]], str] = {}
        self._rows = 0
        """Put in by the transaction."""
        self._looks: dict[tuple[str, int], str] = {}

    def migrate(self, *, within_copy: bool = False) -> None:
        """Bring the tables up to date; safe to call from several processes at once. A database that a copy
        has not filled wholly is for that copy alone. Raises DatabaseUnavailable."""
        self.refuse_foreign_file()
        if self.is_sqlite:
            close_to_others(self.path)
        runner = Runner(self.peewee, str(MIGRATIONS))
        known = {each.name for each in runner.migrations()}
        lock = (
            self._server_lock.over_transactions(lambda: known - runner.applied().keys())
            if self._server_lock
            else self.write_lock()
        )
        with self.guarded(), lock:
            if not (self.is_sqlite or within_copy) and self.peewee.table_exists(COPY_PROGRESS):
                made = DatabaseUnavailable("the database is not whole yet")
                made.operator_message = (
                    "the copy into this database is not whole; run `governance copy` again: it goes on where "
                    "it was"
                )
                raise made
            if isinstance(self.peewee, Postgres):
                refuse_foreign(self.peewee)
                refuse_shadowed(self.peewee)
                if not within_copy:
                    count_on(self.peewee)
            if newer := runner.applied().keys() - known:
                raise translated(NewerDatabase(min(newer)), self.url)
            runner.up()
            refuse_unkeyed(self.peewee)
        if self._sqlite is not None:
            self._sqlite.made = True

    def watch_return(self, complaint: Callable[[], str | None]) -> None:
        """A database (SQLite) that comes back after it was gone, or takes the place of another, is used
        once there is no complaint of it."""
        if self._sqlite is not None:
            self._sqlite.complaint = complaint

    def check_pages(self) -> None:
        """Refuse a file with damaged pages (SQLite), as far as that shows within some seconds: the tables are
        read one by one, those that say who may do what before those that grow. Raises DatabaseDamaged."""
        if not self.is_sqlite:
            return
        with self.guarded():
            if are_damaged(self.peewee):
                raise peewee.DatabaseError("database disk image is malformed")

    def write_lock(self, *, wait: bool = True) -> contextlib.AbstractContextManager[None]:
        """The process-wide part of the write lock (SQLite only; PostgreSQL locks in `transaction`)."""
        return self._file_lock.held(wait=wait) if self._file_lock else contextlib.nullcontext()

    def refuse_foreign_file(self) -> None:
        """Before anything is made beside it or in it. Raises DatabaseUnavailable.

        INVARIANT: not while it is open. To close another descriptor of the file takes away the locks that
        SQLite has on it, so that the last other process that ends would remove the log under this one.
        """
        if self._sqlite is None or self._sqlite.is_open:
            return
        if self.path.is_dir():
            raise DatabaseUnavailable(f"`{self.path}` is a folder; name the file of the database")
        refuse_copied(self.path)
        with contextlib.suppress(OSError):
            if self.path.is_file() and self.path.stat().st_size:
                beside = [path for path in beside_database(self.path) if path.exists()]
                if not (begin := header(self.path)).startswith(START):
                    raise translated(peewee.DatabaseError("file is not a database"), self.url)
                if beside and begin.endswith(NO_LOG):
                    raise foreign_log(self.path, beside)
                refuse_other_name(self.path)
                self._refuse_foreign_tables()

    def _refuse_foreign_tables(self) -> None:
        place = f"{self.path.absolute().as_uri()}?mode=ro"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(place, uri=True, timeout=0)) as database,
        ):
            tables = {
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            if tables and not tables & OWN:
                raise DatabaseUnavailable(
                    f"`{self.path}` is the database of another program; name a file of its own"
                )

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn driver failures into DatabaseUnavailable and drop the broken connection."""
        if isinstance(self.peewee, Postgres) and self.peewee.breaker.is_open:
            raise translated(Silence(), self.url)
        try:
            if self._sqlite is not None:
                self._sqlite.check()
            yield
        except (*_UNAVAILABLE, *_DAMAGED) as error:
            made = lacking(error, self.url)
            if made is None and type(error) not in _DAMAGED and not isinstance(error, _UNAVAILABLE):
                raise  # the statement's own fault
            self._give_up()
            raise made or translated(error, self.url) from error
        except OSError as error:
            raise translated(error, self.url) from error

    def is_outage(self, error: Exception) -> bool:
        """Whether it is one that `guarded` turns into DatabaseUnavailable, or was."""
        return isinstance(error, (*_UNAVAILABLE, DatabaseUnavailable)) or lacking(error, self.url) is not None

    def _give_up(self) -> None:
        """Close a connection that has failed."""
        self.lost += 1
        with contextlib.suppress(Exception):
            self.peewee.close()

    @contextlib.contextmanager
    def transaction(
        self, *, wait: bool = True, size: int = 0, first: Sequence[Statement] = (), shared: bool = False
    ) -> Iterator[list[Rows]]:
        """A writing transaction: commits at the end, rolls back on any error. `size`: bytes of the events
        that it takes in.

        With `wait=False` (SQLite) it fails at once where it would wait for another process. On PostgreSQL one
        of events is `shared`, and the rows of the `first` statements come with its lock.
        """
        with self.guarded(), self.write_lock(wait=wait):
            if self.peewee.is_closed():
                self.peewee.connect()
            if isinstance(self.peewee, Postgres) and self._server_lock is not None:
                lock = self._server_lock
                with lock.watched(), self.peewee.gathering(), self.peewee.atomic():
                    yield lock.take(first, shared=shared)
            else:
                if not wait:
                    self._never_wait()
                self._rows = 0
                with self.peewee.atomic("IMMEDIATE"):
                    yield []
                self.checkpoints.written(self._rows, size)
                self._sqlite.written_over.committed()  # type: ignore[union-attr]

    def _never_wait(self) -> None:
        """From now on this thread's connection fails at once where it would wait for another process."""
        connection = self.peewee.connection()
        if not connection.hasty:
            self.peewee.execute_sql("PRAGMA busy_timeout = 0")
            connection.hasty = True

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
        try:
            self.peewee.connection().cursor().executemany(self._insert(table, columns) + ending, rows)
        except Exception as error:
            # The driver's own exception, given peewee's class, so that callers see one family.
            with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
                raise error

    def _insert(self, table: str, columns: tuple[str, ...]) -> str:
        """The statement that puts in a row."""
        statement = self._statements.get((table, columns))
        if statement is None:
            names = ", ".join(f'"{column}"' for column in columns)
            statement = f'INSERT INTO "{table}" ({names}) VALUES ({marks(columns)})'
            self._statements[(table, columns)] = statement
        return statement

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement written with `?` marks. They are taken one by one: no other thread runs
        while PostgreSQL's driver reads very many at once."""
        if isinstance(self.peewee, Postgres) and self.peewee.gathers:
            return self.peewee.answers([(statement, parameters)])[0]
        if self.peewee.param != "?":
            statement = statement.replace("?", self.peewee.param)
        return list(self.peewee.execute_sql(statement, parameters))

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

    def exclude_events(self) -> None:
        """Part of a transaction: see `lanes/locks.py`. SQLite has one writer anyway."""
        if self._server_lock is not None:
            self._server_lock.exclude_events()

    def collecting(self) -> contextlib.AbstractContextManager[list[Statement]]:
        """See `postgres.py`."""
        assert isinstance(self.peewee, Postgres)
        return self.peewee.collecting()

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
        return await self._read_on(self._readers, function, *arguments)

    async def read_first(self, function: Callable[..., T], *arguments: Any) -> T:
        """The same on threads that only read who asks and whether all is well, so that no list delays it."""
        return await self._read_on(self._first_readers, function, *arguments)

    async def _read_on(self, threads: Threads, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        with self.reading.watched():
            return await loop.run_in_executor(threads, lambda: self.read_here(function, *arguments))

    def read_here(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a reading function on this thread; one retry, since a kept connection may have died."""
        try:
            with self.guarded():
                return function(*arguments)
        except DatabaseUnavailable:
            with self.guarded():
                return function(*arguments)

    def leave(self) -> None:
        """Close the connection of this thread."""
        if not self.peewee.is_closed():
            self.peewee.close()

    def close(self) -> None:
        for readers in (self._readers, self._first_readers):
            readers.shutdown(wait=True)
        if self.is_sqlite:
            self.checkpoints.close()
        if self._sqlite is not None:
            self._sqlite.close_ended()
            if self._sqlite.made:
                # So that the file alone is the whole database while nothing runs.
                with contextlib.suppress(peewee.PeeweeException, DatabaseUnavailable), self.guarded():
                    self.peewee.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self.leave()
        if self._file_lock is not None:
            self._file_lock.close()
