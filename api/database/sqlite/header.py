"""What the first bytes of a database file say: whether it is SQLite's, and whether it was ever open with a
log, which a copy by `governance backup` never was.

Such a copy must stay one: put in the place of a database after a crash, it is told by this from the file that
the log beside it belongs to.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from api.database.errors import DatabaseUnavailable
from api.database.sqlite.files import beside_database, resolved

START: Final = b"SQLite format 3\0"
SIZE: Final = 20
NO_LOG: Final = b"\1\1"
"""The last two of these bytes."""


def header(path: Path) -> bytes:
    """Raises OSError."""
    with path.open("rb") as file:
        return file.read(SIZE)


def foreign_log(path: Path, beside: Sequence[Path]) -> DatabaseUnavailable:
    """The error to raise where these lie beside a file that never had a log."""
    made = DatabaseUnavailable("a log lies beside the database that is not its own")
    both = " and ".join(f"`{each}`" for each in beside)
    made.operator_message = (
        f"{both} lie beside `{path}` but belong to the file that lay there before: this one is a copy that "
        f"never had a log. Stop every process of the service, delete {both}, and start it again; if you did "
        "not put the copy there to restore it, put the file of before back instead"
    )
    return made


def is_without_log(path: Path) -> bool:
    """Whether it is as `governance backup` has left it. False also where nobody can tell."""
    path = resolved(path)
    try:
        return header(path).endswith(NO_LOG) and not any(each.exists() for each in beside_database(path))
    except OSError:
        return False


@contextlib.contextmanager
def left_without_log(path: Path) -> Iterator[None]:
    """What had no log before has none afterwards, unless somebody else has it open. INVARIANT: a log that lay
    beside it before is not touched."""
    path = resolved(path)
    without = is_without_log(path)
    try:
        yield
    finally:
        if without:
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(path, timeout=0)) as connection,
            ):
                connection.execute("PRAGMA journal_mode = delete")
