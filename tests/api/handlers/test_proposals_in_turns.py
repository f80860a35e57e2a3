"""What a key tells of the tools of a server is read, written out and counted as its time, like its events;
what it tells again is not written."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from api.handlers import tool_proposals
from api.store.tools import proposals
from tests.harness.application import Service

BUSY = 0.02


def told(server: str, length: int) -> dict[str, Any]:
    names = [f"tool_{number}" for number in range(40)]
    tools = [{"name": name, "definition": "ab" * 32, "description": "d" * length} for name in names]
    return {"server": server, "tools": tools}


def test_large_proposals_take_turns_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, list[str]] = {"_told": [], "_shown": []}

    def noted(name: str) -> None:
        function = getattr(tool_proposals, name)

        def note(*arguments: Any) -> Any:
            threads[name].append(threading.current_thread().name.partition("-")[0])
            return function(*arguments)

        monkeypatch.setattr(tool_proposals, name, note)

    noted("_told")
    noted("_shown")
    propose, written = proposals.propose, []

    def busy(*arguments: Any) -> str:
        until = time.thread_time() + BUSY
        while time.thread_time() < until:
            pass
        written.append(1)
        return propose(*arguments)

    monkeypatch.setattr(proposals, "propose", busy)

    async def play() -> None:
        async with Service(tmp_path, live=True) as service:
            for server, length in (("large", 1_000), ("large", 1_000), ("small", 1)):
                found = await service.answered("agent", "POST", "/v1/tool-proposals", told(server, length))
                assert found["tools"][0] == {
                    **told(server, length)["tools"][0],
                    "state": "new",
                    "kind": "unknown",
                    "effect": "write",
                }
            taken = service.context.intake.processor_time.taken(found["keyId"])
            assert taken >= 2 * BUSY
            refused = await service.call("agent", "POST", "/v1/tool-proposals", {"server": "x", "tools": 1})
            assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/tools"

    asyncio.run(play())
    assert threads["_told"][:2] == ["turns", "turns"] and threads["_told"][2] != "turns"
    assert set(threads["_shown"]) == {"reads"}
    assert len(written) == 2, "what is told again needs no commit"
