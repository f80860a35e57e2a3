"""What goes to PostgreSQL together: how often the server is waited for, and that nothing is half done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.lanes.session import BoundedConnection
from api.database.models import Organisation
from api.database.postgres import Postgres
from api.database.tables.policies import Blob, PolicyVersion
from api.database.transaction import Transaction
from api.ingestion import pipeline
from tests.faults.database_faults import HOLD, intact, nothing_beside, payment, post
from tests.harness.application import Service
from tests.harness.sql_archive import in_transaction

pytestmark = pytest.mark.postgres

GROUP = 64
PARTS = 2 * pipeline.PART + 6
"""Events of a group that is written in three parts."""
MOST_WAITS = 4


@pytest.fixture
def store(postgres_url: str) -> Iterator[Database]:
    made = Database(postgres_url)
    made.migrate()
    yield made
    made.close()


def database(store: Database) -> Postgres:
    assert isinstance(store.peewee, Postgres)
    return store.peewee


def by_thread(url: str) -> dict[str, str]:
    """Without lanes of the event loop: all events are the writer's thread's."""
    return {
        "GOVERNANCE_DATABASE_URL": url,
        "GOVERNANCE_LANES": "0",
        "GOVERNANCE_KEY_PENDING_APPROVALS": "0",
    }


class Waits:
    """Counts how often the writer waits for the server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        wait = psycopg.Connection.wait

        def counted(connection: Any, *arguments: Any, **named: Any) -> Any:
            self.count += threading.current_thread().name == "store-writer"
            return wait(connection, *arguments, **named)

        monkeypatch.setattr(psycopg.Connection, "wait", counted)

    def restart(self) -> None:
        self.count = 0


async def together(running: Service, events: list[dict[str, Any]], then: Callable[[], None]) -> set[int]:
    """The statuses of events that share one commit; `then` is called before it."""

    writer = running.context.writer
    alone = threading.Event()

    def job(transaction: Transaction) -> None:
        alone.set()
        transaction.after_commit(then)
        deadline = time.monotonic() + 20
        while writer._queue.qsize() < len(events) and time.monotonic() < deadline:
            time.sleep(0.005)

    before = asyncio.create_task(writer.write(job))
    while not alone.is_set():
        await asyncio.sleep(0.001)
    answer = await running.call("agent", "POST", "/v1/events/batch", {"events": events})
    await before
    return {result["status"] for result in answer.json()["results"]}


async def test_a_group_of_events_waits_for_the_server_a_few_times(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a run that is new."""
    nothing_beside(monkeypatch)
    async with Service(tmp_path, [HOLD], environment=by_thread(postgres_url)) as running:
        for number in range(3):
            assert (await post(running, payment(number))).status_code == 200
        waits = Waits(monkeypatch)
        for group, expected in (("a", MOST_WAITS), ("b", MOST_WAITS - 1)):
            events = [payment(f"{group}{number}") | {"runId": "run-0"} for number in range(GROUP)]
            if group == "a":
                events[7]["runId"] = "a new one"
            assert await together(running, events, waits.restart) == {200}
            assert 2 <= waits.count <= expected
        await intact(running)


TEXTS = [
    *(
        "",
        "plain",
        "NULL",
        "null",
        "{}",
        "{a,b}",
        '"',
        '""',
        "\\",
        "\\\\",
        '\\"',
        ",",
        "a,b",
        " a ",
        "\n\t\r",
    ),
    *(
        "\x1f",
        "a\x1fb",
        "\x01\x7f",
        "ä\U0001f600\u2028",
        "'; DROP TABLE blobs",
        "$1 ? %s %(x)s",
        "\\x00",
        "?",
    ),
]


@pytest.mark.parametrize("copies", [1, 60])
def test_values_arrive_as_they_are(store: Database, copies: int) -> None:
    """However many: above a thousand rows it is another way."""
    contents = [bytes(range(256)), b"", b"\\x", *(text.encode() for text in TEXTS)]
    blobs = [(f"{copy}-{number}", c) for copy in range(copies) for number, c in enumerate(contents)]
    names = [(f"{copy} {text}", text, "") for copy in range(copies) for text in TEXTS]
    single = [("only " + text, text, "") for text in TEXTS]
    newer = [(name, text + " again", "") for name, text, _ in names[:50]]
    columns = ("organisation_id", "name", "created_at")

    def write(transaction: Transaction) -> None:
        store.insert_many("blobs", ("digest", "content"), blobs)
        store.insert_many("organisations", columns, names)
        store.insert_many("organisations", columns, [*newer, *single], key=("organisation_id",))
        for text in TEXTS:
            store.insert_many("organisations", columns, [("one " + text, text, "")])

    in_transaction(store, write, 0.0)
    assert {row.digest: bytes(row.content) for row in Blob.select()} == dict(blobs)
    found = {row.organisation_id: row.name for row in Organisation.select()}
    assert found == {row[0]: row[1] for row in [*names, *newer, *single]} | {
        "one " + text: text for text in TEXTS
    }


def test_nulls_numbers_and_booleans_arrive(store: Database) -> None:
    columns = tuple(PolicyVersion._meta.columns)
    numbers = [0, 1, -1, 2**31, 2**63 - 1, -(2**63)]
    made = [
        (
            "o",
            f"p{at}",
            at,
            number,
            "path",
            "d",
            "s",
            '"',
            "at",
            "by",
            None,
            "NULL" if at % 2 else None,
            at % 2 == 0,
        )
        for at, number in enumerate(numbers)
    ]
    times = [0.1 + 0.2, 1e300, 5e-324, 1769851800.123456, 0.0]

    def write(transaction: Transaction) -> None:
        store.insert_many("policy_versions", columns, made)
        hits = [(f"b{time!r}", time, -time) for time in times]
        store.insert_many("rate_hits", ("bucket", "at", "expires_at"), hits)

    in_transaction(store, write, 0.0)
    assert sorted(PolicyVersion.select().tuples(), key=lambda row: row[2]) == made
    kept = store.rows("SELECT bucket, at, expires_at FROM rate_hits")
    assert sorted(kept) == sorted((f"b{time!r}", time, -time) for time in times)


def test_who_reads_sees_what_was_written_before(store: Database) -> None:
    columns = ("organisation_id", "name", "created_at")

    def job(transaction: Transaction) -> None:
        store.insert_many("organisations", columns, [("a", "a", "")])
        assert store.rows("SELECT name FROM organisations") == [("a",)]
        store.insert_many("organisations", columns, [("b", "b", "")])
        assert Organisation.select().count() == 2
        store.change("UPDATE organisations SET name = ? WHERE organisation_id = ?", ("c", "b"))
        assert store.rows_changed("DELETE FROM organisations WHERE name = ?", ("c",)) == 1
        with pytest.raises(ZeroDivisionError), store.peewee.savepoint():
            store.insert_many("organisations", columns, [("d", "d", "")])
            raise ZeroDivisionError
        with pytest.raises(peewee.IntegrityError), store.peewee.savepoint():
            store.insert_many("organisations", columns, [("a", "again", "")])
        store.insert_many("organisations", columns, [("e", "e", "")])

    in_transaction(store, job, 0.0)
    assert sorted(store.rows("SELECT name FROM organisations")) == [("a",), ("e",)]


def test_a_transaction_that_fails_leaves_nothing(store: Database) -> None:
    columns = ("organisation_id", "name", "created_at")

    def swallowed(transaction: Transaction) -> None:
        store.insert_many("organisations", columns, [("a", "a", "")])
        with pytest.raises(peewee.DataError):
            store.rows("SELECT 1 / 0")

    def at_the_commit(transaction: Transaction) -> None:
        store.insert_many("organisations", columns, [("a", "a", ""), ("a", "b", "")])

    def before_it(transaction: Transaction) -> None:
        store.insert_many("organisations", columns, [("a", "a", "")])
        raise ZeroDivisionError

    def unfit(transaction: Transaction) -> None:
        store.insert_many("organisations", columns, [("a", "a", "")])
        store.insert_many("organisations", columns, [("b", "nul \0", "")])

    for job, error in (
        (swallowed, DatabaseUnavailable),
        (at_the_commit, peewee.IntegrityError),
        (before_it, ZeroDivisionError),
        (unfit, peewee.DataError),
    ):
        for _ in range(2):
            with pytest.raises(error):
                in_transaction(store, job, 0.0)
            assert store.rows("SELECT * FROM organisations") == []
            assert database(store)._own.waiting == []
    in_transaction(store, lambda _: store.insert_many("organisations", columns, [("a", "a", "")]), 0.0)
    assert store.rows("SELECT name FROM organisations") == [("a",)]


def test_prepared_statements_that_are_gone_are_prepared_again(store: Database) -> None:
    def job(transaction: Transaction) -> None:
        transaction.bump("policies")

    for _ in range(3):
        in_transaction(store, job, 0.0)
    store.peewee.execute_sql("DEALLOCATE ALL")
    with pytest.raises(DatabaseUnavailable, match="forgets what a session has prepared"):
        in_transaction(store, job, 0.0)
    in_transaction(store, job, 0.0)
    assert store.rows("SELECT value FROM counters WHERE name = 'policies'") == [(4,)]


def test_nobody_waits_for_ever_for_a_server_that_is_silent(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "patience", 0.3)
    slow = "SELECT 1 FROM pg_sleep(1)"
    with store.guarded():
        database(store).execute_sql("SELECT 1")
    with pytest.raises(DatabaseUnavailable), store.guarded():
        database(store).execute_sql(slow)
    with store.guarded(), database(store).patient():
        assert database(store).execute_sql(slow).fetchall() == [(1,)]


def test_a_column_that_is_not_there_is_refused(store: Database) -> None:
    with pytest.raises(peewee.ProgrammingError), store.transaction():
        store.insert_many("events", ("event_no", "event_hash"), [(1, 1)])


def test_a_large_body_arrives(store: Database) -> None:
    body = bytes(range(256)) * (40 * 2**10)

    def write(transaction: Transaction) -> None:
        store.insert_many("blobs", ("digest", "content"), [("small", b"x")])
        store.insert_many("blobs", ("digest", "content"), [("large", body), ("other", body)])
        store.insert_many(
            "blobs", ("digest", "content"), [("large", b"new"), ("third", body)], key=("digest",)
        )

    in_transaction(store, write, 0.0)
    assert {row.digest: bytes(row.content) for row in Blob.select()} == {
        "small": b"x",
        "large": b"new",
        "other": body,
        "third": body,
    }
