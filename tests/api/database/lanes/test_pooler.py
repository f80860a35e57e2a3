"""A pooler that gives a session to somebody else after each transaction is found out before it does harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.lanes.circuit_breaker import Silence
from api.database.lanes.pooler import refuse_pooled
from api.database.lanes.room import room_of_pooler, too_little
from api.database.lanes.session import BoundedConnection
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres


class Pooler:
    """Sessions of a server, one of which each statement takes: the one that was given back last, or the one
    that has rested for longest."""

    def __init__(self, sessions: list[psycopg.Connection], *, in_turn: bool) -> None:
        self._sessions, self._in_turn = sessions, in_turn

    def execute(self, statement: str) -> Any:
        session = self._sessions.pop(0 if self._in_turn else -1)
        self._sessions.append(session)
        return session.execute(statement)  # type: ignore[call-overload]

    @contextmanager
    def connect(self) -> Iterator[Any]:
        yield self


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("sessions", [1, 2, 3, 4, 7])
def test_a_session_that_is_shared_is_refused(postgres: Postgres, sessions: int, in_turn: bool) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(psycopg.connect(postgres.url())) for _ in range(sessions)]
        pooler: Any = Pooler(opened, in_turn=in_turn)
        with pytest.raises(DatabaseUnavailable, match=r"`pool_mode = session`.*address of the server itself"):
            refuse_pooled(pooler.connect)


def test_sessions_of_ones_own_are_not(postgres: Postgres) -> None:
    refuse_pooled(lambda: psycopg.connect(postgres.url(), autocommit=True))


def test_no_table_is_made_and_no_lock_is_left_behind_a_pooler(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Database(postgres_url)
    try:
        with psycopg.connect(postgres_url) as session:
            pooler: Any = Pooler([session], in_turn=False)
            monkeypatch.setattr(made.peewee, "connected", pooler.connect)
            with pytest.raises(DatabaseUnavailable, match="a pooler"):
                made.migrate()
            monkeypatch.undo()
            assert made.peewee.get_tables() == []
            assert made.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
    finally:
        made.close()


def test_a_server_that_cannot_be_reached_is_an_outage_in_words(postgres_url: str) -> None:
    made = Database(f"{postgres_url}_of_nobody")
    try:
        with pytest.raises(DatabaseUnavailable) as outage:
            made.migrate()
        assert "cannot be used: " in outage.value.operator_message
    finally:
        made.close()


def test_a_pooler_with_too_few_connections_is_found_out(postgres: Postgres) -> None:
    """It tells a client numbers of its own, and lets one wait for whom it has no connection."""
    opened: list[BoundedConnection] = []

    class Pooled(BoundedConnection):
        @property
        def info(self) -> Any:
            return mock.Mock(backend_pid=-1)

        def execute(self, *statement: Any, **options: Any) -> Any:
            opened.append(self)
            if len(opened) > 4:
                raise Silence
            return super().execute(*statement, **options)

    def room(kind: type[BoundedConnection], wanted: int) -> int | None:
        opened.clear()
        return room_of_pooler(lambda: kind.connect(postgres.url(), autocommit=True), wanted)

    assert room(Pooled, 28) == 5, "with the one that asks"
    assert all(each.closed for each in opened)
    assert room(Pooled, 5) == 5
    assert room(BoundedConnection, 28) is None


def test_a_server_that_others_fill_is_not_taken_for_a_pooler(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Database(postgres_url)

    def full(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("FATAL:  remaining connection slots are reserved")

    assert too_little(store, lanes=8, workers=1) is None
    monkeypatch.setattr(BoundedConnection, "connect", full)
    told = too_little(store, lanes=8, workers=1)
    assert told is not None and told.startswith("Others use up the connections of PostgreSQL, or of a pooler")
