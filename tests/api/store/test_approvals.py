"""A list of approvals is put together from one page of each status; nobody can tell."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.database.connection import Database
from api.database.models import Approval
from api.store import halts
from api.store.review import reading
from api.store.review.reading import STATUSES, list_approvals
from tests.harness.application import Service
from tests.harness.policy_bodies import policy_body, where
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


TARGETS = {"field": "derived.unaskedTargets", "operator": "exists"}
HOLD = policy_body("Hold", "require_approval", where("toolName", "equals", "mail"), TARGETS)
BLOCK = policy_body("Block", "block", where("toolName", "equals", "share"), TARGETS)
SENDS = {"names": ["mail", "share"], "kind": "mail", "effect": "send", "targets": {"where": ["to"]}}
TOOLS = {
    "apiVersion": "governance/v1",
    "kind": "ToolSet",
    "toolSetId": "tests",
    "name": "Tools of tests",
    "tools": [SENDS],
}


@pytest.mark.parametrize("cancelled", [True, False])
async def test_who_approves_what_was_cancelled_just_then_vouches_for_nothing(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """As by the end of its run, on another node."""
    look = halts.in_force

    def cancelled_meanwhile(*place: str) -> dict[str, Any] | None:
        Approval.update(status="cancelled").execute()
        return look(*place)

    files = {"tools/tests.yaml": json.dumps(TOOLS)}
    async with Service(tmp_path, [HOLD, BLOCK], live=True, files=files, database=database_url) as service:

        async def called(number: int, tool: str) -> dict[str, Any]:
            fields = {
                "toolCallId": f"c-{number}",
                "toolName": tool,
                "inputPayload": {"to": "eve@evil.example"},
            }
            answer = await service.report("agent", number, "tool.called", **fields)
            found: dict[str, Any] = answer.json()
            return found

        assert (await called(1, "share"))["toolCallStatus"] == "blocked"
        approval_id = (await called(2, "mail"))["approvalId"]
        with monkeypatch.context() as patch:
            if cancelled:
                patch.setattr(halts, "in_force", cancelled_meanwhile)
            answer = await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve")
        assert answer.status_code == (409 if cancelled else 200)
        expected = "blocked" if cancelled else "allowed"
        assert (await called(3, "share"))["toolCallStatus"] == expected
