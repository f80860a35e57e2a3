"""How many approvals one API key keeps waiting is bounded, in the database and so over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from api.ingestion.quotas import FULL_SECONDS, PendingQuota
from tests.faults.database_faults import HOLD, intact
from tests.harness.application import Service, event


def called(number: int | str, run: str = "run-1", tool: str = "pay") -> dict[str, Any]:
    call = {"toolCallId": f"call-{number}", "toolName": tool, "runId": run}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", call)


async def held(service: Service, number: int | str, who: str = "agent", run: str = "run-1") -> httpx.Response:
    return await service.call(who, "POST", "/v1/events", called(number, run))


async def pending(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await service.call("reviewer", "GET", "/v1/approvals?status=pending&limit=1000")
    ).json()
    return found


@asynccontextmanager
async def serving(tmp_path: Path, url: str, most: int = 3, lanes: int = 3) -> AsyncIterator[Service]:
    environment = {
        "GOVERNANCE_DATABASE_URL": url,
        "GOVERNANCE_LANES": str(lanes),
        "GOVERNANCE_KEY_PENDING_APPROVALS": str(most),
    }
    async with Service(tmp_path, [HOLD], environment=environment) as service:
        yield service
        await intact(service)


async def test_one_more_than_may_wait_is_429_and_on_record(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        for number in range(3):
            assert (await held(service, number)).json()["toolCallStatus"] == "awaiting_approval"
        for number in range(3, 8):
            refused = await held(service, number)
            assert refused.status_code == 429, refused.text
            assert refused.json()["code"] == "rate_limited" and int(refused.headers["retry-after"]) > 0
            assert "3 calls of this API key wait for approval" in refused.json()["detail"]
        assert len(await pending(service)) == 3
        run = (await service.call("viewer", "GET", "/v1/runs/run-1")).json()
        assert [call["toolCallId"] for call in run["toolCalls"]] == ["call-0", "call-1", "call-2"]
        batch = {"events": [called("x")]}
        answer = await service.call("agent", "POST", "/v1/events/batch", batch)
        assert answer.json()["results"][0]["status"] == 429
        assert (await held(service, "other", "second agent", "run-2")).status_code == 200
        # What is known is answered as before, and what nobody is asked about goes on.
        assert (await held(service, 1)).json()["toolCallStatus"] == "awaiting_approval"
        look = await service.call("agent", "POST", "/v1/events", called("look", tool="look"))
        assert look.json()["toolCallStatus"] == "allowed"
        service.clock.advance(60)
        await service.housekeeping()
        records = (await service.call("admin", "GET", "/v1/audit?type=request.refused")).json()
        assert [record["details"]["kind"] for record in records] == ["pending_approvals"] * 2
        assert [record["details"]["count"] for record in records] == [5, 1]


async def test_a_resolved_approval_makes_room(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url) as service:
        service.context.writer.ingest._pending._clock = service.clock  # type: ignore[union-attr]
        for number in range(3):
            await held(service, number)
        assert (await held(service, 3)).status_code == 429
        first = (await pending(service))[-1]["approvalId"]
        assert (await service.call("reviewer", "POST", f"/v1/approvals/{first}/reject")).status_code == 200
        assert (await held(service, 4)).status_code == 429  # nobody has looked again yet
        service.clock.advance(FULL_SECONDS + 1)
        assert (await held(service, 5)).status_code == 200
        assert (await held(service, 6)).status_code == 429


async def test_those_that_come_together_are_counted_together(tmp_path: Path, database_url: str) -> None:
    # More than one lane of PostgreSQL at the same moment may each add what it is writing.
    async with serving(tmp_path, database_url, most=10, lanes=1) as service:
        await held(service, "first")
        answers = await asyncio.gather(*(held(service, number, run=f"r{number}") for number in range(40)))
        assert sorted({answer.status_code for answer in answers}) == [200, 429]
        assert sum(answer.status_code == 200 for answer in answers) == 9
        assert len(await pending(service)) == 10


async def test_a_commit_that_begins_anew_has_marked_nobody(tmp_path: Path, database_url: str) -> None:
    """More than the limit in one commit, which had assumed that nothing waits yet."""
    async with serving(tmp_path, database_url, most=10, lanes=1) as service:
        events = [called(number) for number in range(20)]
        answer = await service.call("agent", "POST", "/v1/events/batch", {"events": events})
        assert [one["status"] for one in answer.json()["results"]] == [200] * 10 + [429] * 10
        assert len(await pending(service)) == 10


async def test_no_limit(tmp_path: Path, database_url: str) -> None:
    async with serving(tmp_path, database_url, most=0) as service:
        answers = [await held(service, number) for number in range(5)]
        assert {answer.status_code for answer in answers} == {200}


def test_a_full_key_is_not_counted_with_each_call() -> None:
    class Counts:
        looks = 0
        is_assumed = False

        def may_hold(self, key_id: str, most: int) -> bool:
            self.looks += 1
            return key_id != "full"

    now, counts = [0.0], Counts()
    quota = PendingQuota(3, lambda: now[0])
    assert [quota.may_hold(counts, "full") for _ in range(5)] == [False] * 5 and counts.looks == 1
    assert quota.may_hold(counts, "other") and counts.looks == 2
    now[0] += FULL_SECONDS
    assert not quota.may_hold(counts, "full") and counts.looks == 3
    assert PendingQuota(0).may_hold(counts, "full")
    # What only assumed how many there are is done anew, and has marked nobody.
    counts.is_assumed, anew = True, PendingQuota(3, lambda: now[0])
    assert not anew.may_hold(counts, "full") and not anew.is_full("full")
