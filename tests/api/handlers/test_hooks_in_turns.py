"""What a host tells its hook may hold much JSON as a text: it is read in the turn of its key."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from api.handlers import hook_request, hooks
from api.hosts import report
from tests.harness.application import Service


@pytest.mark.parametrize("hand_out", ["true", "false"])
async def test_long_texts_are_read_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hand_out: str
) -> None:
    where: list[str] = []

    def noted(work: Any) -> Any:
        def does(*arguments: Any) -> Any:
            where.append(threading.current_thread().name)
            return work(*arguments)

        return does

    for room, name in ((report, "_unique"), (hooks, "payload_digest"), (hook_request, "canonical_json")):
        monkeypatch.setattr(room, name, noted(getattr(room, name)))
    async with Service(tmp_path) as service:
        said = {
            "hook_event_name": "PreToolUse",
            "session_id": "s",
            "tool_use_id": "c",
            "tool_name": "look",
        }
        said["tool_input"] = '{"a": [' + ",".join(["{}"] * 6_000) + "]}"
        path = f"/v1/hooks/claude-code?handOut={hand_out}"
        answer = await service.call("agent", "POST", path, said)
        outcome = "allowed" if hand_out == "true" else "waiting"
        assert (answer.status_code, answer.headers["Governance-Outcome"]) == (200, outcome)
        # Each of its objects is read there, and one digest is made.
        assert len(where) == 6_001 + 1 and set(where) == {"turns-0"}
        # What is small waits for nobody, and counts.
        where.clear()
        answer = await service.call("agent", "POST", path, said | {"tool_input": "{}"})
        assert answer.status_code == 200 and where and set(where) == {"MainThread"}
