"""Events are divided by time on PostgreSQL, and go in one piece; nobody waits for it, nothing else goes."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from api.audit.verification import verify
from api.clock import DAY, iso, seconds
from api.context import Context
from api.database.connection import Database
from api.database.lanes.keys import KeyTable, event_key
from api.database.lanes.locks import PARTITIONS
from api.database.models import Event
from api.database.partitions import catalog, upkeep
from api.database.partitions.catalog import EVENTS, Span
from api.database.partitions.upkeep import AHEAD_DAYS, Partitions, midnight, missing
from api.retention.cleaning import Retention, clean
from api.store.call_facts import BODY
from tests.harness.application import Clock, Service
from tests.harness.effort import examples
from tests.harness.partitions import held, loose_ids, undivide
from tests.harness.postgres import Postgres
from tests.harness.sql_archive import in_transaction, opened

START = Clock.START
FIRST, OTHER = EVENTS.first, EVENTS.other
EVENT = {"organisation_id": "default", "run_no": 1, "event_type": "t", "body": b"{}", "receipt": b""}


def put(store: Database, name: str, at: float) -> None:
    Event.insert(**EVENT, event_id=name, id_hash=0, received_at=iso(at)).execute()


def names(store: Database) -> list[str]:
    return [each.name for each in catalog.partitions(store)]


spans = st.builds(
    lambda begun, days: Span(midnight(START, begun), midnight(START, begun + days)),
    st.integers(-40, 40),
    st.integers(1, 20),
)


@given(st.lists(spans, max_size=5), st.integers(1, 30), st.integers(1, 30))
def test_what_is_missing_fits_between_what_is_there(there: list[Span], days: int, ahead: int) -> None:
    made = list(missing(there, midnight(START), midnight(START, ahead), days))
    for number in range(ahead):
        day = midnight(START, number)
        assert any(each.since <= day < each.until for each in (*there, *made)), day
    for each in made:
        assert each.within(days)
        assert not any(each.since < other.until and other.since < each.until for other in there)
    assert all(one.until <= other.since for one, other in pairwise(made))


def test_about_thirty_partitions_hold_what_is_kept() -> None:
    assert [EVENTS.days_of_one(kept) for kept in (1, 30, 31, 90, 365, 0)] == [1, 1, 2, 3, 13, 30]


@pytest.mark.postgres
def test_a_table_of_before_becomes_the_first_partition(store: Database) -> None:
    undivide(store)
    put(store, "old", START - 400 * DAY)
    before = store.rows("SELECT * FROM events")
    store.migrate()
    assert held(store) == {FIRST: ["old"]} and store.rows("SELECT * FROM events") == before
    put(store, "far", START)
    put(store, "next", seconds(store.rows("SELECT now()::text")[0][0]))
    assert held(store) == {FIRST: ["next", "old"], OTHER: ["far"]}
    assert [row[0] for row in store.rows("SELECT event_no FROM events ORDER BY 1")] == [1, 2, 3]
    store.migrate()
    assert held(store) == {FIRST: ["next", "old"], OTHER: ["far"]}


@pytest.mark.postgres
def test_a_table_with_events_of_days_to_come_is_divided_behind_them(store: Database) -> None:
    undivide(store)
    put(store, "of a clock that was ahead", START)
    store.migrate()
    assert list(held(store)) == [FIRST]
    assert catalog.partitions(store)[0].span == Span("", midnight(START, 2))


@pytest.mark.postgres
def test_partitions_are_made_for_the_days_to_come_and_once(store: Database) -> None:
    partitions = Partitions(store, 30)
    partitions.prepare(START + DAY / 2)
    made = names(store)
    assert made == [FIRST, *(f"events_from_210001{day:02}" for day in range(1, 2 + AHEAD_DAYS))]
    assert partitions.until == midnight(START, AHEAD_DAYS + 1)
    partitions.prepare(START + DAY / 2)
    assert names(store) == made
    Partitions(store, 90).prepare(START + 3 * DAY)
    assert catalog.partitions(store)[-1].span.within(3) and names(store)[:-1] == made
    put(store, "now", START + 2.5 * DAY)
    assert held(store) == {"events_from_21000103": ["now"]}


@pytest.mark.postgres
def test_an_event_without_a_partition_is_kept_with_others_and_goes_by_itself(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, "late", START + DAY)
    partitions = Partitions(store, 1)
    partitions.prepare(START)
    assert "get no partition: events of those days came in before" in caplog.text
    assert "events_from_21000102" not in names(store) and len(names(store)) == 1 + AHEAD_DAYS
    assert partitions.until == midnight(START, 1), "there are some only up to the day that has none"
    caplog.clear()
    partitions.prepare(START)
    assert caplog.text == "", "it is told once"
    assert OTHER in catalog.mixed(store, 1) and FIRST in catalog.mixed(store, 1)
    assert len(catalog.mixed(store, 1)) == 2 and len(catalog.mixed(store, 0)) == 2 + AHEAD_DAYS
    until = catalog.partitions(store)[0].span.until
    assert FIRST in catalog.mixed(store, 1, "2000-01-01T00:00:00.000000Z")
    assert catalog.mixed(store, 1, until) == (OTHER,), "what is past as a whole is dropped"


@pytest.mark.postgres
def test_the_payload_of_a_call_is_looked_for_in_one_partition(store: Database) -> None:
    Partitions(store, 1).prepare(START)
    put(store, "asked", START)
    store.rows_changed(
        "INSERT INTO tool_calls (call_no, organisation_id, run_no, tool_call_id, call_hash, event_no,"
        " tool_name, payload_digest, status, action, reason, matched, shadow, policy_revision, policy_digest,"
        " decided_at, audit_id, facts, flags) SELECT event_no, organisation_id, run_no, 'call', 0, event_no,"
        " 'read', '', 'allowed', 'allow', '', '[]', '[]', 1, '', received_at, '', '{}', '[]' FROM events"
    )
    asked = f"SELECT {BODY} FROM tool_calls c WHERE c.tool_call_id = 'call'"
    assert store.rows(asked) == [(b"{}",)]
    plan = [row[0] for row in store.rows(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {asked}")]
    parts = [line for line in plan if "on events_" in line]
    assert len(parts) == 3 + AHEAD_DAYS
    assert [line.split(" on ")[1].split()[0] for line in parts if "never executed" not in line] == [
        "events_from_21000101"
    ]


@pytest.mark.postgres
def test_a_table_in_the_way_is_told_of_and_no_event_refused(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    store.rows_changed("CREATE TABLE events_from_21000101 (LIKE events)")
    Partitions(store, 1).prepare(START)
    assert "there is a table `events_from_21000101`, which is none" in caplog.text
    put(store, "now", START)
    assert list(held(store)) == [OTHER] and len(names(store)) == 1 + AHEAD_DAYS


@pytest.mark.postgres
def test_nodes_that_prepare_at_once_make_each_partition_once(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(store.read_here, Partitions(store, 1).prepare, START) for _ in range(4)]
        for each in made:
            each.result()
    Partitions(store, 1).prepare(START)
    assert caplog.text == "" and len(names(store)) == 2 + AHEAD_DAYS


@pytest.mark.postgres
def test_a_partition_waits_for_its_readers_and_nobody_for_it(store: Database) -> None:
    Partitions(store, 1).prepare(START)
    partition = next(each for each in catalog.past(store, midnight(START, 1)) if each.name != FIRST)
    with psycopg.connect(store.url) as reader:
        reader.execute("SELECT COUNT(*) FROM events")
        assert not upkeep.drop(store, partition)
        put(store, "meanwhile", START + DAY)
        assert partition in catalog.partitions(store)
    assert upkeep.drop(store, partition)
    assert partition not in catalog.partitions(store)
    assert upkeep.drop(store, partition), "another node has dropped it"


@pytest.mark.postgres
def test_nobody_waits_while_somebody_reads_for_long(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    Partitions(store, 1).prepare(START)
    partition = catalog.past(store, midnight(START, 1))[-1]
    with psycopg.connect(store.url) as reader, monkeypatch.context() as patch:
        reader.execute("SELECT COUNT(*) FROM events")
        patch.setattr(upkeep, "LONG_SECONDS", 0.0)
        patch.setattr(store.peewee, "gathering", lambda: pytest.fail("it was tried"))
        assert not upkeep.drop(store, partition)
    assert upkeep.drop(store, partition)


@pytest.mark.postgres
def test_another_node_at_work_is_left_to_it(store: Database) -> None:
    other = opened(store.url)
    try:
        with psycopg.connect(store.url) as busy:
            busy.execute("SELECT pg_advisory_xact_lock(%s)", (PARTITIONS,))
            Partitions(store, 1).prepare(START)
            assert names(store) == [FIRST]
    finally:
        other.close()
    Partitions(store, 1).prepare(START)
    assert len(names(store)) == 2 + AHEAD_DAYS


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service cleans once, when it starts; then tests do."""
    monkeypatch.setattr("api.retention.cleaning.EVERY_SECONDS", 86_400.0)


async def settled(context: Context) -> None:
    """It has cleaned: the first partition ends long before the time of these tests."""
    deadline = time.monotonic() + 60
    while FIRST in names(context.store):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def told(service: Service, name: str) -> Any:
    """The same of the same name, whenever it is told."""
    fields = {"toolCallId": f"call-{name}", "toolName": "read", "inputPayload": {"n": name}}
    return await service.report("agent", name, "tool.called", timestamp=iso(START), **fields)


@pytest.mark.postgres
@pytest.mark.parametrize("at_once", [1, 3, 1_000])
async def test_old_events_go_with_their_partition_and_everything_else_stays(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture, at_once: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr("api.retention.cleaning.MOST_IDS_AT_ONCE", at_once)
    caplog.set_level(logging.INFO, "governance")
    environment = {"GOVERNANCE_DATABASE_URL": postgres_url, "GOVERNANCE_EVENT_DAYS": "2"}
    async with Service(tmp_path, environment=environment) as service:
        context, store = service.context, service.context.store
        await settled(context)
        for day in range(4):
            for number in range(3):
                assert (await told(service, f"{day}-{number}")).status_code == 200
            service.clock.advance(DAY)
        body = (await service.call("nobody", "GET", "/health")).json()["partitions"]
        assert body == {"until": midnight(START, AHEAD_DAYS + 1), "late": False}
        records = store.rows("SELECT COUNT(*) FROM audit")
        gone = await clean(Retention(2, 0), context.id_index, context.writer, service.clock())
        assert gone == 6 and "retention dropped `events_from_21000102`" in caplog.text
        assert sorted(held(store)) == ["events_from_21000103", "events_from_21000104"]
        assert loose_ids(store) == (0, 0)
        assert store.rows("SELECT COUNT(*) FROM audit") == records
        assert store.rows("SELECT name FROM counters WHERE starts_with(name, 'forgotten')") == []
        assert store.read_here(verify, store, "default")["valid"]
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()["toolCalls"]
        assert [call["inputPayload"] is None for call in run] == [True] * 6 + [False] * 6
        assert (await told(service, "2-0")).headers["Idempotent-Replay"] == "true"
        again = await told(service, "0-0")
        assert again.status_code == 200 and "Idempotent-Replay" not in again.headers
        assert loose_ids(store) == (0, 0)
        service.clock.advance(10 * DAY)
        body = (await service.call("nobody", "GET", "/health")).json()["partitions"]
        assert body["late"], "nobody has made any since"
        assert (await told(service, "late")).status_code == 200
        assert held(store)[OTHER] == ["event-late"]
        service.clock.advance(2 * DAY + 1)
        assert await clean(Retention(2, 0), context.id_index, context.writer, service.clock()) == 8
        assert held(store) == {}
        assert store.read_here(verify, store, "default")["valid"]


@pytest.mark.postgres
def test_ids_are_forgotten_on_and_on_but_not_those_that_lead_elsewhere(store: Database) -> None:
    Partitions(store, 1).prepare(START)
    for number in range(5):
        put(store, f"event-{number}", START)
    numbers = dict(store.rows("SELECT event_id, event_no FROM events"))
    keys = KeyTable()
    rows = [("default", event_key("default", name), number) for name, number in numbers.items()]
    rows[2] = (*rows[2][:2], 77)  # the id of a new event of the same name
    in_transaction(store, lambda transaction: keys.enter(transaction, rows), START)
    partition = catalog.past(store, midnight(START, 1))[-1]

    def some(transaction: Any) -> int:
        return upkeep.forget(transaction, partition, keys, 2)

    with pytest.raises(ZeroDivisionError):
        in_transaction(store, lambda transaction: some(transaction) / 0, START)
    assert store.rows("SELECT COUNT(*) FROM ids") == [(5,)], "a part of it was done"
    counts = [in_transaction(store, some, START) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    assert store.rows("SELECT no FROM ids") == [(77,)]
    assert upkeep.drop(store, partition)
    assert store.rows("SELECT 1 FROM counters WHERE starts_with(name, 'forgotten')") == []


@pytest.mark.postgres
@given(st.lists(st.tuples(st.sampled_from(["event", "day", "clean"]), st.integers(1, 4)), max_size=25))
@examples(8, 120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_in_whatever_order_only_what_is_too_old_goes(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, story: list[tuple[str, int]]
) -> None:
    """Against a plain list of events and when they came."""
    url = postgres.create(postgres.migrated)
    kept_days = 2

    async def scene() -> None:
        environment = {"GOVERNANCE_DATABASE_URL": url, "GOVERNANCE_EVENT_DAYS": str(kept_days)}
        async with Service(tmp_path_factory.mktemp("story"), environment=environment) as service:
            context, store, came = service.context, service.context.store, dict[str, float]()
            partitions, now = Partitions(store, kept_days), service.clock
            await settled(context)
            for what, number in story:
                if what == "day":
                    now.advance(number * DAY / 2)
                elif what == "clean":
                    store.read_here(partitions.prepare, now())
                    await clean(Retention(kept_days, 0), context.id_index, context.writer, now())
                    came = {name: at for name, at in came.items() if name in _ids(store)}
                    assert all(at > now() - (kept_days + 1) * DAY for at in came.values())
                else:
                    answer = await told(service, str(number))
                    assert answer.status_code == 200
                    replayed = "Idempotent-Replay" in answer.headers
                    assert replayed == (f"event-{number}" in came)
                    came.setdefault(f"event-{number}", now())
                young = {name for name, at in came.items() if at >= now() - kept_days * DAY}
                assert young <= _ids(store) == set(came)
                assert loose_ids(store) == (0, 0)
            assert store.read_here(verify, store, "default")["valid"]

    try:
        asyncio.run(scene())
    finally:
        postgres.drop(url)


def _ids(store: Database) -> set[str]:
    return {name for part in held(store).values() for name in part}
