"""Refusals on record: bounded in number, kept while nothing can be written, without any credential."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.caller import Caller
from api.database.errors import DatabaseUnavailable
from api.http.problems import ApiError
from api.server.connections.event_fast_path import STATE
from api.store import refusals
from tests.harness.application import Service, event
from tests.harness.event_connection import Connection, request

FORBIDDEN = ApiError("forbidden", "not for you")


async def noted(service: Service, organisation: str = "default") -> list[dict[str, Any]]:
    """Oldest first."""
    answer = await service.call(
        f"{'other ' * (organisation == 'other')}admin", "GET", "/v1/audit?type=request.refused&limit=1000"
    )
    found: list[dict[str, Any]] = answer.json()
    return found[::-1]


async def test_a_thousand_refusals_are_two_records(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        batch = [event(n, "run.started", service.clock.text, {"agentId": f"a{n}"}) for n in range(1_000)]
        answer = await service.call("bound agent", "POST", "/v1/events/batch", {"events": batch})
        assert {each["status"] for each in answer.json()["results"]} == {403}
        service.clock.advance(60)
        await service.housekeeping()
        await service.housekeeping()
        assert [each["details"]["count"] for each in await noted(service)] == [1, 999]
        service.clock.advance(1)
        await service.call("bound agent", "POST", "/v1/events/batch", {"events": batch[:1]})
        assert [each["details"]["count"] for each in await noted(service)] == [1, 999, 1]


async def test_many_callers_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MOST_COUNTED", 2)
    async with Service(tmp_path) as service:
        for number in range(6):
            caller = Caller("key", "other" if number == 5 else "default", key_id=str(number))
            await service.context.refusals.note(caller, FORBIDDEN, "POST /v1/halt")
        service.clock.advance(60)
        await service.housekeeping()
        found = [(each.get("actor"), each["details"]["count"]) for each in await noted(service)]
        assert found == [("key:0", 1), ("key:1", 1), (None, 1), (None, 2)]
        (elsewhere,) = await noted(service, "other")
        assert (elsewhere["actor"], elsewhere["details"]["kind"]) == ("key:5", "forbidden")
        service.clock.advance(60)
        await service.housekeeping()
        again = Caller("key", "default", key_id="again")
        await service.context.refusals.note(again, FORBIDDEN, "POST /v1/halt")
        assert (await noted(service))[-1]["actor"] == "key:again"


async def test_what_cannot_be_written_stays_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Service(tmp_path) as service:

        async def fails(job: Any) -> Any:
            raise DatabaseUnavailable("the database is away")

        with monkeypatch.context() as patch:
            patch.setattr(service.context.writer, "write", fails)
            for _ in range(3):
                await service.answered("viewer", "POST", "/v1/halt", {}, status=403)
            service.clock.advance(60)
            await service.context.refusals.write_due()
        assert await noted(service) == []
        await service.context.refusals.close()
        assert [each["details"]["count"] for each in await noted(service)] == [3]


async def test_no_record_shows_a_credential(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtYWxsb3J5In0.c2lnbmF0dXJl"
        headers = {**service.credentials["agent"], "Authorization": f"Bearer {token}"}
        await service.answered("nobody", "POST", "/v1/halt", {}, headers=headers, status=401)
        await service.report("agent", 1, "custom.note", userToken=token)
        found = await noted(service)
        assert [each["details"]["kind"] for each in found] == ["unauthenticated", "user_token"]
        assert token not in str(found)
        assert service.credentials["agent"]["X-API-Key"] not in str(found)


async def test_the_fast_path_notes_what_is_refused_at_the_commit(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        assert (await service.report("agent", 1, "run.started")).status_code == 200
        body = msgspec.json.encode(event(2, "run.completed", service.clock.text, {}))
        key = service.credentials["second agent"]["X-API-Key"]
        connection = Connection(service, app=service.application, state={STATE: service.context})
        for _ in range(2):
            answer = await connection.send(request(body, key=key), rounds=1)
            while b"run_conflict" not in answer:
                answer += await connection.send(b"", rounds=1)
        await service.context.refusals.close()
        found = await noted(service)
        assert [each["details"]["kind"] for each in found] == ["run_of_another_key"] * 2
        assert found[0]["actor"] == service.callers["second agent"].actor
