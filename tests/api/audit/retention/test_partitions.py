"""On PostgreSQL records go with their partitions: whole, in order, and never with one that is not let go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest

from api.audit.retention.certificate import newest_certificate
from api.audit.retention.partitions import LeavingPartition, drop, leaving
from api.audit.verification import Expectation
from api.clock import iso
from api.database import audit_chain
from api.database.connection import Database
from api.database.partitions.catalog import RECORDS, partitions
from api.database.partitions.upkeep import Partitions, midnight
from api.database.transaction import Transaction
from tests.api.audit.retention.test_record_retention import YEAR, call
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Clock, Service
from tests.harness.dropping import DAY, DAYS, certified, cleaned, log_of, signed, verified
from tests.harness.partitions import undivide_records
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.postgres

START = Clock.START

Serving = Callable[[], AbstractAsyncContextManager[Service]]


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service cleans once, when it starts; then tests do."""
    monkeypatch.setattr("api.retention.cleaning.EVERY_SECONDS", 86_400.0)


@pytest.fixture
def serving(tmp_path: Path, postgres: Postgres) -> Iterator[Serving]:
    """A call a day for twelve days, each signed; three days make a partition."""
    url = postgres.create(postgres.migrated)

    @asynccontextmanager
    async def twelve_days() -> AsyncIterator[Service]:
        environment = {
            "GOVERNANCE_DATABASE_URL": url,
            "GOVERNANCE_TOKEN_SECONDS": str(YEAR),
            "GOVERNANCE_EVENT_DAYS": str(DAYS),
            "GOVERNANCE_AUDIT_DAYS": str(DAYS),
        }
        async with Service(tmp_path, POLICIES, environment=environment) as service:
            for day in range(12):
                await prepared(service)
                await call(service, day, "wipe" if day % 2 else "look")
                await signed(service)
                service.clock.advance(DAY)
            yield service

    yield twelve_days
    postgres.drop(url)


async def prepared(service: Service) -> None:
    store = service.context.store
    await store.read(Partitions(store, DAYS, RECORDS).prepare, service.clock())


def names(service: Service) -> list[str]:
    """Of the partitions that have records."""
    store = service.context.store
    found = store.rows("SELECT DISTINCT tableoid::regclass::text FROM audit ORDER BY 1")
    return [str(name) for (name,) in found]


async def test_whole_partitions_go_and_the_rest_waits(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "governance")
    async with serving() as service:
        noted = await verified(service)
        assert names(service) == [f"audit_from_210001{day:02}" for day in (1, 4, 7, 10)]
        service.clock.advance((DAYS - 12 + 8) * DAY)  # it is the ninth day, and a month
        await prepared(service)
        assert await cleaned(service) == 0, "no row goes by itself"
        assert names(service)[:2] == ["audit_from_21000107", "audit_from_21000110"]
        assert "retention dropped `audit_from_21000104` of the audit log" in caplog.text
        found = await verified(service)
        assert found["problems"] == [] and found["dropped"]["records"] > 8
        assert found["dropped"]["before"] == iso(START + 7 * DAY + 16), "what was signed on the eighth day"
        assert (await verified(service, expected=Expectation(noted["count"], noted["lastHash"])))["valid"]
        run = (await service.call("admin", "GET", "/v1/runs/run-1")).json()
        assert len(run["toolCalls"]) == 12
        service.clock.advance(20 * DAY)
        await cleaned(service)
        assert [type for _, _, type in await log_of(service)] == ["audit.dropped"] * 2
        assert (await verified(service))["problems"] == []


async def test_a_partition_with_one_record_that_is_not_let_go_stays_with_all_behind_it(
    serving: Serving,
) -> None:
    """Its node's clock was behind when it was written; then it goes with what follows it in its chain."""
    async with serving() as service:
        service.clock.advance(-7 * DAY)
        await call(service, 20, "look")
        service.clock.advance(7 * DAY)
        await signed(service)
        service.clock.advance((DAYS - 12 + 10) * DAY)
        await cleaned(service)
        assert names(service)[:2] == ["audit_from_21000104", "audit_from_21000107"]
        assert (await verified(service))["problems"] == []
        service.clock.advance(20 * DAY)
        await cleaned(service)
        assert [type for _, _, type in await log_of(service)] == ["audit.dropped"] * 2
        assert (await verified(service))["problems"] == []


async def test_a_chain_that_is_dropped_to_its_end_goes_on_behind_it(serving: Serving) -> None:
    """What commands write goes into a chain of its own, to which nothing may come for months."""
    async with serving() as service:
        store = service.context.store

        def command() -> None:
            with store.transaction():
                transaction = Transaction(store, service.clock(), service.context.ids, None)
                transaction.audit("default", "user.unlocked", actor="cli:root", details={"userId": "u"})
                transaction.flush()
            transaction.committed()

        await store.read(command)
        await signed(service)
        known = [number for chain, number, _ in await log_of(service) if chain == audit_chain.FIRST_CHAIN]
        for number in (20, 21):
            service.clock.advance(40 * DAY)
            await prepared(service)
            await call(service, number, "look")
            await signed(service)
            await cleaned(service)
        assert all(chain != audit_chain.FIRST_CHAIN for chain, _, _ in await log_of(service))
        await store.read(command)
        await signed(service)
        now = [number for chain, number, _ in await log_of(service) if chain == audit_chain.FIRST_CHAIN]
        assert now == [known[-1] + 1]
        assert (await verified(service))["problems"] == []


async def test_records_of_a_clock_that_was_ahead_go_with_those_they_stand_between(
    serving: Serving,
) -> None:
    async with serving() as service:
        await prepared(service)
        service.clock.advance(5 * DAY)
        await call(service, 20, "look")
        service.clock.advance(-5 * DAY)
        await call(service, 21, "look")
        await signed(service)
        service.clock.advance(DAY)
        await signed(service)
        for days in (20, 3, 3, 3, 3, 3, 3, 3):
            service.clock.advance(days * DAY)
            await cleaned(service)
            assert (await verified(service))["problems"] == []
        assert {type for _, _, type in await log_of(service)} == {"audit.dropped"}


async def test_what_is_written_to_a_partition_at_the_last_moment_is_not_lost(
    serving: Serving,
) -> None:
    async with serving() as service:
        service.clock.advance((DAYS - 12 + 8) * DAY)
        await certified(service)
        store = service.context.store
        known = await store.read(newest_certificate)
        assert known is not None
        part = await store.read(leaving, store, known, midnight(START, 8), DAYS)
        if isinstance(part, LeavingPartition):
            service.clock.advance(START - service.clock())
            await call(service, 20, "look")
            assert not await store.read(drop, store, part)
            assert part.partition in partitions(store, RECORDS)
        assert (await verified(service))["problems"] == []


async def test_a_partition_waits_for_its_readers_and_nobody_for_it(serving: Serving) -> None:
    async with serving() as service:
        service.clock.advance((DAYS - 12 + 8) * DAY)
        with psycopg.connect(service.context.store.url) as reader:
            reader.execute("SELECT COUNT(*) FROM audit")
            await cleaned(service)
            await call(service, 20, "look")
            assert names(service)[0] == "audit_from_21000101"
            assert (await verified(service))["problems"] == [], "certified, and all still there"
        await cleaned(service)
        assert names(service)[0] == "audit_from_21000107"
        assert (await verified(service))["problems"] == []


def test_rows_of_the_first_partition_go_one_by_one_as_long_as_it_has_young_ones(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.create(postgres.migrated)

    async def scene() -> None:
        environment = {"GOVERNANCE_DATABASE_URL": url, "GOVERNANCE_TOKEN_SECONDS": str(YEAR)}
        async with Service(tmp_path, POLICIES, environment=environment) as service:
            service.clock.advance(-80 * 365 * DAY)  # before the day on which the first partition ends
            for day in range(12):
                await call(service, day, "look")
                await signed(service)
                service.clock.advance(DAY)
            store = service.context.store
            before = store.rows("SELECT COUNT(*) FROM audit_first")[0][0]
            assert before == 12
            service.clock.advance((DAYS - 12 + 8) * DAY)
            known = len(await log_of(service))
            assert await cleaned(service) > 0
            assert 0 < store.rows("SELECT COUNT(*) FROM audit_first")[0][0] < before
            assert len(await log_of(service)) < known
            assert (await verified(service))["problems"] == []

    asyncio.run(scene())
    postgres.drop(url)


def test_a_table_of_before_becomes_the_first_partition(postgres: Postgres) -> None:
    url = postgres.create(postgres.migrated)
    with closing(Database(url)) as store:
        undivide_records(store)
        put = (
            f"INSERT INTO audit ({', '.join(audit_chain.COLUMNS)}) VALUES"
            " ('o', 1, ?, 'aud', ?, 't', NULL, NULL, NULL, NULL, '{}', '')"
        )
        store.rows_changed(put, (1, iso(START - 400 * YEAR // 4)))
        store.migrate()
        store.rows_changed(put, (2, iso(START)))
        placed = "SELECT tableoid::regclass::text, sequence FROM audit ORDER BY 2"
        assert store.rows(placed) == [("audit_first", 1), ("audit_other", 2)]
        store.migrate()
        Partitions(store, DAYS, RECORDS).prepare(START + DAY)
        made = [each.name for each in partitions(store, RECORDS)]
        assert made[0] == "audit_first" and made[1].startswith("audit_from_210001")
        for name in made:
            indexes = store.rows("SELECT indexdef FROM pg_indexes WHERE tablename = ? ORDER BY 1", (name,))
            assert [row[0].rpartition(" USING ")[2] for row in indexes] == [
                "btree (organisation_id, at)",
                "btree (organisation_id, chain, sequence)",
            ]
    postgres.drop(url)
