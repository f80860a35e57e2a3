"""The PostgreSQL database that a copy goes into, and how far it has come, which is kept there.

The table `copy_progress` has a row for each stream. It is there from before the first of our tables until all
is verified, and as long as it is no service starts there.

INVARIANT: rows and the mark of how far they go are committed together, so that a copy that was interrupted in
any place goes on behind the last row that is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import psycopg
from peewee import AutoField

from api.database.audit_chain import ChainName, Tip
from api.database.connection import COPY_PROGRESS, Database
from api.database.lanes.pooler import refuse_pooled
from api.database.models import OF_SQLITE, TABLES
from api.database.moving.streams import STREAMS, CopyError, Row, Stream
from api.database.postgres import NO_TIMEOUTS, REACHED

_LOCK = 0xC09E
"""Number of the advisory lock of a copy (arbitrary, fixed)."""
_BEFORE_ALL = -(1 << 63)
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_MAKE = (
    f"CREATE TABLE {COPY_PROGRESS} (stream TEXT PRIMARY KEY, source TEXT NOT NULL,"
    " last_number BIGINT NOT NULL, row_count BIGINT NOT NULL)"
)
_MARK = f"UPDATE {COPY_PROGRESS} SET last_number = %s, row_count = row_count + %s WHERE stream = %s"
_TIPS = (
    "SELECT DISTINCT ON (organisation_id, chain) organisation_id, chain, sequence, hash FROM audit"
    " ORDER BY organisation_id, chain, sequence DESC"
)
_PUT_TIP = "INSERT INTO chains (organisation_id, chain, sequence, hash) VALUES (%s, %s, %s, %s)"
_NUMBER_ON = (
    "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), MAX({column})) FROM {table}"
    " HAVING MAX({column}) > 0"
)

Progress = dict[str, tuple[int, int]]
"""Stream to the number of the last row that is there, and how many are."""


class Target:
    """An open one; see `opened`."""

    def __init__(self, connection: psycopg.Connection, url: str) -> None:
        self._connection = connection
        self._url = url

    def refuse_others(self) -> None:
        """Raises CopyError when anything is there that no copy has brought."""
        tables = self._tables()
        if tables and COPY_PROGRESS not in tables:
            hint = "if a copy has made it and is whole, start with it; else " if "audit" in tables else ""
            raise CopyError(
                f"the database of --to is not empty (it has the table `{min(tables)}`); {hint}"
                "make a new one, with `createdb` or `CREATE DATABASE`, and name that"
            )

    def begin(self, fingerprint: str) -> Progress:
        """Make the tables where nothing is; returns how far a copy has come already. Raises CopyError when
        what is there came from another state of the source."""
        if not self._tables():
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(_MAKE)
                cursor.executemany(
                    f"INSERT INTO {COPY_PROGRESS} VALUES (%s, %s, %s, 0)",
                    [(each.name, fingerprint, _BEFORE_ALL) for each in STREAMS],
                )
        progress = {
            name: (source, (last, count))
            for name, source, last, count in self._rows(
                f"SELECT stream, source, last_number, row_count FROM {COPY_PROGRESS}"
            )
        }
        if {source for source, _ in progress.values()} != {fingerprint} or set(progress) != {
            each.name for each in STREAMS
        }:
            raise CopyError(
                "the database of --to has a part of a copy of something else, or of what this database was "
                "before it was changed; drop it, make a new one, and copy again"
            )
        self._make_tables()
        places = {name: place for name, (_, place) in progress.items()}
        begun = {each.table for each in STREAMS if places[each.name][1]}
        for table in {each.table for each in STREAMS} - begun:
            # Rows that migrations put there come with those of the source.
            self._connection.execute(f'DELETE FROM "{table}"')
        return places

    def _tables(self) -> set[str]:
        return {name for (name,) in self._rows(_TABLES)}

    def _make_tables(self) -> None:
        database = Database(self._url, readers=1)
        try:
            database.migrate(within_copy=True)
        finally:
            database.close()

    def put(self, stream: Stream, rows: Sequence[Row], last: int) -> None:
        """The next rows of a stream, up to that number of the source."""
        names = ", ".join(f'"{column}"' for column in stream.columns)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            with cursor.copy(f'COPY "{stream.table}" ({names}) FROM STDIN') as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(_MARK, (last, len(rows), stream.name))

    def count(self, table: str) -> int:
        return int(self._rows(f'SELECT COUNT(*) FROM "{table}"')[0][0])

    def tips(self) -> dict[ChainName, Tip]:
        """Where the chains end that are there."""
        return {(name, chain): (sequence, digest) for name, chain, sequence, digest in self._rows(_TIPS)}

    def finish(self, tips: Mapping[ChainName, Tip]) -> None:
        """All is there: from now on a service may start."""
        # This may take long, and be interrupted as all before it.
        self._connection.execute("ANALYZE")
        with self._connection.transaction(), self._connection.cursor() as cursor:
            # With this commit all before it is on disk too.
            cursor.execute("SET LOCAL synchronous_commit = on")
            cursor.executemany(_PUT_TIP, [(*name, *tip) for name, tip in tips.items()])
            for table in TABLES:
                key = table._meta.primary_key
                if table not in OF_SQLITE and isinstance(key, AutoField):
                    cursor.execute(_NUMBER_ON.format(table=table._meta.table_name, column=key.column_name))
            cursor.execute(f"DROP TABLE {COPY_PROGRESS}")

    def _rows(self, statement: str) -> list[Row]:
        return self._connection.execute(statement).fetchall()


@contextlib.contextmanager
def opened(url: str) -> Iterator[Target]:
    """For one copy at a time. Raises CopyError, DatabaseUnavailable, psycopg.Error."""
    connect = partial(psycopg.connect, url, autocommit=True, **REACHED)
    refuse_pooled(connect)
    with connect() as connection:
        if connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() != (True,):
            raise CopyError("another copy into the database of --to is under way; wait for its end")
        connection.execute("SET synchronous_commit = off")
        connection.execute(NO_TIMEOUTS)
        target = Target(connection, url)
        target.refuse_others()
        yield target
