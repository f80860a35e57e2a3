"""Runs and their tool calls, read back: what an agent did and what became of each call.

Reads only; runs and calls are written by `api/ingestion/pipeline.py` and `store/approvals.py`.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import Any

import msgspec
from peewee import Case, Value, fn

from api.caller import Caller
from api.database.id_index import IdIndex
from api.database.models import CallTable, Organisation, Run
from api.database.table import behind, is_sqlite, page_of
from api.store.call_facts import ASSERTED, body_of_call, input_payload
from api.store.grants.reading import grants_of_calls
from api.store.review.reading import is_own

STATUSES = ("running", "completed", "failed")
GAP = "enforcement_gap"
"""The flag of a call that ran though it must not, or other than decided."""

COVERED = "covered_by_grant"
"""The flag of a call that was decided by grants; which, `grant_uses` says."""

_decode = msgspec.json.decode


MOST_CALLS = 10_000
"""Of one run in one answer, ..."""
USUAL_CALLS = 1_000
"""... where nobody asks for another number."""
MOST_PAYLOAD_BYTES = 32 * 2**20
"""Of one run's payloads and the agent's words on its calls in one answer. Later calls are shown without
theirs, or one run could fill the memory."""
AT_ONCE = 64
"""Calls read together. Each may have megabytes, and PostgreSQL's driver holds all that one question finds."""
MOST_IN_A_LIST = 4_096
"""Characters of each of an agent's words on a run, where many runs are listed."""

_LONG = ("task", "model", "reason", "agent_context")


class _Facts(msgspec.Struct):
    """What is shown of the facts that a decision saw; the agent's own words are not taken apart."""

    user: dict[str, Any] = {}
    key: dict[str, Any] = {}
    labels: list[str] = []
    agentContext: msgspec.Raw = msgspec.Raw()  # noqa: N815
    reason: msgspec.Raw = msgspec.Raw()
    actionHint: msgspec.Raw = msgspec.Raw()  # noqa: N815
    toolAnnotations: msgspec.Raw = msgspec.Raw()  # noqa: N815

    def asserted(self, whole: bool) -> dict[str, Any]:
        """The agent's own words, or how many bytes of them there are."""
        words = {name: getattr(self, name) for name in ASSERTED}
        said = {name: word for name, word in words.items() if word}
        return said if whole or not said else {"bytes": sum(map(len, said.values()))}


_facts_of_call = msgspec.json.Decoder(_Facts).decode


Position = tuple[str, int]
"""Where a page ends: when its last run began, and the run's number; in a run, when its oldest call was
decided, and the call's number."""


def organisations_with_runs() -> list[str]:
    """Whose agents have called, by id."""
    called = fn.EXISTS(Run.select(Value(1)).where(Run.organisation_id == Organisation.organisation_id))
    rows = Organisation.select(Organisation.organisation_id).where(called)
    return sorted(row.organisation_id for row in rows)


def list_runs(
    id_index: IdIndex,
    caller: Caller,
    status: str | None,
    agent_id: str | None,
    limit: int,
    before: Position | None,
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page of run summaries, newest first; how many there are in all; where the next page begins."""
    chosen = Run.organisation_id == caller.organisation_id
    if caller.kind == "key":
        own = Run.key_id == caller.key_id
        if caller.agent_id is not None:
            own |= Run.agent_id == caller.agent_id
        chosen &= own
    if status is not None:
        chosen &= Run.status == status
    if agent_id is not None:
        chosen &= Run.agent_id == agent_id
    keys = (Run.started_at, Run.run_no)
    # Numbers grow with time on SQLite; on PostgreSQL they do in each lane for itself.
    order = keys[1:] if is_sqlite() else keys
    rows, total, position = page_of(_bounded().where(chosen), keys, limit, before, order=order)
    counts = _counts(id_index, [row.run_no for row in rows])
    summaries = [{**_facts(row), "toolCallCounts": counts[row.run_no]} for row in rows]
    return summaries, total, position


def _bounded() -> Any:
    """Runs with no more of the agent's words than a list shows, however long they are."""
    size = fn.LENGTH(Run.agent_context)
    return Run.select(
        *(field for field in Run._meta.sorted_fields if field.name not in _LONG),
        *(fn.SUBSTR(getattr(Run, name), 1, MOST_IN_A_LIST).alias(name) for name in _LONG[:3]),
        Case(None, [(size <= MOST_IN_A_LIST, Run.agent_context)], None).alias("agent_context"),
        Case(None, [(size > MOST_IN_A_LIST, size)], None).alias("left_out"),
    )


def _counts(id_index: IdIndex, numbers: list[int]) -> defaultdict[int, dict[str, int]]:
    """run_no -> how many calls have each status."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(
        lambda: {"allowed": 0, "blocked": 0, "awaiting_approval": 0}
    )
    if numbers:
        query: Any = (
            CallTable.select(CallTable.run_no, CallTable.status, fn.COUNT(CallTable.call_no))
            .where(id_index.calls_of(numbers))
            .group_by(CallTable.run_no, CallTable.status)
            .tuples()
        )
        for run_no, status, count in query:
            counts[run_no][status] = int(count)
    return counts


def run_named(organisation_id: str, run_id: str) -> Run | None:
    """The run of an organisation that its agents call so."""
    row: Run | None = Run.get_or_none((Run.organisation_id == organisation_id) & (Run.run_id == run_id))
    return row


def own_run(caller: Caller, run_id: str) -> Run | None:
    row = run_named(caller.organisation_id, run_id)
    return row if row is not None and is_own(caller, row.key_id, row.agent_id) else None


def revision(id_index: IdIndex, caller: Caller, run_id: str) -> str | None:
    """A text that changes whenever what there is to read of the run does; None when there is no such run for
    the caller."""
    row = own_run(caller, run_id)
    return None if row is None else _revision(id_index, row)


def _revision(id_index: IdIndex, row: Run) -> str:
    return _state(id_index, row)[0]


def _state(id_index: IdIndex, row: Run) -> tuple[str, dict[str, int]]:
    """The revision, and how many calls have each status."""

    def counted(condition: Any) -> Any:
        return fn.COALESCE(fn.SUM(Case(None, [(condition, 1)], 0)), 0)

    found: Any = (
        CallTable.select(
            fn.COUNT(CallTable.call_no),
            fn.COUNT(CallTable.completed_at),
            counted(CallTable.status == "awaiting_approval"),
            counted(CallTable.flags != "[]"),
            counted(CallTable.status == "blocked"),
        )
        .where(id_index.calls_of([row.run_no]))
        .tuples()
        .first()
    )
    *numbers, blocked = map(int, found)
    said = [row.status, row.task, row.model, row.reason, row.agent_context, row.labels]
    waiting = numbers[2]
    counts = {
        "allowed": numbers[0] - blocked - waiting,
        "blocked": blocked,
        "awaiting_approval": waiting,
    }
    return sha256(msgspec.json.encode([numbers, *said])).hexdigest()[:16], counts


def find_run(
    id_index: IdIndex,
    caller: Caller,
    run_id: str,
    limit: int = USUAL_CALLS,
    before: Position | None = None,
) -> tuple[dict[str, Any], Position | None] | None:
    """The run with its newest tool calls (or those before a position) in the order reported, and where older
    ones end, if there are any; None when the caller may not know of it."""
    row = own_run(caller, run_id)
    if row is None:
        return None
    # INVARIANT: read first, so that what changes meanwhile is news to whoever waits after this revision.
    revision, counts = _state(id_index, row)
    keys = (CallTable.decided_at, CallTable.call_no)
    newest = behind(CallTable.select(*keys).where(id_index.calls_of([row.run_no])), keys, before)
    positions = list(newest.limit(limit + 1).tuples())
    more, positions = len(positions) > limit, positions[:limit]
    numbers = [number for _, number in reversed(positions)]
    found, covered, size = [], dict[int, dict[str, Any]](), 0
    for start in range(0, len(numbers), AT_ONCE):
        for call in _read(numbers[start : start + AT_ONCE], whole=size <= MOST_PAYLOAD_BYTES):
            size += len(call.body or b"") + len(call.output or "") + len(call.facts)
            found.append(_call(call, call.body, whole=size <= MOST_PAYLOAD_BYTES))
            if COVERED in call.flags:
                covered[call.call_no] = found[-1]
    for number, grant_ids in grants_of_calls(list(covered)).items():
        covered[number]["grantIds"] = grant_ids
    run = {**_facts(row), "revision": revision, "toolCallCounts": counts, "toolCalls": found}
    return run, (positions[-1] if more else None)


def _read(numbers: list[int], whole: bool) -> Any:
    """These calls, oldest first; what was sent and given back only of `whole` ones, as it may be large."""
    columns = [field for field in CallTable._meta.sorted_fields if whole or field is not CallTable.output]
    body = body_of_call() if whole else Value(None).alias("body")
    return (
        CallTable.select(*columns, body)
        .where(CallTable.call_no.in_(numbers))
        .order_by(CallTable.decided_at, CallTable.call_no)
        .objects()
    )


def _facts(row: Run) -> dict[str, Any]:
    return {
        "runId": row.run_id,
        "agentId": row.agent_id,
        "status": row.status,
        "task": row.task,
        "model": row.model,
        "asserted": _asserted(row),
        "keyId": row.key_id,
        "startedAt": row.started_at,
        "endedAt": row.ended_at,
        "labels": _decode(row.labels),
        "parentRunId": row.parent_run_id,
    }


def _asserted(row: Run) -> dict[str, Any]:
    """What the agent says of its run beside task and model."""
    said = {"reason": row.reason, "agentContext": row.agent_context and _decode(row.agent_context)}
    said["bytes"] = getattr(row, "left_out", None)
    return {name: value for name, value in said.items() if value is not None}


def _who(facts: _Facts) -> dict[str, Any]:
    """On whose behalf a call was made, as the service verified it; absent what nobody verified."""
    user, key = facts.user, facts.key
    found = {"userId": user.get("id"), "userEmail": user.get("email"), "keyId": key.get("id")}
    shown = {name: value for name, value in found.items() if value is not None}
    return shown | ({"keyScopes": key["scopes"]} if key.get("scopes") else {})


def _call(row: CallTable, body: bytes | None, whole: bool) -> dict[str, Any]:
    flags, facts = _decode(row.flags), _facts_of_call(row.facts)
    call: dict[str, Any] = {
        "toolCallId": row.tool_call_id,
        "toolName": row.tool_name,
        "status": row.status,
        "reason": row.reason,
        # As they are written, these and outputs: as objects they take many times as many bytes.
        "matchedPolicies": msgspec.Raw(row.matched.encode()),
        "shadowPolicies": msgspec.Raw(row.shadow.encode()),
        "decidedAt": row.decided_at,
        "policyRevision": row.policy_revision,
        "auditId": row.audit_id,
        "inputPayload": input_payload(body if whole else None),
        "completedAt": row.completed_at,
        "completion": row.completion,
        "flags": flags,
        "enforcementGap": GAP in flags,
        "asserted": facts.asserted(whole),
        **_who(facts),
    }
    if facts.labels:
        call["labels"] = facts.labels
    if row.status == "blocked":
        call["blockedReason"] = row.blocked_reason or row.reason
    if row.approval_id is not None:
        call["approvalId"] = row.approval_id
    if not whole:
        call["leftOut"] = True
    elif row.output is not None:
        call["outputPayload"] = msgspec.Raw(row.output.encode())
    return call
