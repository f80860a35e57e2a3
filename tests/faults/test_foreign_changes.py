"""Tables that somebody changes by hand under a running service refuse what is written, and say so once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from pathlib import Path

import peewee
import psycopg
import pytest

from api.database.connection import Database
from api.database.lacking import refuse_unkeyed
from tests.faults.database_faults import intact, payment, post, refused, service, settled

TRIGGERS = {
    "sqlite": "CREATE TRIGGER mine BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'not today'); END",
    "postgresql": "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
    " 'not today'; END $$; CREATE TRIGGER mine BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION mine()",
}
CHANGES = {
    "a trigger": (TRIGGERS, {"sqlite": "DROP TRIGGER mine", "postgresql": "DROP TRIGGER mine ON events"}),
    "a column": (
        {
            "sqlite": "CREATE TABLE more (who TEXT NOT NULL); CREATE TRIGGER mine BEFORE INSERT ON runs"
            " BEGIN INSERT INTO more VALUES (NULL); END",
            "postgresql": "ALTER TABLE runs ADD COLUMN who TEXT NOT NULL DEFAULT 'nobody';"
            " ALTER TABLE runs ALTER COLUMN who DROP DEFAULT",
        },
        {
            "sqlite": "DROP TRIGGER mine; DROP TABLE more",
            "postgresql": "ALTER TABLE runs DROP COLUMN who",
        },
    ),
}


DROP_PARTS = (
    "DO $$ DECLARE part regclass; BEGIN FOR part IN SELECT inhrelid::regclass FROM pg_inherits"
    " WHERE inhparent = 'events'::regclass LOOP EXECUTE 'DROP TABLE ' || part; END LOOP; END $$"
)


def do(url: str, statements: str) -> None:
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as outside:
            outside.executescript(statements)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statements.encode())


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_by_hand_is_told_once_and_over_when_it_is_taken_away(
    tmp_path: Path, database_url: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = database_url.partition(":")[0]
    made, undone = (each[kind] for each in CHANGES[what])

    async def play() -> None:
        async with service(tmp_path, database_url) as running:
            assert (await post(running, payment("first"))).status_code == 200
            await settled(running)
            caplog.clear()
            do(database_url, made)
            for number in range(5):
                answer = await post(running, payment(number))
                refused(answer, 503)
                assert "somebody has added a trigger, a rule or a column" in answer.json()["detail"]
            answer = await running.call("nobody", "GET", "/health")
            assert answer.status_code == 503 and "somebody has added" in answer.json()["reason"]
            errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
            assert len(errors) == 1 and "somebody has added" in errors[0].getMessage()
            assert not any(each.exc_info for each in caplog.records)
            do(database_url, undone)
            assert (await post(running, payment(0))).status_code == 200
            await intact(running)

    asyncio.run(play())


@pytest.mark.postgres
def test_a_part_of_the_events_that_is_dropped_can_be_made_again(tmp_path: Path, postgres_url: str) -> None:
    async def play() -> None:
        async with service(tmp_path, postgres_url) as running:
            assert (await post(running, payment("first"))).status_code == 200
            await settled(running)
            do(postgres_url, DROP_PARTS)
            answer = await post(running, payment(1))
            refused(answer, 503)
            said = answer.json()["detail"]
            assert "somebody has dropped it" in said and "trigger" not in said
            do(postgres_url, said.split("`")[3])
            assert (await post(running, payment(1))).status_code == 200
        with contextlib.closing(Database(postgres_url)) as store:
            refuse_unkeyed(store.peewee)  # nor does a start miss anything

    asyncio.run(play())


def test_a_rule_of_ours_that_we_break_stays_a_fault(tmp_path: Path) -> None:
    store = Database(f"sqlite:///{tmp_path / 'governance.sqlite'}")
    store.migrate()
    with pytest.raises(peewee.IntegrityError), store.transaction():
        store.change("INSERT INTO runs (run_no, organisation_id) VALUES (1, NULL)")
    store.close()
