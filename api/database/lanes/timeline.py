"""Which of several PostgreSQL servers a connection leads to: the one that took over last.

A standby that is promoted begins a timeline with a higher number. Where the server of before takes writes all
the same - it was cut off, or whatever starts services started it again -, an address with both hosts leads to
either: to whichever takes writes and is named first. What is written there is lost later, and a halt that one
of them knows holds nobody who is decided about on the other.

INVARIANT: no process uses a server once it has met a later timeline of the same database cluster.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from psycopg import Connection, Error, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict

log = logging.getLogger("governance")

_WHICH: Final = (
    "SELECT system_identifier,"
    " ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint"
    " FROM pg_control_system()"
)
"""The first eight digits in the name of a file of the log are the timeline's."""


class OldServer(OperationalError):
    """The server takes writes though another one has taken over from it."""


def each_server(address: str) -> Iterator[dict[str, Any]]:
    """The servers that an address names, as what of it leads to each alone; none where it names but one, or
    is none."""
    with suppress(ProgrammingError):
        yield from _servers(conninfo_to_dict(address))


def _servers(parts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lists = {name: str(parts[name]).split(",") for name in ("host", "hostaddr", "port") if parts.get(name)}
    many = max(map(len, lists.values()), default=0)
    for at in range(many if many > 1 else 0):
        yield {name: each[min(at, len(each) - 1)] for name, each in lists.items()}


class Timelines:
    """Of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster = 0
        self._newest = 0
        self._open: WeakKeyDictionary[Connection[Any], int] = WeakKeyDictionary()
        self._told: set[str] = set()

    def check(self, connection: Connection[Any]) -> None:
        """Before a new connection is used. Raises OldServer, and logs that once."""
        try:
            ((cluster, timeline),) = connection.execute(_WHICH).fetchall()
        except Error:
            if connection.closed:
                raise
            return  # a standby, which takes no writes anyway, or an engine that has no timelines
        with self._lock:
            same = cluster == self._cluster
            if same and timeline < self._newest:
                text = _overtaken(connection, timeline, self._newest)
                if text not in self._told:
                    log.warning("%s", text)
                self._told.add(text)
                raise OldServer(text)
            before = [each for each, its in self._open.items() if its != timeline or not same]
            if self._newest and before:
                log.warning(
                    "another PostgreSQL server has taken over (timeline %s): the connections to the one of "
                    "before are ended",
                    timeline,
                )
            self._cluster, self._newest = cluster, timeline
            for each in before:
                del self._open[each]
            self._open[connection] = timeline
        for each in before:
            _cut(each)


def _overtaken(connection: Connection[Any], timeline: int, newest: int) -> str:
    info = connection.info
    return (
        f"the server `{info.host}:{info.port}` takes writes, though another one has taken over from it (its "
        f"timeline is {timeline}, that of the other one {newest}): what is written there would be lost. Stop "
        "it, or make it a standby of the other one (`pg_rewind`, `standby.signal`); if it was put back to an "
        "earlier time on purpose, start this node again"
    )


def _cut(connection: Connection[Any]) -> None:
    """Whoever uses it, on whatever thread, meets its end."""
    with suppress(Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
