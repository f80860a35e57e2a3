"""Event streams: who hears of what, what ends ends, and nobody costs the others anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.database.transaction import Change
from api.handlers import stream as stream_handler
from api.store import accounts
from api.updates.feed import _CHANGES
from api.updates.hub import MOST_QUEUED, Hub
from tests.api.updates.test_waiting import held, serving
from tests.harness.application import Service


class Stream:
    """One open GET /v1/stream, read as it arrives."""

    def __init__(self, received: asyncio.Queue[dict[str, Any]]) -> None:
        self._received = received
        self.start: dict[str, Any] = {}
        self._text = ""

    async def block(self) -> str | None:
        """The next event or comment, None at the end of the stream."""
        while "\n\n" not in self._text:
            message = await asyncio.wait_for(self._received.get(), 10)
            self._text += message.get("body", b"").decode()
            if not message.get("more_body", False):
                return None
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def event(self) -> tuple[str, dict[str, Any]]:
        block = await self.block()
        assert block is not None
        name, data = block.split("\n")
        return name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))


@contextlib.asynccontextmanager
async def streaming(service: Service, who: str, query: str = "") -> AsyncIterator[Stream]:
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    gone = asyncio.Event()
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in requests:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    headers = [(name.lower().encode(), value.encode()) for name, value in service.credentials[who].items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/v1/stream",
        "raw_path": b"/v1/stream",
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("service.example", 80),
    }
    running = asyncio.create_task(service.application(scope, receive, received.put))
    stream = Stream(received)
    stream.start = await asyncio.wait_for(received.get(), 10)
    try:
        yield stream
    finally:
        gone.set()
        await asyncio.wait_for(running, 10)


async def test_a_stream_tells_what_happens_in_its_organisation(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        async with streaming(service, "reviewer") as stream, streaming(service, "other reviewer") as other:
            assert stream.start["status"] == 200
            headers = dict(stream.start["headers"])
            assert headers[b"content-type"].startswith(b"text/event-stream")
            assert headers[b"x-accel-buffering"] == b"no"
            assert await stream.block() == "retry: 2000\n: connected"
            approval_id = await held(service)
            name, data = await stream.event()
            assert (name, data) == (
                "approval",
                {"approvalId": approval_id, "status": "pending", "runId": "run-1"},
            )
            name, data = await stream.event()
            assert (name, data["toolCallId"], data["toolCallStatus"]) == (
                "decision",
                "call-1",
                "awaiting_approval",
            )
            await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/reject")
            name, data = await stream.event()
            assert (name, data["status"]) == ("approval", "rejected")
            await service.call("admin", "POST", "/v1/halt", {"scope": "all", "reason": "x"})
            name, data = await stream.event()
            assert (name, data["active"]) == ("halt", True)
            await service.call("other admin", "POST", "/v1/halt", {"scope": "all", "reason": "x"})
            assert await other.block() == "retry: 2000\n: connected"
            name, _ = await other.event()
            assert name == "halt"
        assert not service.context.hub._streams


async def test_a_stream_gives_way_like_any_wait(tmp_path: Path) -> None:
    async with serving(tmp_path, GOVERNANCE_CONNECTIONS="2") as service:
        async with streaming(service, "reviewer") as first, streaming(service, "admin") as another:
            assert await first.block() == await another.block() == "retry: 2000\n: connected"
            async with streaming(service, "reviewer") as second:  # one more than the reviewer may have
                assert await second.block() == "retry: 2000\n: connected"
                assert await first.block() is None
                assert service.context.waits.make_room() and service.context.waits.make_room()
                assert [await second.block(), await another.block()] == [None, None]
                assert not service.context.waits.make_room()
        assert not service.context.hub._streams


async def test_a_stream_may_be_of_some_events_only(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        async with streaming(service, "reviewer", "events=approval,halt") as stream:
            await stream.block()
            await held(service, 1)
            await held(service, 2)
            assert [(await stream.event())[0] for _ in range(2)] == ["approval", "approval"]
        answer = await service.call("reviewer", "GET", "/v1/stream?events=approval,runs")
        assert answer.status_code == 422 and "`runs`" in answer.json()["detail"]


async def test_grants_are_told_of_as_other_processes_read_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        async with streaming(service, "viewer", "events=grant") as stream:
            await stream.block()
            asked = await held(service, 1)
            body = {"grant": {"scope": "run", "calls": 2, "minutes": 5}}
            made = await service.call("reviewer", "POST", f"/v1/approvals/{asked}/approve", body)
            grant_id = made.json()["grant"]["grantId"]
            call = {"toolName": "pay", "inputPayload": {}}
            await service.report("agent", 2, "tool.called", toolCallId="call-2", **call)
            await service.call("reviewer", "POST", f"/v1/grants/{grant_id}/revoke")
            told = [await stream.event() for _ in range(3)]
        assert [name for name, _ in told] == ["grant"] * 3
        assert [data["status"] for _, data in told] == ["active", "active", "revoked"]
        records = (await service.call("admin", "GET", "/v1/audit?limit=100")).json()
        read = [
            {"grantId": change.key, **change.data}
            for record in reversed(records)
            for change in _CHANGES.get(record["type"], lambda *_: [])("default", record)
            if change.topic == "grant"
        ]
        assert read == [data for _, data in told]


async def test_people_may_stream_and_agents_may_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        for who in ("agent", "nobody"):
            assert (await service.call(who, "GET", "/v1/stream")).status_code == 401


async def test_viewers_hear_nothing_of_approvals(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        async with streaming(service, "viewer") as stream:
            await stream.block()
            await held(service, 1)
            await service.call("admin", "POST", "/v1/halt", {})
            assert [(await stream.event())[0] for _ in range(2)] == ["decision", "halt"]
        answer = await service.call("viewer", "GET", "/v1/stream?events=halt,approval")
        assert answer.status_code == 403 and "`approval`" in answer.json()["detail"]


async def test_a_quiet_stream_is_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_handler, "KEEP_ALIVE", 0.05)
    async with serving(tmp_path) as service, streaming(service, "admin") as stream:
        blocks = [await stream.block() for _ in range(4)]
        assert blocks == ["retry: 2000\n: connected", *[": keep-alive"] * 3]


@pytest.mark.parametrize("cause", ["disabled", "demoted", "expired"])
async def test_a_stream_ends_when_its_token_would_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    monkeypatch.setattr(stream_handler, "KEEP_ALIVE", 0.05)
    async with serving(tmp_path) as service:
        user_id = service.callers["reviewer"].user_id
        assert user_id is not None
        async with streaming(service, "reviewer") as stream:
            assert await stream.block() is not None
            if cause == "expired":
                service.clock.advance(service.settings.token_seconds + 1)
            else:
                change: dict[str, Any] = {"enabled": False} if cause == "disabled" else {"role": "viewer"}
                await service.context.writer.write(
                    lambda transaction: accounts.change_user(
                        transaction, "default", user_id, "test", **change
                    )
                )
            for _ in range(100):
                if await stream.block() is None:
                    return
            raise AssertionError("the stream goes on")


async def test_a_reader_that_falls_behind_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        hub = service.context.hub
        told = hub.stream("default", frozenset({"decision"}), stream_handler.message)
        first = asyncio.ensure_future(anext(told))
        await asyncio.sleep(0)
        hub.publish([Change("default", "decision", str(number)) for number in range(MOST_QUEUED + 10)])
        with pytest.raises(StopAsyncIteration):
            await first
        assert not hub._streams


async def test_what_happens_is_written_once_for_all_streams_and_told_some_at_a_time(tmp_path: Path) -> None:
    written: list[str] = []
    pieces = 0

    def write(change: Change) -> bytes:
        written.append(change.key)
        return stream_handler.message(change)

    async def follow(hub: Hub, topics: str, last: bytes) -> bytes:
        nonlocal pieces
        found = b""
        async with contextlib.aclosing(hub.stream("default", frozenset(topics.split()), write)) as told:
            async for piece in told:
                pieces += 1
                found += piece
                if last in piece:
                    break
        return found

    async with serving(tmp_path) as service:
        hub = service.context.hub
        changes = [Change("default", "decision", f"call-{number}", {"n": number}) for number in range(200)]
        others = [Change("default", "policy", "p"), Change("other", "decision", "theirs")]
        tasks = [asyncio.create_task(follow(hub, "decision", b"call-199")) for _ in range(49)]
        tasks.append(asyncio.create_task(follow(hub, "decision policy", b"call-199")))
        while len(hub._streams) < 50:
            await asyncio.sleep(0)
        hub.publish(others)
        for change in changes:
            hub.publish([change])
            await asyncio.sleep(0)
        found = await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert found[:49] == [b"".join(map(stream_handler.message, changes))] * 49
        assert found[49] == stream_handler.message(others[0]) + found[0]
        assert written == ["p", *(change.key for change in changes)]
        assert pieces < 50 * 200 / 4
        assert not hub._streams
