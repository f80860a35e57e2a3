"""Several chains read as one log."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from api.audit.records import Filter, Positions, export_lines, find_record, list_records
from api.audit.verification import verify
from api.clock import iso
from api.database import audit_chain
from api.database.audit_chain import Chain, Record
from api.database.connection import Database
from api.database.transaction import Transaction
from tests.harness.application import Service
from tests.harness.sql_archive import in_transaction

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(postgres_url: str) -> Database:
    made = Database(postgres_url)
    made.migrate()
    made.rows_changed("INSERT INTO organisations (organisation_id, name, created_at) VALUES ('o', 'O', '')")
    return made


NUMBER = count(1)


def append(store: Database, chain: int, *moments: float) -> None:
    """Records of one lane, one transaction each."""
    for moment in moments:

        def job(transaction: Transaction, at: str = iso(moment)) -> None:
            tips = {name: tip for (name, number), tip in audit_chain.tips(store).items() if number == chain}
            made = Chain(store, lambda prefix: f"{prefix}_{next(NUMBER):032x}", at, chain, tips)
            made.append(Record(type="policy.note", organisationId="o"))
            made.flush()

        in_transaction(store, job, 0.0)


def pages(ascending: bool, limit: int = 3) -> list[tuple[str, int, int]]:
    found, after = [], None
    while True:
        records, total, after = list_records(Filter("o"), limit, after, ascending)
        assert len(records) == limit or after is None
        found += [(each["at"], each.get("chain", 0), each["sequence"]) for each in records]
        if after is None:
            assert total == len(found)
            return found


def test_pages_are_in_order_of_time_and_hold_each_record_once(store: Database) -> None:
    chance = random.Random(1)
    for second in range(40):
        append(store, chance.choice((0, 1, 2, 5)), float(second))
    oldest_first = pages(True)
    assert [at for at, _, _ in oldest_first] == [iso(float(second)) for second in range(40)]
    assert pages(False) == oldest_first[::-1]
    found = verify(store, "o")
    assert (found["valid"], found["count"]) == (True, 40)


def test_a_record_that_is_committed_late_is_not_skipped(store: Database) -> None:
    append(store, 1, 1.0, 3.0, 5.0, 7.0)
    first, _, after = list_records(Filter("o"), 3, None, True)
    append(store, 2, 2.0, 4.0)
    rest, _, end = list_records(Filter("o"), 10, after, True)
    assert [each["sequence"] for each in first] == [1, 2, 3] and end is None
    assert [(each["chain"], each["sequence"]) for each in rest] == [(2, 1), (2, 2), (1, 4)]


def test_a_cursor_of_newest_first_goes_on_where_it_was(store: Database) -> None:
    append(store, 1, 1.0, 3.0, 5.0)
    append(store, 2, 2.0)
    _, _, after = list_records(Filter("o"), 1, None, False)
    append(store, 1, 6.0)
    append(store, 3, 7.0)
    rest, _, _ = list_records(Filter("o"), 10, after, False)
    assert [each["at"] for each in rest] == [iso(3.0), iso(2.0), iso(1.0)]


def test_an_export_goes_through_all_chains(store: Database) -> None:
    for second in range(30):
        append(store, second % 3, float(second))
    lines, after = b"", Positions()
    going: Positions | None = after
    while going is not None:
        more, going = export_lines(Filter("o"), 7, going or None, True)
        lines += more
    assert lines.count(b"\n") == 30


def test_what_is_cut_off_one_chain_is_found(store: Database) -> None:
    append(store, 1, 1.0, 2.0)
    append(store, 2, 3.0)
    in_transaction(
        store, lambda _: store.rows_changed("DELETE FROM audit WHERE chain = 1 AND sequence = 2"), 0.0
    )
    assert verify(store, "o")["problems"] == ["chain 1 ends before the last record that its lane has written"]


def test_a_record_belongs_to_its_chain(store: Database) -> None:
    append(store, 1, 1.0)
    in_transaction(store, lambda _: store.rows_changed("UPDATE audit SET chain = 2"), 0.0)
    assert any("was changed" in problem for problem in verify(store, "o")["problems"])


def test_a_record_is_found_by_its_id(store: Database) -> None:
    append(store, 3, 1.0)
    records, _, _ = list_records(Filter("o"), 1, None, True)
    assert find_record("o", records[0]["auditId"]) == records[0]
    assert find_record("o", "aud_none") is None


MANY = 300
"""Chains: those of eight nodes with four processes each, which write by nine connections."""


async def test_the_pages_of_many_chains_follow_each_other(tmp_path: Path, postgres_url: str) -> None:
    """The service takes the cursor that it gave, however many positions it holds."""

    def of_all_chains(transaction: Transaction) -> None:
        for chain in range(1, MANY + 1):
            known = {"default": (10_000_000, audit_chain.GENESIS)}
            made = Chain(
                transaction.store,
                lambda prefix: f"{prefix}_{next(NUMBER):032x}",
                iso(chain),
                1_000 + chain,
                known,
            )
            made.append(Record(type="policy.note", organisationId="default"))
            made.flush()

    async with Service(tmp_path, database=postgres_url) as service:
        await service.context.writer.write(of_all_chains)
        for order in ("asc", "desc"):
            found, path = [], f"/v1/audit?limit=100&type=policy.note&order={order}"
            while path:
                answer = await service.call("admin", "GET", path)
                assert answer.status_code == 200, answer.text
                found += [record["chain"] for record in answer.json()]
                path = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
            assert sorted(found) == [1_000 + chain for chain in range(1, MANY + 1)], order
