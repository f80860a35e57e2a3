"""Hints that another process has committed something: how a process hears of it soon.

PostgreSQL tells by `NOTIFY`, sent at most once per commit and only when somebody may wait for what it
changed. SQLite has no such thing: the version number of its file is looked at, which costs next to nothing.

A hint says only that there is something new; losing one delays, and never changes, what is read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

import psycopg

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.postgres import Postgres

CHANNEL = "governance"
LOOK_SECONDS = 0.025
"""Between looks at an SQLite file while somebody waits."""
IDLE_SECONDS = 0.25
"""Between looks while nobody does; also the longest that a stop has to wait."""


class Hints(Protocol):
    """For one thread. `wait` returns after a hint, at the latest after `seconds`; True: there is something
    new. Raises DatabaseUnavailable."""

    def wait(self, seconds: float) -> bool: ...

    def close(self) -> None: ...


def hints(store: Database, busy: threading.Event) -> Hints:
    """`busy` is set while somebody waits."""
    return FileHints(store, busy) if store.is_sqlite else NotifyHints(store)


def send(store: Database) -> None:
    """Inside a transaction: tell other processes once it is committed. (SQLite's file tells by itself.)"""
    if not store.is_sqlite:
        store.change("SELECT pg_notify(?, '')", (CHANNEL,))


class FileHints:
    """Looks at the version number of the SQLite file."""

    def __init__(self, store: Database, busy: threading.Event) -> None:
        self._store = store
        self._busy = busy
        self._version = -1

    def wait(self, seconds: float) -> bool:
        if self._busy.is_set():
            time.sleep(min(seconds, LOOK_SECONDS))
        else:
            self._busy.wait(min(seconds, IDLE_SECONDS))
        version = int(self._store.read_here(self._store.rows, "PRAGMA data_version")[0][0])
        changed = version != self._version
        self._version = version
        return changed

    def close(self) -> None:
        self._store.peewee.close()


class NotifyHints:
    """Listens on a PostgreSQL connection of its own. A new connection counts as a hint."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._connection: psycopg.Connection | None = None

    def wait(self, seconds: float) -> bool:
        try:
            if self._connection is None:
                assert isinstance(self._store.peewee, Postgres)
                self._connection = self._store.peewee.connected()
                self._connection.execute(f"LISTEN {CHANNEL}")
                return True
            found = list(self._connection.notifies(timeout=min(seconds, IDLE_SECONDS), stop_after=1))
        except (psycopg.Error, OSError) as error:
            self._forget()
            raise DatabaseUnavailable("the database cannot be reached; try again shortly") from error
        return bool(found)

    def close(self) -> None:
        self._forget()
        self._store.peewee.close()

    def _forget(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
