"""Recorded tool calls, read back as the calls that were decided: for backtests and replays; and how many of
them count against a rate limit now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from api import clock
from api.database.connection import Database, marks
from api.database.id_index import IdIndex
from api.database.lanes.lease import spans
from api.database.models import Approval, CallTable, Event
from api.store.call_facts import BODY, FLOW, asserted, facts_of_run, is_event_of_call, refers, whole
from api.store.run_values import values_of
from api.store.runs import run_named
from engine.analysis.backtest import Recorded
from engine.flow.memory import RunMemory, SeenValues
from engine.flow.steps import Steps
from engine.matching.rate_limit import bucket, window_start
from engine.matching.rate_limit import is_over as over_limit
from engine.model import BEFORE, Policy, ToolCall

_COLUMNS = (
    f"SELECT c.tool_call_id, c.tool_name, c.decided_at, c.facts, {BODY}, r.run_no, r.run_id, r.agent_id,"
    " r.parent_run_id FROM tool_calls c JOIN runs r ON r.run_no = c.run_no"
    " WHERE c.organisation_id = ?"
)

_NEWEST = "SELECT at FROM rate_hits WHERE bucket = ? AND at > ? ORDER BY at DESC LIMIT ? OFFSET ?"
_COUNTED = "SELECT COUNT(*) FROM (SELECT 1 FROM rate_hits WHERE bucket = ? AND at > ? LIMIT ?) AS hits"
_RUNS = "SELECT run_no, task, model, agent_context FROM runs WHERE run_no IN"

AT_ONCE = 16
"""Calls read at a time, of which each may have as many bytes as a body."""


def recorded(
    store: Database,
    organisation_id: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = 10_000,
) -> Iterator[Recorded]:
    """The most recent calls of an organisation, oldest first; times are ISO 8601 UTC as stored. They are read
    some at a time, so that large payloads do not fill the memory."""
    numbers = store.read_here(_newest, store, organisation_id, since, until, limit)
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        page = f"{_COLUMNS} AND c.call_no IN ({marks(some)}) ORDER BY c.decided_at, c.call_no"
        yield from store.read_here(_calls, store, page, [organisation_id, *some])


def _newest(
    store: Database, organisation_id: str, since: str | None, until: str | None, limit: int
) -> list[int]:
    """The numbers of the most recent calls, oldest first: of each lane its last ones, merged by time."""
    where, parameters = _between(organisation_id, since, until)
    statement = (
        f"SELECT c.decided_at, c.call_no FROM tool_calls c WHERE c.organisation_id = ?{where}"
        " AND c.call_no BETWEEN ? AND ? ORDER BY c.call_no DESC LIMIT ?"
    )
    found: list[tuple[str, int]] = []
    for first, last in spans(store):
        found += [(at, number) for at, number in store.rows(statement, [*parameters, first, last, limit])]
    return [number for _, number in sorted(found)[-limit:]] if limit else []


def _between(organisation_id: str, since: str | None, until: str | None) -> tuple[str, list[Any]]:
    where, parameters = "", [organisation_id]
    if since is not None:
        where += " AND c.decided_at >= ?"
        parameters.append(since)
    if until is not None:
        where += " AND c.decided_at <= ?"
        parameters.append(until)
    return where, parameters


def _calls(store: Database, statement: str, parameters: Sequence[Any]) -> list[Recorded]:
    rows = [row for row in store.rows(statement, parameters) if row[4] is not None]
    known = [msgspec.json.decode(row[3]) for row in rows]
    referring = {row[5] for row, facts in zip(rows, known, strict=True) if refers(facts)}
    runs = _facts_of_runs(store, list(referring))
    return [_call(store, facts, runs.get(row[5]), row) for row, facts in zip(rows, known, strict=True)]


def _facts_of_runs(store: Database, numbers: list[int]) -> dict[int, dict[str, Any] | None]:
    """By number of the run; each is read once, however many calls refer to it."""
    found: dict[int, dict[str, Any] | None] = {}
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        for run_no, *told in store.rows(f"{_RUNS} ({marks(some)})", some):
            found[run_no] = facts_of_run(*told)
    return found


def _call(
    store: Database, facts: dict[str, Any], run: dict[str, Any] | None, row: tuple[Any, ...]
) -> Recorded:
    tool_call_id, tool_name, decided_at, _, body, run_no, run_id, agent_id, parent = row
    metadata, size = msgspec.json.decode(bytes(body)).get("metadata") or {}, len(body)
    document = {
        "toolName": tool_name,
        "inputPayload": metadata.get("inputPayload") or {},
        "agentId": agent_id,
        "runId": run_id,
        "toolCallId": tool_call_id,
        **whole(facts, run),
    }
    if (flow := facts.get(FLOW)) is not None:
        steps = msgspec.convert(flow["steps"], Steps)
        task = (document.get("run") or {}).get("task")  # as far as it was told before the call
        load = partial(_values, store, run_no, flow["version"], task, parent)
        document[BEFORE] = RunMemory(flow["version"], steps, load=load)
    return Recorded(f"{run_id}/{tool_call_id}", clock.seconds(decided_at), ToolCall(document), size)


def _values(store: Database, run_no: int, flow: int, task: str | None, parent: str | None) -> SeenValues:
    return store.read_here(values_of, store, run_no, flow, task, parent)


def is_over(store: Database, policy: Policy, call: ToolCall, now: float) -> bool:
    """Whether this call would lie beyond the policy's limit now; counts nothing."""
    limit = policy.rate_limit
    assert limit is not None
    count = store.read_here(counted, store, bucket(policy, call), window_start(limit, now), limit.limit)
    return over_limit(limit, count)


def counted(store: Database, bucket: str, since: float, most: int) -> int:
    """The calls that count for a limit since a time, up to so many: nobody goes through all that went on
    beyond it."""
    return int(store.rows(_COUNTED, (bucket, since, most))[0][0])


def newest(store: Database, bucket: str, since: float, most: int, newer: int) -> list[float]:
    """The times of calls that count for a limit since a time, newest first, but for those that are newer."""
    return [at for (at,) in store.rows(_NEWEST, (bucket, since, most, newer))]


def bound_to(organisation_id: str, approval_id: str) -> tuple[str, dict[str, Any], bool] | None:
    """What an approval is bound to: the digest of its call's tool and payload, and on whose behalf; what the
    agent said of the call; and whether it was allowed and what became of it is known. None when there is no
    such approval, or its event is not kept any more."""
    found = (
        CallTable.select(CallTable.payload_digest, Event.body, CallTable.status, CallTable.completed_at)
        .join(Approval, on=(Approval.call_no == CallTable.call_no))
        .switch(CallTable)
        .join(Event, on=is_event_of_call())
        .where((Approval.approval_id == approval_id) & (Approval.organisation_id == organisation_id))
        .tuples()
        .first()
    )
    if found is None:
        return None
    digest, body, status, completed_at = found
    return digest, _asserted(body), status == "allowed" and completed_at is not None


def asserted_of_call(
    id_index: IdIndex, organisation_id: str, run_id: str, tool_call_id: str
) -> dict[str, Any] | None:
    """What the agent said of a call; None when there is none, or its event is not kept any more."""
    run = run_named(organisation_id, run_id)
    if run is None:
        return None
    found = (
        CallTable.select(Event.body)
        .join(Event, on=is_event_of_call())
        .where(id_index.call_of(run, tool_call_id))
        .tuples()
        .first()
    )
    return None if found is None else _asserted(found[0])


def is_any_known(id_index: IdIndex, organisation_id: str, places: Iterable[tuple[str, str]]) -> bool:
    """Whether one of these calls, each by run and its own id, was decided."""
    named: dict[str, list[str]] = {}
    for run_id, tool_call_id in places:
        named.setdefault(run_id, []).append(tool_call_id)
    for run_id, ids in named.items():
        run = run_named(organisation_id, run_id)
        if run is not None and any(
            CallTable.select().where(id_index.call_of(run, each)).exists() for each in ids
        ):
            return True
    return False


def _asserted(body: bytes) -> dict[str, Any]:
    metadata = msgspec.json.decode(bytes(body)).get("metadata") or {}
    return asserted({name: said for name, said in metadata.items() if said is not None})
