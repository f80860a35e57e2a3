"""A transaction in one way to the server: what was assumed in memory is checked by statements that go along.

A guard that does not hold fails the transaction with an SQLSTATE of its own, and nothing behind it is run.
INVARIANT: the lock comes first and each guard is a statement behind it, so that it sees every change that was
committed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from api.database.lanes.lease import LANE, MOVE, Lane
from api.database.lanes.locks import EVENTS, LOCK_BUCKETS, SHARED, bucket_hash
from api.database.lanes.policy_mark import OF_REVISION, POLICY_MARK
from api.database.lanes.session import Statement

STATE: Final = "GV002"
"""Policies, keys, halts, grants or webhooks are others than those that were decided by."""
RUN: Final = "GV003"
"""A run has changed."""
LIMIT: Final = "GV004"
"""More calls count against a rate limit than fit."""
PENDING: Final = "GV005"
"""More approvals of a key are pending than may be."""
LOCK_TIMEOUT: Final = "4s"
"""Then the thread waits, which does so for longer."""
COUNTERS: Final = ("policies", "keys", "halts", "grants", "webhooks")
_COMPARED: Final = (*COUNTERS, POLICY_MARK)

RUN_STATE: Final = (
    "(CASE WHEN r.ended_at IS NULL THEN 0 ELSE 1 END"
    " + CASE WHEN COALESCE(r.task, r.model, r.reason, r.agent_context) IS NULL THEN 0 ELSE 2 END"
    " + 4 * r.flow)"
)
"""All of a run that may change: whether it has ended, whether its facts are known, and how often its labels,
steps and values have changed."""
_RUNS = (
    "SELECT COUNT(*) FROM unnest(?::bigint[], ?::bigint[], string_to_array(?, chr(31)))"
    " AS w(no, state, identity)"
    f" JOIN runs AS r ON r.run_no = w.no WHERE w.state = {RUN_STATE}"
    " AND w.identity = concat_ws(' ', r.organisation_id, r.key_id, r.agent_id, r.started_at, r.run_id)"
)
"""A number may be another run's: a copy of the database that lacks the last commits gives it again. The
identities are one text, since the driver takes long over a list; one that has the separator in it fails."""
_MOVED = (
    "SELECT 1 FROM counters WHERE value <> CASE name"
    + "".join(f" WHEN '{name}' THEN ?::bigint" for name in _COMPARED)
    + " ELSE value END AND (name <> 'policies' OR value > ?::bigint)"
    f" AND (name <> '{POLICY_MARK}' OR value & {OF_REVISION} = ?::bigint)"
)
"""A set of policies that is newer than the database says is about to be recorded there."""
_GUARD = (
    f"WITH moved AS ({MOVE}) SELECT governance_guard((SELECT COUNT(*) FROM moved) = 1, '{LANE}'),"
    f" governance_guard(NOT EXISTS ({_MOVED}), '{STATE}'),"
    f" governance_guard(({_RUNS}) = ?::bigint, '{RUN}')"
)
_HOLD_RUNS = "SELECT 1 FROM runs WHERE run_no = ANY (?::bigint[]) ORDER BY run_no FOR SHARE"
_LIMITS = (
    "SELECT governance_guard(NOT EXISTS (SELECT 1"
    " FROM unnest(?::text[], ?::double precision[], ?::bigint[]) AS w(bucket, since, most)"
    " WHERE (SELECT COUNT(*) FROM (SELECT 1 FROM rate_hits AS h"
    " WHERE h.bucket = w.bucket AND h.at > w.since LIMIT w.most + 1) AS hits) > w.most),"
    f" '{LIMIT}')"
)
_PENDING = (
    "SELECT governance_guard(NOT EXISTS (SELECT 1 FROM unnest(?::text[], ?::bigint[]) AS w(key_id, most)"
    " WHERE (SELECT COUNT(*) FROM approvals AS a WHERE a.key_id = w.key_id AND a.status = 'pending')"
    " > w.most),"
    f" '{PENDING}')"
)
_COMPLETE = (
    "WITH done AS (UPDATE tool_calls AS c"
    " SET completed_at = w.at, completion = w.completion, output = w.output"
    " FROM unnest(?::bigint[], ?::text[], ?::text[], ?::text[], ?::text[])"
    " AS w(no, id, at, completion, output) WHERE c.call_no = w.no AND c.tool_call_id = w.id"
    " AND c.completed_at IS NULL AND c.status = 'allowed' RETURNING 1)"
    f" SELECT governance_guard((SELECT COUNT(*) FROM done) = ?::bigint, '{RUN}')"
)
_END = (
    "WITH ended AS (UPDATE runs AS r SET status = w.status, ended_at = w.at"
    " FROM unnest(?::bigint[], ?::text[], ?::text[]) AS w(no, status, at)"
    " WHERE r.run_no = w.no AND r.ended_at IS NULL RETURNING 1)"
    f" SELECT governance_guard((SELECT COUNT(*) FROM ended) = ?::bigint, '{RUN}')"
)

Outcome = tuple[int, str, str, str, str | None]
"""Number and id of a call; when it was completed, how, and what it gave back. Its flags stay as they are in
the database: another node may have given it some."""
Ended = tuple[int, str, str]
"""Number of a run; how and when it ended."""


@dataclass(slots=True)
class Assumed:
    """What the decisions of a transaction rely on."""

    counters: dict[str, int]
    runs: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Number of a run to its state, see `RUN_STATE`, and to what never changes of it."""
    changed_runs: list[tuple[str, str]] = field(default_factory=list)
    """Organisation and id of runs that are thought to be new, or that end."""
    held: bool = False
    """A call waits for a person, and its run must not end meanwhile."""
    limits: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Rate count to the beginning of its window, and how many may count there already."""
    pending: dict[str, int] = field(default_factory=dict)
    """API key to how many of its approvals may be pending already."""

    def guarded(self, lane: Lane, numbers: int) -> list[Statement]:
        """What goes before the rows."""
        statements: list[Statement] = [(SHARED, (LOCK_TIMEOUT, str(EVENTS)))]
        if self.limits:
            statements.append(lock_buckets(self.limits))
        if self.held and self.runs:
            statements.append((_HOLD_RUNS, (_array(sorted(self.runs)),)))
        counters = [str(self.counters[name]) for name in (*_COMPARED, "policies")]
        counters.append(str(self.counters[POLICY_MARK] & OF_REVISION))
        states, identities = zip(*self.runs.values(), strict=True) if self.runs else ((), ())
        runs = [_array(self.runs), _array(states), "\x1f".join(identities), str(len(self.runs))]
        statements.append((_GUARD, [*lane.moving(numbers), *counters, *runs]))
        if self.limits:
            names, windows = list(self.limits), list(self.limits.values())
            since, most = [since for since, _ in windows], [most for _, most in windows]
            statements.append((_LIMITS, (names, _array(since), _array(most))))
        if self.pending:
            statements.append((_PENDING, (list(self.pending), _array(self.pending.values()))))
        return statements


def completed(outcomes: Iterable[Outcome]) -> Statement:
    """What came of calls that are allowed and have no outcome yet, or nothing of the transaction."""
    return _changed(_COMPLETE, outcomes)


def ended(runs: Iterable[Ended]) -> Statement:
    """The end of runs that have none yet, or nothing of the transaction."""
    return _changed(_END, runs)


def _changed(statement: str, rows: Iterable[tuple[Any, ...]]) -> Statement:
    """In the order of their numbers, like everybody who locks several."""
    numbers, *others = zip(*sorted(rows), strict=True)
    return statement, [_array(numbers), *map(list, others), str(len(numbers))]


def lock_buckets(names: Iterable[str]) -> Statement:
    """Who counts these has them for itself, up to the end of the transaction."""
    return LOCK_BUCKETS, (_array(sorted({bucket_hash(name) for name in names})),)


def _array(numbers: Iterable[float]) -> str:
    """A list as a text: the driver would give it a type by the size of its numbers."""
    return "{" + ",".join(map(repr, numbers)) + "}"
