"""Calls of a run by what they ask for: agent hosts ask again in a new call, or do not name calls at all.

Reads only. A call is the same as another one when tool, payload and verified principal are: that is what the
digest of its row says.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from api.caller import Caller
from api.database.id_index import IdIndex
from api.database.models import CallTable
from api.hosts.report import MOST_OF_ID
from api.store.call_facts import body_of_call, input_payload, size_of_call
from api.store.runs import own_run

MOST: Final = 5
"""The newest of them that are looked at."""
MOST_SCHEDULED: Final = 2_000
MOST_SCHEDULED_BYTES: Final = 128 * 1_048_576
"""The same of calls that put a prompt off, and of their events."""
AGAIN: Final = " again "
"""Stands behind a host's name in those of further calls that it gives the same one."""


class HostCall(msgspec.Struct, frozen=True):
    tool_call_id: str
    status: str
    approval_id: str | None
    decided_at: str
    is_completed: bool
    digest: str
    payload: dict[str, Any] = {}


def has_task(caller: Caller, run_id: str) -> bool:
    """Whether the run is known and has been told its task."""
    row = own_run(caller, run_id)
    return row is not None and row.task is not None


def calls_like(id_index: IdIndex, caller: Caller, run_id: str, digest: str) -> list[HostCall]:
    """The newest calls of the caller's run whose digest begins so, newest first: on whosever behalf."""
    return _newest(id_index, caller, run_id, CallTable.payload_digest.startswith(digest))


def same_calls(id_index: IdIndex, caller: Caller, run_id: str, digest: str) -> list[HostCall]:
    """The same of calls on the same verified behalf, or on nobody's, whose digest just this is."""
    return _newest(id_index, caller, run_id, CallTable.payload_digest == digest)


def calls_of_tool(id_index: IdIndex, caller: Caller, run_id: str, tool_name: str) -> list[HostCall]:
    """The newest calls of a tool, newest first, with their payloads."""
    return _newest(id_index, caller, run_id, CallTable.tool_name == tool_name, payloads=True)


def has_scheduled(
    id_index: IdIndex, caller: Caller, run_id: str, tool_names: tuple[str, ...], text: str
) -> bool:
    """Whether a call of one of these tools may have put the text off until later, to come back as a prompt:
    one has, or there are more than are looked at. Each may have megabytes, so they are read one by one."""
    run = own_run(caller, run_id)
    if run is None:
        return False
    calls: Any = CallTable.select(CallTable.call_no, size_of_call())
    calls = _in_order(calls.where(id_index.calls_of([run.run_no]) & CallTable.tool_name.in_(tool_names)))
    left = MOST_SCHEDULED_BYTES
    for place, (number, size) in enumerate(list(calls.limit(MOST_SCHEDULED + 1).tuples())):
        left -= size or 0
        if place == MOST_SCHEDULED or left < 0:
            return True
        if str(_payload_of(number).get("prompt")).strip() == text.strip():
            return True
    return False


def _payload_of(call_no: int) -> dict[str, Any]:
    query: Any = CallTable.select(body_of_call()).where(CallTable.call_no == call_no)
    rows = query.tuples().iterator()  # which keeps none of its rows
    return next((_payload(*row) for row in rows), {})  # retention may have removed it meanwhile


def another_name(call_id: str, new_id: str) -> str:
    """Of one more call to which its host gives this name, as far as there is room."""
    name = f"{call_id}{AGAIN}{new_id}"
    return name if len(name) <= MOST_OF_ID else new_id


def calls_named(id_index: IdIndex, caller: Caller, run_id: str, call_id: str) -> list[HostCall]:
    """The newest calls to which their host gives this name, newest first, with their payloads."""
    chosen = (CallTable.tool_call_id == call_id) | CallTable.tool_call_id.startswith(call_id + AGAIN)
    return _newest(id_index, caller, run_id, chosen, payloads=True)


def _newest(
    id_index: IdIndex, caller: Caller, run_id: str, chosen: Any, *, payloads: bool = False
) -> list[HostCall]:
    run = own_run(caller, run_id)
    if run is None:
        return []
    columns = [
        CallTable.tool_call_id,
        CallTable.status,
        CallTable.approval_id,
        CallTable.decided_at,
        CallTable.completed_at,
        CallTable.payload_digest,
    ]
    query: Any = CallTable.select(*columns)
    if payloads:
        query = CallTable.select(*columns, body_of_call())
    rows = _in_order(query.where(id_index.calls_of([run.run_no]) & chosen)).limit(MOST).tuples()
    return [
        HostCall(name, status, approval_id, decided_at, completed_at is not None, digest, _payload(*body))
        for name, status, approval_id, decided_at, completed_at, digest, *body in rows
    ]


def _in_order(query: Any) -> Any:
    return query.order_by(CallTable.decided_at.desc(), CallTable.call_no.desc())


def _payload(body: bytes | None = None) -> dict[str, Any]:
    raw = input_payload(body)
    return msgspec.json.decode(raw) if raw is not None else {}
