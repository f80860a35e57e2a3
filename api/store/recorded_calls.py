"""Recorded tool calls, read back as the calls that were decided: for backtests and replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from api import clock
from api.database.connection import Database
from engine.analysis.backtest import Recorded
from engine.model import ToolCall

_COLUMNS = (
    "SELECT c.tool_call_id, c.tool_name, c.decided_at, c.facts, e.body, r.run_id, r.agent_id"
    " FROM tool_calls c JOIN events e ON e.event_no = c.event_no JOIN runs r ON r.run_no = c.run_no"
    " WHERE c.organisation_id = ?"
)

AT_ONCE = 100
"""Calls read at a time."""


def recorded(
    store: Database,
    organisation_id: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 10_000,
) -> list[Recorded]:
    """The most recent calls of an organisation, oldest first; times are ISO 8601 UTC as stored."""
    where, parameters = _between(organisation_id, since, until)
    rows = store.rows(f"{_COLUMNS}{where} ORDER BY c.call_no DESC LIMIT ?", [*parameters, limit])
    return list(_calls(reversed(rows)))


def each_recorded(
    store: Database,
    organisation_id: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 10_000,
) -> Iterator[Recorded]:
    """The same some at a time, so that large payloads do not fill the memory."""
    where, parameters = _between(organisation_id, since, until)
    newest = f"SELECT c.call_no FROM tool_calls c WHERE c.organisation_id = ?{where}"
    numbers = [
        row[0]
        for row in store.read_here(
            store.rows, f"{newest} ORDER BY c.call_no DESC LIMIT ?", [*parameters, limit]
        )
    ][::-1]
    for start in range(0, len(numbers), AT_ONCE):
        first, last = numbers[start], numbers[min(start + AT_ONCE, len(numbers)) - 1]
        page = f"{_COLUMNS}{where} AND c.call_no BETWEEN ? AND ? ORDER BY c.call_no"
        yield from _calls(iter(store.read_here(store.rows, page, [*parameters, first, last])))


def _between(organisation_id: str, since: str | None, until: str | None) -> tuple[str, list[Any]]:
    where, parameters = "", [organisation_id]
    if since is not None:
        where += " AND c.decided_at >= ?"
        parameters.append(since)
    if until is not None:
        where += " AND c.decided_at <= ?"
        parameters.append(until)
    return where, parameters


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
