"""What is there already of the events of a batch: their runs, the events themselves, and the calls they name.

On SQLite it is looked up inside the transaction; on PostgreSQL it is asked together with the lock (`asked`,
`answered`), or taken from memory and checked by guards (`remembered`). It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import msgspec

from api.database.connection import Database
from api.database.id_index import EVENTS, IdIndex
from api.database.lanes.guards import lock_buckets
from api.database.lanes.session import Rows, Statement
from api.database.sqlite.bloom_filter import Key
from api.database.transaction import Transaction
from api.ingestion.event import Incoming, same_body
from api.ingestion.known.runs import KnownCalls, KnownRun, KnownRuns
from api.ingestion.rows import CallRow, RunRow, columns
from api.ingestion.turns import LARGE
from engine.matching.rate_limit import bucket

# INVARIANT: however small the events are, what they name is read within the commit of others: nothing of it
# that may be large and is not needed, or not before it is known that the key may take the time for it.
_TOLD = ("task", "model", "reason", "agent_context")


def _run_columns(is_large: str) -> str:
    """Those of a run, as far as they are not large, and how much of `_TOLD` it has. INVARIANT: whether a text
    is large is asked once, and in bytes: SQLite goes through all of it, and slowly to count characters."""
    texts = {f"t.{name}": is_large.format(f"t.{name}") for name in _TOLD}
    names = [f"t.{name}" for name in RunRow.__struct_fields__]
    kept = [f"CASE WHEN {texts[name]} THEN NULL ELSE {name} END" if name in texts else name for name in names]
    told = [f"CASE WHEN {name} IS NULL THEN 0 ELSE 1 END" for name in texts]
    return f"{', '.join(kept)}, {' + '.join(told)}"


_RUNS = (
    f"SELECT {_run_columns(f'LENGTH(CAST({{}} AS BLOB)) > {LARGE}')} FROM {{keys}} CROSS JOIN runs AS t"
    " WHERE t.organisation_id = w.column1 AND t.run_id = w.column2"
)
_TELL = f"SELECT {', '.join(_TOLD)} FROM runs WHERE run_no = ?"
_CALL_COLUMNS = columns(CallRow, "t").replace("t.facts", "'' AS facts")
_CALLS = f"SELECT {_CALL_COLUMNS} FROM {{keys}} CROSS JOIN tool_calls AS t WHERE t.call_no = w.column1"
_KNOWN_COLUMNS = (
    "t.id_hash, t.organisation_id, t.event_id, t.receipt, t.event_no,"
    f" CASE WHEN LENGTH(t.body) <= {LARGE} THEN t.body END"
)
_KNOWN = f"SELECT {_KNOWN_COLUMNS} FROM {{keys}} CROSS JOIN events AS t WHERE t.event_no = w.column1"

_ASK_RUNS = (
    f"SELECT {_run_columns(f'OCTET_LENGTH({{}}) > {LARGE}')}"
    " FROM unnest(?::text[], ?::text[]) AS w(name, run_id) JOIN runs AS t"
    " ON t.organisation_id = w.name AND t.run_id = w.run_id ORDER BY t.run_no FOR {lock} OF t"
)
_BY_KEY = (
    "FROM unnest(?::text[], ?::text[]::uuid[]) AS w(name, key)"
    " JOIN ids AS i ON i.organisation_id = w.name AND i.key = w.key"
)
_BODY = "SELECT body FROM events WHERE event_no = ?"
_ASK_EVENTS = f"SELECT {_KNOWN_COLUMNS} {_BY_KEY} JOIN events AS t ON t.event_no = i.no"
_ASK_CALLS = (
    f"SELECT {_CALL_COLUMNS} {_BY_KEY} JOIN tool_calls AS t ON t.call_no = i.no"
    " ORDER BY t.call_no FOR {lock} OF t"
)

Place = tuple[str, str]
"""Organisation and run id."""


class KnownEvent(msgspec.Struct):
    """An event that was recorded before, or earlier in this batch."""

    organisation_id: str
    event_id: str
    receipt: bytes
    """The answer as sent; empty where it follows from the event's call."""
    number: int
    body: bytes | None
    """None: it is large, and read when it is compared."""

    @property
    def is_large(self) -> bool:
        """Whether to compare it may take long."""
        return self.body is None or len(self.body) > LARGE

    def is_of(self, event: Incoming, store: Database) -> bool:
        """Whether it is this event, with this body."""
        if (self.organisation_id, self.event_id) != (event.caller.organisation_id, event.body.eventId):
            return False
        bodies = (
            [self.body] if self.body is not None else [row[0] for row in store.rows(_BODY, (self.number,))]
        )
        return any(same_body(bytes(body), event.raw) for body in bodies)


@dataclass(slots=True)
class Found:
    """What is known of the events of a batch."""

    runs: dict[Place, KnownRun]
    learnt: list[KnownRun] = field(default_factory=list)
    """Those that were not known before."""
    calls: dict[tuple[int, int], CallRow] = field(default_factory=dict)
    """By run and hash of the call's id."""
    known: dict[int, KnownEvent] = field(default_factory=dict)
    """By the hash of the event's id."""


def looked_up(
    store: Database,
    transaction: Transaction,
    events: Sequence[Incoming],
    known_runs: KnownRuns,
    id_index: IdIndex,
) -> Found:
    """By the index of ids of SQLite."""
    wanted = _places(events)
    runs = known_runs.take(transaction, wanted)
    learnt = _runs(store.found(_RUNS, wanted - runs.keys()))
    runs |= {(run.organisation_id, run.run_id): run for run in learnt}
    found = id_index.find(transaction, _keys(runs, events))
    known = [(number,) for (owner, _), number in found.items() if owner == EVENTS]
    calls = [(number,) for (owner, _), number in found.items() if owner != EVENTS]
    return Found(runs, learnt, _calls(store.found(_CALLS, calls)), _known(store.found(_KNOWN, known)))


def is_usual(event: Incoming, known_runs: KnownRuns, known_calls: KnownCalls) -> bool:
    """All that it needs is in memory: a call, the start of a run that is new, or what becomes of a run and a
    call that are known."""
    if event.parent is not None:
        return False
    if event.call is not None:
        return True
    run = known_runs.find(event.caller.organisation_id, event.body.runId)
    if event.body.eventType == "run.started":
        return run is None
    if run is None:
        return False
    if "toolCallId" in event.metadata:
        return known_calls.find(run, event.call_hash) is not None
    return event.metadata.get("cancelApprovals") is not True


def asked(events: Sequence[Incoming], granted: Iterable[str]) -> list[Statement]:
    """By the keys of PostgreSQL, together with the lock; rate counts, and those of grants (`granted`), are
    locked before any row.

    INVARIANT: events come before runs and those before calls. Each statement sees what was committed before
    it, so whoever finds an event finds its run and call too, though they were written just now.
    """
    places = sorted(_places(events))
    changing = any(event.may_change_run() for event in events)
    lock = "NO KEY UPDATE" if changing else "SHARE"
    calls = [event for event in events if "toolCallId" in event.metadata]
    return [
        lock_buckets(_buckets(events).union(granted)),
        (_ASK_EVENTS, _parts([(event.caller.organisation_id, event.key) for event in events])),
        (_ASK_RUNS.format(lock=lock), _parts(places)),
        (
            _ASK_CALLS.format(lock=lock),
            _parts([(each.caller.organisation_id, each.call_key) for each in calls]),
        ),
    ]


def answered(rows: Sequence[Rows]) -> Found:
    """What came of it."""
    _, known, runs, calls = rows
    learnt = _runs(runs)
    places = {(run.organisation_id, run.run_id): run for run in learnt}
    return Found(places, learnt, _calls(calls), _known(known))


def remembered(
    transaction: Transaction, events: Sequence[Incoming], known_runs: KnownRuns, known_calls: KnownCalls
) -> Found:
    """Nothing but the runs in memory, and the calls there whose outcome has come, all as they were seen last:
    other calls and the events are new until an index says otherwise. Copies, as far as they may change."""
    assert transaction.assumed is not None
    found = Found(known_runs.remembered(_places(events)))
    transaction.assumed.runs = {run.run_no: (run.state, run.identity) for run in found.runs.values()}
    for event in events:
        place = event.caller.organisation_id, event.body.runId
        run = found.runs.get(place)
        if run is None or event.call is not None:
            continue
        if event.ends_run:
            found.runs[place] = copy(run)
        elif (call := known_calls.find(run, event.call_hash)) is not None:
            found.calls[(run.run_no, event.call_hash)] = copy(call)
    return found


def tell(store: Database, run: KnownRun) -> None:
    """Read what a run tells of itself, which is large."""
    run.task, run.model, run.reason, run.agent_context = store.rows(_TELL, (run.run_no,))[0]
    run.is_untold = False


def _places(events: Iterable[Incoming]) -> set[Place]:
    found = {(event.caller.organisation_id, event.body.runId) for event in events}
    for event in events:
        found |= {(event.caller.organisation_id, name) for name in event.named_runs}
    return found


def _buckets(events: Iterable[Incoming]) -> set[str]:
    """The rate counts that the events may be held against."""
    found: set[str] = set()
    for event in events:
        if (evaluated := event.evaluated) is not None:
            matches = (*evaluated.evaluation.matches, *evaluated.evaluation.shadow)
            policies = [match.policy for match in matches if match.policy.rate_limit is not None]
            found.update(bucket(policy, evaluated.call) for policy in policies)
    return found


def _parts(keys: Sequence[Place]) -> list[list[str]]:
    return [[first for first, _ in keys], [second for _, second in keys]]


def _keys(runs: Mapping[Place, KnownRun], events: Iterable[Incoming]) -> list[Key]:
    """What the events, and the calls that they are about, are found by."""
    keys: list[Key] = []
    for event in events:
        keys.append((EVENTS, event.event_hash))
        if "toolCallId" in event.metadata:
            run = runs.get((event.caller.organisation_id, event.body.runId))
            if run is not None:
                keys.append((run.run_no, event.call_hash))
    return keys


def _known(rows: Rows) -> dict[int, KnownEvent]:
    """By the hash of the event's id."""
    return {
        id_hash: KnownEvent(owner, name, bytes(receipt), number, None if body is None else bytes(body))
        for id_hash, owner, name, receipt, number, body in rows
    }


def _runs(rows: Rows) -> list[KnownRun]:
    runs = []
    for *columns_of_it, told in rows:
        run = KnownRun(*columns_of_it)
        run.is_untold = told > sum(getattr(run, name) is not None for name in _TOLD)
        runs.append(run)
    return runs


def _calls(rows: Rows) -> dict[tuple[int, int], CallRow]:
    """By run and hash of the call's id."""
    calls = [CallRow(*row) for row in rows]
    return {(call.run_no, call.call_hash): call for call in calls}
