"""A decision is found in the record although the clock was set back since, or before."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from api.audit.records import at_time, find_near
from api.database.transaction import Transaction
from tests.harness.application import PASSWORD, PEOPLE, Service
from tests.harness.policy_bodies import on_tool

HELD: dict[str, Any] = {"toolCallId": "c-held", "toolName": "pay", "inputPayload": {"amount": 9}}
"""What an agent asks for, waits for, and asks for again."""


class Busy(Service):
    """A service with other calls between those of a test, whose ids begin with their time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [on_tool("Ask first", "require_approval", "pay")])
        self.numbers, drawn = count(1), count(1)
        self.drawn_before = 0.0

        def ids(prefix: str) -> str:
            return f"{prefix}_{round((self.clock() + self.drawn_before) * 1000):012x}{next(drawn):020x}"

        self.ids: Any = ids

    async def others(self, many: int) -> None:
        for _ in range(many):
            number = next(self.numbers)
            call = {"toolCallId": f"c-{number}", "toolName": "look", "inputPayload": {}}
            await self.report("agent", number, "tool.called", **call)

    async def ask(self) -> Any:
        return (await self.report("agent", next(self.numbers), "tool.called", **HELD)).json()


def found(transaction: Transaction) -> list[bool]:
    """Of each record, whether it is found by what is known of it."""
    rows = transaction.store.rows("SELECT audit_id, at, type FROM audit WHERE organisation_id = 'default'")
    return [
        find_near("default", audit_id, at) is not None
        and audit_id in {record["auditId"] for record in at_time("default", at, kind)}
        for audit_id, at, kind in rows
    ]


@pytest.mark.parametrize("leaps", [(-3600,), (7200, -10_800), (86_400, -86_400), (-60, -60, -60)])
async def test_a_held_call_is_no_forgery_after_the_clock_was_set_back(
    tmp_path: Path, leaps: tuple[int, ...]
) -> None:
    async with Busy(tmp_path) as service:
        await service.others(20)
        held = await service.ask()
        for leap in leaps:
            service.clock.advance(leap)
            await service.others(150)
        assert (await service.ask())["toolCallStatus"] == "awaiting_approval"
        # A token of before the leap is of a time to come.
        who = {"email": PEOPLE["reviewer"][1], "password": PASSWORD}
        token = (await service.answered("nobody", "POST", "/auth/login", who))["accessToken"]
        service.credentials["reviewer"] = {"Authorization": f"Bearer {token}"}
        await service.answered("reviewer", "POST", f"/v1/approvals/{held['approvalId']}/approve", {})
        await service.others(150)
        assert (await service.ask())["toolCallStatus"] == "allowed"


async def test_each_record_is_found_wherever_the_clock_went(tmp_path: Path) -> None:
    drawn = random.Random(7)

    def all_found(transaction: Transaction) -> None:
        rows = transaction.store.rows(
            "SELECT audit_id, at, type FROM audit WHERE organisation_id = 'default'"
        )
        for audit_id, at, kind in rows:
            found = find_near("default", audit_id)
            assert found is not None and found["auditId"] == audit_id
            assert audit_id in {record["auditId"] for record in at_time("default", at, kind)}

    async with Busy(tmp_path) as service:
        for _ in range(8):
            await service.others(drawn.randint(1, 25))
            await service.context.writer.write(all_found)
            service.clock.advance(drawn.choice([-86_400, -3600, -61, -2, 5, 3600, 90_000]))


async def test_a_record_is_found_that_was_made_just_before_the_clock_went_back_by_less_than_a_second(
    tmp_path: Path,
) -> None:
    """So do NTP, by a step, and machines that are told the time by their host."""

    async with Busy(tmp_path) as service:
        held = await service.ask()
        for number in range(1, 151):
            await service.others(1)
            service.clock.advance(0.02 if number % 30 else -0.5)
        assert all(await service.context.writer.write(found))
        assert (await service.ask())["toolCallStatus"] == held["toolCallStatus"] == "awaiting_approval"


async def test_an_id_that_was_drawn_just_before_the_clock_went_back_hides_no_record(tmp_path: Path) -> None:
    async with Busy(tmp_path) as service:
        await service.others(60)
        service.clock.advance(-30)
        await service.others(5)
        service.drawn_before = 30.0
        held = await service.ask()
        service.drawn_before = 0.0
        for _ in range(200):
            service.clock.advance(0.1)
            await service.others(1)
        assert all(await service.context.writer.write(found))
        assert (await service.ask())["toolCallStatus"] == held["toolCallStatus"] == "awaiting_approval"
