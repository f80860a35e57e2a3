"""Settings of a PostgreSQL database or of its user, by which the service would keep less than it promises."""

from __future__ import annotations

import psycopg
import pytest

from api.database.connection import Database
from api.database.errors import DatabaseUnavailable

pytestmark = pytest.mark.postgres


def test_a_commit_is_on_disk_and_sees_the_last_whatever_the_database_is_set_to(postgres_url: str) -> None:
    wrong = {"synchronous_commit": "off", "default_transaction_isolation": "serializable"}
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name, value in wrong.items():
            admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET {name} = '{value}'".encode())
    made = Database(postgres_url)
    try:
        assert made.rows("SHOW synchronous_commit") == [("on",)]
        assert made.rows("SHOW default_transaction_isolation") == [("read committed",)]
    finally:
        made.close()


def test_a_stricter_commit_is_left_as_it_is(postgres_url: str) -> None:
    made = Database(
        f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-csynchronous_commit%3Dlocal"
    )
    try:
        assert made.rows("SHOW synchronous_commit") == [("local",)]
    finally:
        made.close()


def test_a_search_path_to_no_schema_is_told_in_words(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET search_path = nowhere'.encode())
    made = Database(postgres_url)
    try:
        with pytest.raises(DatabaseUnavailable, match="has no schema for the tables") as refusal:
            made.migrate()
        assert "`search_path`" in refusal.value.operator_message
    finally:
        made.close()
