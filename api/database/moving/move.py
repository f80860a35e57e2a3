"""A whole SQLite database into an empty PostgreSQL database: streams of rows, then counts and chain tips.

Interrupted and started again it goes on where it was. The source stays as it is.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from api.database.errors import DatabaseFull, DatabaseUnavailable, translated
from api.database.moving import source, target
from api.database.moving.source import Source
from api.database.moving.streams import STREAMS, CopyError
from api.database.moving.target import Target

Watch = Callable[[str, int, int], None]
"""Told what is copied now, how many rows are there, and of how many."""
Mark = Callable[[], None]
"""Marks the source as copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What is in the target now."""

    rows: int
    tables: int
    before: int
    """Of the rows, those that an interrupted copy had brought."""


def copy(path: Path, url: str, watch: Watch, mark: Mark) -> Copied:
    """From the file into the database at the address. Raises CopyError, DatabaseUnavailable.

    INVARIANT: the source is marked before anybody may start on the target, and before anybody who waits for
    the source may write there: what they wrote would be in neither history.
    """
    url = url.replace("postgres://", "postgresql://", 1)
    with _told(path, url), source.opened(path) as old, target.opened(url) as new:
        progress = new.begin(old.fingerprint)
        total = sum(old.counts.values())
        before = done = sum(count for _, count in progress.values())
        for stream in STREAMS:
            watch(stream.name, done, total)
            for last, rows in old.batches(stream, progress[stream.name][0]):
                try:
                    new.put(stream, rows, last)
                except psycopg.DataError as error:
                    raise CopyError(
                        f"PostgreSQL does not take a row of `{stream.table}` before number {last}: {error}"
                    ) from None
                done += len(rows)
                watch(stream.name, done, total)
        watch("verifying", done, total)
        tables = _verify(old, new)
        mark()
        new.finish(old.tips)
        return Copied(done, tables, before)


def _verify(old: Source, new: Target) -> int:
    """As many rows in each table, and the same ends of all chains; returns how many tables there are."""
    counts: Counter[str] = Counter()
    for stream in STREAMS:
        counts[stream.table] += old.counts[stream.name]
    wrong = [
        f"`{table}` has {there} rows in place of {count}"
        for table, count in counts.items()
        if (there := new.count(table)) != count
    ]
    tips = new.tips()
    wrong += [
        f"chain {chain} of the audit log of `{organisation_id}` ends otherwise"
        for organisation_id, chain in sorted(old.tips.keys() | tips.keys())
        if old.tips.get((organisation_id, chain)) != tips.get((organisation_id, chain))
    ]
    if wrong:
        raise CopyError(
            f"the copy is not what the source is: {'; '.join(wrong)}; drop the database of --to, make a new "
            "one, and copy again"
        )
    return len(counts)


@contextlib.contextmanager
def _told(path: Path, url: str) -> Iterator[None]:
    """What goes wrong with either database, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, f"sqlite:///{path}") from error
    except OSError as error:
        raise CopyError(f"`{error.filename or path}` cannot be used: {error.strerror}") from error
    except (psycopg.Error, DatabaseUnavailable) as error:
        made = error if isinstance(error, DatabaseUnavailable) else translated(error, url)
        said = made.operator_message or str(made)
        if isinstance(made, DatabaseFull):
            said += "; free disk space there, and run the same command again: it goes on where it was"
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            said += "; make its user the owner of the database"
        elif isinstance(error, psycopg.OperationalError):
            said += "; mend that or --to, and run the same command again: it goes on where it was"
        raise CopyError(said) from error
