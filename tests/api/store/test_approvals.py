"""A list of approvals is put together from one page of each status; nobody can tell."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from api.database.connection import Database
from api.database.models import Approval
from api.store.review import reading
from api.store.review.reading import STATUSES, list_approvals
from tests.harness.sql_archive import opened


@pytest.fixture
def store(database_url: str) -> Iterator[Database]:
    made = opened(database_url)
    yield made
    made.close()


def add(number: int, status: str, at: str, organisation_id: str = "o") -> tuple[str, str, str]:
    approval_id = f"apr_{number:06}"
    text = dict.fromkeys(
        ("run_id", "agent_id", "tool_call_id", "tool_name", "policy_id", "policy_name", "reason"), "x"
    )
    Approval.create(
        approval_id=approval_id,
        organisation_id=organisation_id,
        run_no=1,
        call_no=number,
        status=status,
        requested_at=at,
        **text,
    )
    return at, approval_id, status


def pages(status: str | None, limit: int, ascending: bool) -> Iterator[tuple[list[dict[str, Any]], int]]:
    after = None
    while True:
        page, total, after = list_approvals("o", status, limit, after, ascending)
        yield page, total
        if after is None:
            return


def test_pages_are_those_of_one_sorted_list(store: Database) -> None:
    chance = random.Random(1)
    with store.transaction():
        rows = [add(n, chance.choice(STATUSES), f"2026-{chance.randint(1, 9):02}") for n in range(120)]
        add(500, "pending", "2026-05", "another")
    for status in (*STATUSES, None):
        for ascending in (True, False):
            for limit in (1, 7, 50, 1000):
                chosen = sorted(
                    (row for row in rows if status in (None, row[2])),
                    reverse=not ascending,
                    key=lambda row: row[:2],
                )
                told = list(pages(status, limit, ascending))
                assert {total for _, total in told} == {len(chosen)}
                assert all(len(page) == limit for page, _ in told[:-1])
                assert [
                    (each["requestedAt"], each["approvalId"], each["status"])
                    for page, _ in told
                    for each in page
                ] == chosen
    assert list_approvals("o", "unknown", 10, None, True) == ([], 0, None)
    assert reading.count_pending() == 0  # of organisations that there are


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_one_that_is_resolved_meanwhile_is_told_once(
    store: Database, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    with store.transaction():
        for number in range(3):
            add(number, "pending", f"2026-0{number + 1}")
    page = reading._page

    def resolving(organisation_id: str, status: str, *others: Any) -> list[Approval]:
        found = page(organisation_id, status, *others)
        if status == "pending":
            with store.transaction():
                store.rows_changed(
                    "UPDATE approvals SET status = 'approved' WHERE approval_id = 'apr_000002'"
                )
        return found

    monkeypatch.setattr(reading, "_page", resolving)
    told, total, after = list_approvals("o", None, limit, None, False)
    assert [(each["approvalId"], each["status"]) for each in told] == [
        *[("apr_000002", "approved"), ("apr_000001", "pending"), ("apr_000000", "pending")][:limit]
    ]
    assert (total, after is None) == (3, limit == 10)
