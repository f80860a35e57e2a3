"""The SQLite database that is copied: locked against everybody who would write, and read in one transaction.

INVARIANT: nothing in it is changed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from api.database.audit_chain import ChainName, Tip
from api.database.connection import MIGRATIONS
from api.database.moving.streams import STREAMS, CopyError, Row, Stream
from api.database.sqlite.write_lock import FileLock, is_served

_TIPS = "SELECT organisation_id, chain, MAX(sequence), hash FROM audit GROUP BY organisation_id, chain"
_MOVED_BY_ANY_START = ("SELECT * FROM counters ORDER BY name", "SELECT * FROM nodes ORDER BY node_id")
_BATCH_ROWS = 2_000
_BATCH_BYTES = 4 << 20


class Source:
    """An open one; see `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @cached_property
    def counts(self) -> dict[str, int]:
        """Rows of each stream."""
        return {each.name: int(self._rows(each.count)[0][0]) for each in STREAMS}

    @cached_property
    def tips(self) -> dict[ChainName, Tip]:
        """Where the chains of the audit log end."""
        return {
            (organisation_id, int(chain)): (int(sequence), str(digest))
            for organisation_id, chain, sequence, digest in self._rows(_TIPS)
        }

    @property
    def fingerprint(self) -> str:
        """Of its state: another one once a service has run on it, a command has changed something, or rows
        have got other numbers (VACUUM)."""
        parts: list[object] = [sorted(self.counts.items()), sorted(self.tips.items())]
        parts += [self._rows(statement) for statement in (*_MOVED_BY_ANY_START, "PRAGMA schema_version")]
        return sha256(repr(parts).encode()).hexdigest()

    def batches(self, stream: Stream, after: int) -> Iterator[tuple[int, list[Row]]]:
        """The rows of a stream behind a number, some at a time: the last number, and rows for the target."""
        batch: list[Row] = []
        size, last = 0, after
        for last, *values in self._connection.execute(stream.rows_after, (after,)):
            batch.append(stream.made(tuple(values)))
            size += sum(len(value) for value in values if isinstance(value, (str, bytes)))
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield last, batch
                batch, size = [], 0
        if batch:
            yield last, batch

    def _rows(self, statement: str) -> list[Row]:
        return self._connection.execute(statement).fetchall()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Raises CopyError, DatabaseUnavailable when another process writes and does not end."""
    lock = FileLock(path)
    try:
        with (
            lock.held(),
            contextlib.closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            ) as connection,
        ):
            if is_served(path):
                raise CopyError(f"a service runs on `{path}`; stop it, and copy again")
            connection.execute("BEGIN")
            _refuse_other_schema(connection, path)
            yield Source(connection)
    finally:
        lock.close()


def _refuse_other_schema(connection: sqlite3.Connection, path: Path) -> None:
    known = {each.stem for each in MIGRATIONS.glob("[0-9]*.py")}
    try:
        applied = {name for (name,) in connection.execute("SELECT name FROM schema_migration")}
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        raise CopyError(f"`{path}` is no database of this service; see --data-dir") from None
    if known - applied:
        raise CopyError(
            f"`{path}` was last used by an older version; back it up, run `governance users list`, which "
            "takes it along, and copy again"
        )
    if applied - known:
        raise CopyError(f"`{path}` was used by a newer version; update this one, and copy again")
