"""Refusals at the door, on record: whom the service knows and refused, what, and how often.

The first of a kind is recorded before it is answered. Those that follow within a minute are counted in memory
and recorded together when the minute is over, so that nobody fills the log, or the memory, by being refused.
Who is not known at all belongs to no organisation and has no record.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from api.caller import Caller
from api.clock import Clock
from api.database.outage import Outage
from api.database.transaction import Transaction
from api.database.writer import Writer

TYPE: Final = "request.refused"
"""Of the audit records."""
REFUSALS: Final = frozenset(
    {
        *("unauthenticated", "forbidden", "run_conflict", "event_id_conflict", "tool_call_conflict"),
        "pending_approvals",
    }
)
"""The problems that are refusals, by code or kind; others are mistakes."""
SECONDS: Final = 60.0
MOST_COUNTED: Final = 1_000
"""Callers and kinds of one organisation in a minute; what comes beyond is counted together. INVARIANT: what
is done in one organisation takes nothing from the record of another."""
LONGEST_REASON: Final = 500


class Refusal(Protocol):
    """A problem as it was answered; `kind` tells refusals with the same code apart."""

    code: str
    kind: str
    detail: str


class _Counted(msgspec.Struct):
    """What one caller was refused for one kind of reason since a moment."""

    organisation_id: str
    actor: str | None
    agent_id: str | None
    kind: str
    reason: str
    since: float
    routes: set[str] = msgspec.field(default_factory=set)
    unwritten: int = 0


class Refusals:
    """See the module. All of it runs on the event loop."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._counted: dict[tuple[str, str | None, str], _Counted] = {}
        self._singly: Counter[str] = Counter()
        """Organisation to how many of these are its own."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._outage = Outage("the record of refusals")

    async def note(self, caller: Caller, refusal: Refusal, route: str) -> None:
        """A caller was refused; `route` is one of the table, such as `POST /v1/halt`. Never raises."""
        if REFUSALS.isdisjoint((refusal.code, refusal.kind)) or not caller.organisation_id:
            return
        counted = self._of(caller, refusal)
        first = not counted.routes
        counted.routes.add(route)
        counted.unwritten += 1
        if first:
            await self._write([counted])

    def note_later(self, caller: Caller, refusal: Refusal, route: str) -> None:
        """The same without waiting for the record."""
        task = asyncio.get_running_loop().create_task(self.note(caller, refusal, route))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def write_due(self) -> None:
        """Record what was counted in minutes that are over."""
        now = self._clock()
        over = {key: counted for key, counted in self._counted.items() if counted.since <= now - SECONDS}
        await self._write([counted for counted in over.values() if counted.unwritten])
        for key, counted in over.items():
            if counted.unwritten:  # more came meanwhile, or nothing can be written: the next minute begins
                counted.since = now
            else:
                del self._counted[key]
        self._singly = Counter(organisation_id for organisation_id, _, _ in self._counted)

    async def close(self) -> None:
        """Record all that was counted."""
        await asyncio.gather(*self._under_way)
        await self._write([counted for counted in self._counted.values() if counted.unwritten])

    def _of(self, caller: Caller, refusal: Refusal) -> _Counted:
        """Where this refusal is counted."""
        organisation_id = caller.organisation_id
        counted = self._counted.get((organisation_id, caller.actor, refusal.kind))
        if counted is not None:
            return counted
        now, reason = self._clock(), refusal.detail[:LONGEST_REASON]
        if self._singly[organisation_id] < MOST_COUNTED:
            self._singly[organisation_id] += 1
            new = _Counted(organisation_id, caller.actor, caller.agent_id, refusal.kind, reason, now)
        else:
            new = _Counted(organisation_id, None, None, "others", "more callers than are counted singly", now)
        return self._counted.setdefault((organisation_id, new.actor, new.kind), new)

    async def _write(self, chosen: Sequence[_Counted]) -> None:
        """One record each; what cannot be written now stays counted."""
        if not chosen:
            return
        counts = [counted.unwritten for counted in chosen]
        for counted in chosen:
            counted.unwritten = 0
        try:
            await self._writer.write(partial(_record, chosen, counts))
        except Exception as error:
            for counted, count in zip(chosen, counts, strict=True):
                counted.unwritten += count
            self._outage.met(error)
        else:
            self._outage.over()


def _record(chosen: Sequence[_Counted], counts: Sequence[int], transaction: Transaction) -> None:
    for counted, count in zip(chosen, counts, strict=True):
        transaction.audit(
            counted.organisation_id,
            TYPE,
            actor=counted.actor,
            agentId=counted.agent_id,
            reason=counted.reason,
            details={"kind": counted.kind, "count": count, "routes": sorted(counted.routes)},
        )
