"""Recorded tool calls, read back as the calls that were decided: for backtests and replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from api import clock
from api.store.database import Database
from engine.backtest import Recorded
from engine.model import ToolCall

_COLUMNS = (
    "SELECT c.tool_call_id, c.tool_name, c.decided_at, c.facts, e.body, r.run_id, r.agent_id"
    " FROM tool_calls c JOIN events e ON e.event_no = c.event_no JOIN runs r ON r.run_no = c.run_no"
    " WHERE c.organisation_id = ?"
)


def recorded(
    store: Database,
    organisation_id: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 10_000,
) -> list[Recorded]:
    """The most recent calls of an organisation, oldest first; times are ISO 8601 UTC as stored."""
    where, parameters = "", [organisation_id]
    if since is not None:
        where += " AND c.decided_at >= ?"
        parameters.append(since)
    if until is not None:
        where += " AND c.decided_at <= ?"
        parameters.append(until)
    rows = store.rows(f"{_COLUMNS}{where} ORDER BY c.call_no DESC LIMIT ?", [*parameters, limit])
    return list(_calls(reversed(rows)))


def _calls(rows: Iterator[tuple[Any, ...]]) -> Iterator[Recorded]:
    for tool_call_id, tool_name, decided_at, facts, body, run_id, agent_id in rows:
        metadata = msgspec.json.decode(bytes(body)).get("metadata") or {}
        document = {
            "toolName": tool_name,
            "inputPayload": metadata.get("inputPayload") or {},
            "agentId": agent_id,
            "runId": run_id,
            "toolCallId": tool_call_id,
            **msgspec.json.decode(facts),
        }
        yield Recorded(f"{run_id}/{tool_call_id}", clock.seconds(decided_at), ToolCall(document))
