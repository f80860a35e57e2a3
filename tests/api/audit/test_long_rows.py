"""However much agents send in one event, whoever verifies the log needs the memory of a few of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from api.audit import calls_and_events
from api.audit.calls_and_events import digest_of_calls
from api.audit.verification import verify
from tests.harness.application import Service
from tests.harness.dropping import changed

LONG = 100_000
MOST = 5 * LONG
EVENTS = 60


async def verified(service: Service) -> tuple[dict[str, Any], int]:
    """What is found, and the most bytes that it took."""
    context = service.context
    tracemalloc.start()
    try:
        trusted = (context.audit_key.public,)
        found = await context.store.read(lambda: verify(context.store, "default", trusted=trusted))
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_verifying_needs_little_memory(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_and_events, "MOST_BYTES", MOST)
    async with Service(tmp_path, database=database_url) as service:
        context = {"goal": "a" * LONG}
        for number in range(EVENTS):
            call = {"toolCallId": f"c-{number}", "toolName": "look", "inputPayload": {}}
            answer = await service.report("agent", number, "tool.called", **call, agentContext=context)
            assert answer.status_code == 200
        found, most = await verified(service)
        assert (found["valid"], found["problems"]) == (True, [])
        assert most < EVENTS * LONG / 2
        store = service.context.store
        count, _ = await store.read(digest_of_calls, store, "default", -1, 2**62)
        assert count == EVENTS
        # Of what is gone, nothing is kept while it is looked for.
        await changed(service, "DELETE FROM events WHERE event_id = 'event-1'")
        found, most = await verified(service)
        assert found["valid"] is True and most < EVENTS * LONG / 2
        await changed(service, "UPDATE events SET body = body || body WHERE event_id = 'event-41'")
        found, _ = await verified(service)
        assert len(found["problems"]) == 1 and "the body of event `event-41`" in found["problems"][0]
