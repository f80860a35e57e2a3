"""Calls that go on beyond a rate limit, since its policy only warns, cost no more the more there are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.clock import iso, seconds
from api.database.connection import Database
from api.ingestion.known.counts import CallCounts
from api.store import recorded_calls
from tests.harness.application import Service, event
from tests.harness.policy_bodies import on_tool, policy_body, where

WINDOW = 1_000
WARN = on_tool("Warn of many", "warn", "tick", rateLimit={"limit": 3, "windowSeconds": WINDOW})
BLOCK = policy_body("No bad ones", "block", where("inputPayload.bad", "equals", True))


def called(number: int, **payload: Any) -> dict[str, Any]:
    call = {"runId": "run-1", "toolCallId": f"call-{number}", "toolName": "tick", "inputPayload": payload}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", call)


def test_no_more_are_counted_than_fit(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    count = CallCounts._count

    def noted(counts: CallCounts, bucket: str, since: float, most: int) -> int:
        counted.append(count(counts, bucket, since, most))
        return counted[-1]

    monkeypatch.setattr(CallCounts, "_count", noted)

    async def play() -> None:
        async with Service(tmp_path, [WARN, BLOCK], database=database_url) as service:
            decided: list[str] = []
            for number in range(12):
                service.clock.advance(7)
                answer = (await service.call("agent", "POST", "/v1/events", called(number))).json()
                assert answer["toolCallStatus"] == "allowed"
                assert ("warning" in answer["reason"]) is (number >= 3)
                decided.append(answer["decidedAt"])
            for more in range(3):
                blocked = await service.call("agent", "POST", "/v1/events", called(20 + more, bad=True))
                matched = {each["policyName"]: each for each in blocked.json()["matchedPolicies"]}
                free = matched["Warn of many"]["freeAt"]
                assert free == iso(seconds(decided[-3]) + WINDOW), "when two of the three newest are left"
            batch = {
                "events": [called(30), called(31), called(32, bad=True), called(33), called(34, bad=True)]
            }
            found = (await service.call("agent", "POST", "/v1/events/batch", batch)).json()["results"]
            matched = found[-1]["answer"]["matchedPolicies"]
            (free,) = [each["freeAt"] for each in matched if "freeAt" in each]
            assert free == iso(seconds(found[0]["answer"]["decidedAt"]) + WINDOW)

    asyncio.run(play())
    assert counted and max(counted) <= 3


MANY = on_tool(
    "Three hundred", "block", "tick", rateLimit={"limit": 300, "windowSeconds": WINDOW, "per": ["apiKeyId"]}
)


def test_when_there_is_room_again_is_read_for_many_calls_together(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    newest = recorded_calls.newest

    def noted(store: Database, bucket: str, since: float, most: int, newer: int) -> list[float]:
        read.append(newer)
        return newest(store, bucket, since, most, newer)

    monkeypatch.setattr(recorded_calls, "newest", noted)

    async def free(service: Service, first: int, last: int, policy: str) -> list[str]:
        events = {"events": [called(number) for number in range(first, last)]}
        found = (await service.call("agent", "POST", "/v1/events/batch", events)).json()["results"]
        matched = [each["answer"]["matchedPolicies"] for each in found]
        return [one["freeAt"] for each in matched for one in each if one["policyName"] == policy]

    async def play() -> None:
        async with Service(tmp_path, [MANY], database=database_url) as service:
            begun = service.clock()
            for number in range(3):
                assert await free(service, 100 * number, 100 * number + 100, MANY["name"]) == []
                service.clock.advance(7)
            assert set(await free(service, 300, 350, MANY["name"])) == {iso(begun + WINDOW)}

    asyncio.run(play())
    assert 0 < len(read) <= 4, "one for each commit that the calls took"


async def test_of_held_calls_each_knows_when_there_is_room_again(tmp_path: Path, database_url: str) -> None:
    """Each of them counts, so that of the next one another call must go. Which one is decided next is open:
    they are of different runs."""
    held = MANY | {"action": "require_approval", "rateLimit": {"limit": 300, "windowSeconds": WINDOW}}
    async with Service(tmp_path, [held], database=database_url) as service:
        times = []
        for number in range(300):
            times.append(service.clock())
            await service.call("agent", "POST", "/v1/events", called(number))
            service.clock.advance(1)
        events = {"events": [called(number) for number in range(300, 590)]}
        found = (await service.call("agent", "POST", "/v1/events/batch", events)).json()["results"]
        free = [each["answer"]["matchedPolicies"][0]["freeAt"] for each in found]
        assert sorted(free) == [iso(at + WINDOW) for at in times[:290]]
