"""Whether calls and events are as the log says, read along with the records of some chains.

A lane numbers its rows after those of the lanes before, so both come in about the same order and a long
history needs little memory. Where the records of a chain's beginning are gone (`retention/`) the comparison
begins behind it; the calls from there are held against the digest that was made of them (`digest_of_calls`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import msgspec

from api.database.connection import Database
from api.database.models import numbers_of
from engine.canonical_json import canonical_json

PAGE: Final = 1_000
AHEAD: Final = 10_000
MOST_BYTES: Final = 2**24
"""Of what agents sent, in rows that are read at once, unless one of them has more."""
LONGEST_REASON: Final = 2_000
"""Characters of a reason that a record holds."""

_CALLS: Final = (
    "SELECT c.call_no, c.decided_at, c.audit_id, c.tool_call_id, c.tool_name, c.payload_digest,"
    " c.policy_revision, c.status, c.approval_id, c.action, c.policy_digest, c.reason, c.blocked_reason,"
    " c.matched, c.facts, r.run_id, r.agent_id, r.key_id, c.event_no FROM tool_calls c"
    " LEFT JOIN runs r ON r.run_no = c.run_no"
    " WHERE c.organisation_id = ? AND c.call_no > ? AND c.call_no <= ? ORDER BY c.call_no LIMIT ?"
)
_SIZES_OF_CALLS: Final = (
    "SELECT call_no, LENGTH(facts) + LENGTH(matched) + 2 * LENGTH(reason) FROM tool_calls"
    " WHERE organisation_id = ? AND call_no > ? AND call_no <= ? ORDER BY call_no LIMIT ?"
)
_WITH_EVENT: Final = frozenset(("decision", "event"))
"""Types of records that are written together with their event."""
_APPROVAL: Final = 8
"""Where its id is in such a row."""
_COVERED: Final = 18
"""Columns of such a row that a digest covers; what follows says only where others are."""
_RESOLVED: Final = frozenset((7, 11, 12))
"""And status and reasons, which its resolution changes."""
_LAST_CALL: Final = "SELECT MAX(call_no) FROM tool_calls WHERE call_no > ? AND call_no < ?"
_LAST_EVENT: Final = "SELECT MAX(event_no) FROM events WHERE event_no > ? AND event_no < ?"
_EVENTS: Final = (
    "SELECT e.event_no, e.received_at, e.event_id, e.body, r.run_id, r.agent_id, r.key_id FROM events e"
    " LEFT JOIN runs r ON r.run_no = e.run_no"
    " WHERE e.organisation_id = ? AND e.event_no > ? AND e.event_no <= ? ORDER BY e.event_no LIMIT ?"
)
_SIZES_OF_EVENTS: Final = (
    "SELECT event_no, LENGTH(body) FROM events"
    " WHERE organisation_id = ? AND event_no > ? AND event_no <= ? ORDER BY event_no LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class Begin:
    """The numbers of the last call and of the last event that are not compared with a record of a chain."""

    call_no: int
    event_no: int


def beginning(chain: int) -> Begin:
    """All are."""
    return Begin(numbers_of(chain) - 1, numbers_of(chain) - 1)


class _Along:
    """Rows of a table, taken as the records that were written with them come by: in about the same order."""

    def __init__(self, rows: Iterator[tuple[Any, ...]], key: Callable[[tuple[Any, ...]], Hashable]) -> None:
        """Each row begins with its number, when it was written, and its id; `key` tells them apart."""
        self._rows = rows
        self._key = key
        self._waiting: dict[Hashable, tuple[Any, ...]] = {}
        """Rows that were read and that no record has asked for yet."""

    def take(self, key: Hashable) -> tuple[Any, ...] | None:
        """The row of this key; None when it is gone, or more than `AHEAD` rows behind its record."""
        while key not in self._waiting and len(self._waiting) < AHEAD:
            row = next(self._rows, None)
            if row is None:
                break
            self._waiting[self._key(row)] = row
        return self._waiting.pop(key, None)

    def passed(self) -> list[tuple[Any, ...]]:
        """Rows that were read on the way and that no record has asked for."""
        return list(self._waiting.values())

    def finish(self) -> list[tuple[Any, ...]]:
        """All rows that no record has asked for."""
        return [*self._waiting.values(), *self._rows]


class CallsAndEvents:
    """One comparison, for these chains in their order. INVARIANT: what was written after it began is left to
    the next one."""

    def __init__(
        self,
        store: Database,
        organisation_id: str,
        chains: Collection[int],
        begin: Mapping[int, Begin] | None = None,
    ) -> None:
        self._store = store
        self._organisation_id = organisation_id
        begin = begin or {}
        calls, events = [], []
        for chain in sorted(chains):
            begins, beyond = begin.get(chain) or beginning(chain), numbers_of(chain + 1)
            calls.append((begins.call_no, self._last(_LAST_CALL, begins.call_no, beyond)))
            events.append((begins.event_no, self._last(_LAST_EVENT, begins.event_no, beyond)))
        # INVARIANT: what waits for its record has nothing left of what an agent may have made long.
        self._calls = _Along(map(_call, self._rows(_CALLS, _SIZES_OF_CALLS, calls)), itemgetter(2))
        # The id of an event that retention has deleted may come again, for another one.
        read = map(_event, self._rows(_EVENTS, _SIZES_OF_EVENTS, events))
        self._events = _Along(read, itemgetter(2, 1))
        self._unnoted: set[str] = set()
        """When events were written whose records do not name them."""
        self._wrong_runs: set[str] = set()
        self.events_gone = 0
        """Of how many events only the records are left."""
        self.last_gone = ""
        """When the newest of them came in."""
        self.last_call = -1
        """The highest number of a call that a record was about."""
        self.last_event = -1
        self.problems: list[str] = []

    def _last(self, statement: str, before: int, beyond: int) -> int:
        """The highest number that there is now."""
        ((last,),) = self._store.rows(statement, (before, beyond))
        return int(last or before)

    def _rows(self, statement: str, sizes: str, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        for first, last in spans:
            yield from _in_order(self._store, statement, sizes, self._organisation_id, first, last)

    def told(self, record: dict[str, Any], *, later: bool = False) -> None:
        """The next record of a chain that is about a call or an event. `later`: it was written after this
        began, so that its rows need not be among those that are read."""
        self._event_of(record, later)
        if record["type"] == "decision":
            self._decision(record, later)

    def _decision(self, record: dict[str, Any], later: bool) -> None:
        details, audit_id = record["details"], record["auditId"]
        approval_id = details.get("approvalId")
        row = self._calls.take(audit_id)
        call = f"the call `{record['toolCallId']}` of run `{record['runId']}`"
        if row is None:
            if later:
                return
            self.problems.append(f"{call}, decided by record `{audit_id}`, is gone")
            return
        self.last_call = max(self.last_call, row[0])
        _, at, _, tool_call_id, tool_name, digest, revision, status, approval, words, *run, event = row
        self._run_of(record, *run)
        expected = (record["toolCallId"], record["toolName"], record["policyRevision"], approval_id)
        same = (tool_call_id, tool_name, revision, approval) == expected
        same = same and str(digest).startswith(details["payloadDigest"])
        same = same and at == record["at"] and (event == row[0] or "bodyDigest" not in details)
        same = same and (approval_id is not None or status == record["decision"])
        if not same or words is None or not words.are_of(record):
            self.problems.append(f"{call} says something else than its record `{audit_id}`")

    def _run_of(self, record: dict[str, Any], run_id: Any, agent_id: Any, key_id: Any) -> None:
        """The run that a call or an event belongs to is the agent's and the key's that the record names."""
        said = (record["runId"], record["agentId"], record["actor"])
        if (run_id, agent_id, f"key:{key_id}") != said and record["runId"] not in self._wrong_runs:
            self._wrong_runs.add(record["runId"])
            self.problems.append(
                f"the run `{record['runId']}` is of another agent or API key than record"
                f" `{record['auditId']}` says"
            )

    def _event_of(self, record: dict[str, Any], later: bool) -> None:
        """Old events go with time, and a repeated one leaves no row; but one that was written with its record
        is as it was."""
        details = record.get("details") or {}
        if "bodyDigest" not in details:
            self._unnoted.add(record["at"])  # by a version that did not note it
            return
        row = self._events.take((details["eventId"], record["at"]))
        if row is None:
            if record["type"] in _WITH_EVENT and not later:
                self.events_gone += 1
                self.last_gone = max(self.last_gone, record["at"])
            return
        self.last_event = max(self.last_event, row[0])
        self._run_of(record, *row[4:])
        if row[3] != details["bodyDigest"]:
            self.problems.append(
                f"the body of event `{row[2]}` is not the one of record `{record['auditId']}`"
            )

    def finish(self) -> None:
        """What no record was about."""
        for row in self._calls.finish():
            self._never_decided(row)
        for row in self._events.finish():
            if row[1] not in self._unnoted:
                self.problems.append(f"the event `{row[2]}` was never recorded by this log")

    def finish_up_to(self, at: str) -> None:
        """The same of calls before the last that a record was about; what is behind it is left alone. Old
        versions noted no events: of those that are left it is enough that they came in before a time."""
        for row in self._calls.passed():
            if row[0] < self.last_call:
                self._never_decided(row)
        unnoted = (row[0] for row in self._events.passed() if row[1] <= at)
        self.last_event = max(self.last_event, *unnoted, -1)

    def _never_decided(self, row: tuple[Any, ...]) -> None:
        self.problems.append(f"the call `{row[3]}` (record `{row[2]}`) was never decided by this log")


def digest_of_calls(store: Database, organisation_id: str, first: int, last: int) -> tuple[int, str]:
    """How many calls have numbers behind the first up to the last, and what makes them known again.

    INVARIANT: it covers what records are compared with and what never changes; what became of an approval is
    compared with what its own records say.
    """
    digest, count = sha256(), 0
    for row in _in_order(store, _CALLS, _SIZES_OF_CALLS, organisation_id, first, last):
        kept = list(row[:_COVERED])
        if kept[_APPROVAL] is not None:
            kept = [value for place, value in enumerate(kept) if place not in _RESOLVED]
        digest.update(canonical_json(kept) + b"\n")
        count += 1
    return count, digest.hexdigest()


def _in_order(
    store: Database, statement: str, sizes: str, organisation_id: str, first: int, last: int
) -> Iterator[tuple[Any, ...]]:
    """The rows with numbers behind the first up to the last, some at a time, however long they are."""
    asked = first
    while page := store.rows(sizes, (organisation_id, asked, last, PAGE)):
        for end in _ends(page):
            yield from store.rows(statement, (organisation_id, asked, end, PAGE))
            asked = end


def _ends(page: list[tuple[Any, ...]]) -> Iterator[int]:
    """The last numbers of the parts in which rows of these numbers and sizes are read."""
    together = 0
    for (before, _), (_, size) in pairwise([(0, 0), *page]):
        if together and together + size > MOST_BYTES:
            yield before
            together = 0
        together += size
    yield page[-1][0]


@dataclass(frozen=True, slots=True)
class _Words:
    """The other columns of a call, as far as its record holds them too."""

    decided: tuple[str, str, list[str]]
    reason: str
    is_blocked_so: bool
    """Whether its reason is why it is blocked."""
    is_blocked: bool
    user: tuple[Any, Any]
    key: tuple[Any, Any]

    def are_of(self, record: dict[str, Any]) -> bool:
        """Whether they are what the record says. What an approval was resolved with takes the place of the
        reasons, and is compared there."""
        details = record["details"]
        blocked = self.is_blocked_so if record["decision"] == "blocked" else not self.is_blocked
        words = "approvalId" in details or (self.reason == record["reason"] and blocked)
        return words and (
            self.decided == (details["action"], details["policyDigest"], details["policyIds"])
            and self.user == (record.get("userId"), record.get("userEmail"))
            and self.key == (record.get("keyScopes"), record.get("delegationChain"))
        )


class _Facts(msgspec.Struct):
    """Those of a call that its record holds."""

    user: dict[str, Any] = {}
    key: dict[str, Any] = {}
    delegation: dict[str, Any] = {}


class _Match(msgspec.Struct, rename="camel"):
    policy_id: str


_facts: Final = msgspec.json.Decoder(_Facts).decode
_matches: Final = msgspec.json.Decoder(list[_Match]).decode


def _call(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """With its words; None where nobody but somebody by hand can have written what they are read from."""
    *ids, action, policy_digest, reason, blocked_reason, matched, facts = row[:15]
    words = None
    with contextlib.suppress(msgspec.DecodeError):
        known = _facts(facts)
        words = _Words(
            (action, policy_digest, [match.policy_id for match in _matches(matched)[:50]]),
            reason[:LONGEST_REASON],
            blocked_reason == reason,
            blocked_reason is not None,
            (known.user.get("id"), known.user.get("email")),
            (known.key.get("scopes") or None, known.delegation.get("chain")),
        )
    return (*ids, words, *row[15:])


def _event(row: tuple[Any, ...]) -> tuple[Any, ...]:
    number, at, event_id, body, *run = row
    return number, at, event_id, body_digest(body), *run


def body_digest(body: Any) -> str:
    """What a record says of the body of its event. Whoever changes one by hand may leave any type."""
    return sha256(body if isinstance(body, (bytes, memoryview)) else str(body).encode()).hexdigest()
