"""A standby takes over, while the server of before takes writes all the same."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import psycopg
import pytest

from api.database.postgres import Postgres as Client
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def promoted(postgres: Postgres) -> Iterator[Postgres]:
    """What was a standby of the server of all tests."""
    with contextlib.closing(Postgres(copy_of=postgres)) as copy:
        (copy.data / "standby.signal").touch()
        copy.start()
        copy._run("pg_ctl", "-w", "-D", str(copy.data), "promote")
        yield copy


@pytest.fixture
def ordinary(postgres_url: str) -> str:
    """A user without any rights of a server's admin, who has a database."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS ordinary")
        admin.execute("CREATE ROLE ordinary LOGIN")
    return postgres_url.replace("postgres:@", "ordinary:@")


def moved(client: Client, server: Postgres, user: str = "postgres") -> None:
    """Its address leads there from now on."""
    client.database = server.url().replace("postgres:@", f"{user}:@")


def test_the_old_server_is_used_no_more(
    ordinary: str, postgres: Postgres, promoted: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(ordinary)
    before = client.connected()
    moved(client, promoted, "ordinary")
    with caplog.at_level(logging.WARNING):
        after = client.connected()
    assert "another PostgreSQL server has taken over (timeline 2)" in caplog.text
    with pytest.raises(psycopg.OperationalError):
        before.execute("SELECT 1")
    moved(client, postgres, "ordinary")
    with pytest.raises(
        psycopg.OperationalError, match="its timeline is 1, that of the other one 2"
    ) as refusal:
        client.connected()
    assert "Stop it, or make it a standby" in str(refusal.value)
    moved(client, promoted, "ordinary")
    for each in (after, client.connected()):
        assert each.execute("SELECT 1").fetchone() == (1,)
        each.close()


def test_of_several_servers_the_one_that_took_over_is_used(
    ordinary: str, postgres: Postgres, promoted: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where that of before takes writes, and stands first in the address."""
    name = ordinary.partition("@/")[2].partition("?")[0]
    folders = f"{postgres.folder},{promoted.folder}"
    client = Client(f"postgresql://ordinary:@/{name}?host={folders}&target_session_attrs=read-write")
    for _ in range(2):
        with contextlib.closing(client.connected()) as connection:
            assert connection.info.host == str(promoted.folder)
    assert [each.getMessage().count("Stop it, or make it a standby") for each in caplog.records] == [1]
    promoted.crash()
    with pytest.raises(psycopg.OperationalError, match="Stop it, or make it a standby"):
        client.connected()


def test_a_database_of_another_cluster_is_another_one(ordinary: str, promoted: Postgres) -> None:
    client = Client(ordinary)
    moved(client, promoted)
    client.connected().close()
    with contextlib.closing(Postgres()) as other:
        other.start()
        moved(client, other)
        client.connected().close()


def test_what_is_no_address_is_told_as_such() -> None:
    with pytest.raises(psycopg.OperationalError, match="invalid"):
        Client("postgresql://a@b/c?nonsense=1").connected()
