"""A request of an agent host's hook: who asks, on behalf of which agent, for which call; and the events that
become of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from api.caller import Caller
from api.context import Context
from api.hosts.report import Host, Report, bounded
from api.http.problems import ApiError
from api.ingestion.event import EventRefused, Incoming
from api.ingestion.turns import LARGE
from engine.canonical_json import canonical_json

T = TypeVar("T")

ROOM: Final = 8
"""Of the largest body, the part that a call leaves free; by default that is more than the beginning of an
output takes, however it is written."""


class HookRequest(NamedTuple):
    """One request: who asks, on behalf of which agent, for which call."""

    caller: Caller
    context: Context
    host: Host
    report: Report
    agent_id: str
    call_id: str
    name: str
    """What its own events are named by, the same when the request is repeated."""
    at: str
    offline: bool
    size: int
    """Bytes of the body."""

    async def done(self, function: Callable[..., T], *arguments: Any) -> T:
        """See `done`."""
        return await done(self.context, self.caller, self.size, partial(function, *arguments))

    def need_room(self) -> None:
        """INVARIANT: what became of a call can be told, beside the arguments that it was asked with: a page
        would be read that labels nothing. Raises 413."""
        largest = self.context.settings.max_body_bytes
        most = largest - largest // ROOM
        if self.size > most and not self.offline:
            told = f"the call has more than {most:,} bytes, beside which there is no room for its output"
            raise ApiError("payload_too_large", told)

    def event(self, kind: str, name: str, at: str, metadata: Mapping[str, Any]) -> bytes:
        said: dict[str, Any] = {"host": self.host.name}
        if self.report.parent:
            said["parentRunId"] = self.report.parent
        said |= metadata
        if self.offline:
            said["decidedOffline"] = True
        return canonical_json(
            {
                "eventId": name,
                "runId": self.report.run_id,
                "agentId": self.agent_id,
                "timestamp": at,
                "eventType": kind,
                "metadata": said,
            }
        )

    async def tell(self, kind: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Record something new; returns its receipt."""
        raw = await self.done(self.event, kind, bounded(f"{self.name}:{kind}"), self.at, metadata)
        return await self.take(await self.context.intake.event(self.caller, raw))

    async def take(self, event: Incoming) -> dict[str, Any]:
        receipt: dict[str, Any] = msgspec.json.decode((await self.context.intake.answer(event)).content)
        return receipt

    async def is_first(self, kind: str, what: str, at: str, metadata: Mapping[str, Any]) -> bool:
        """Whether this call of the host is the one that takes what can be taken once; also when it says so
        again."""
        raw = self.event(kind, bounded(f"{kind}:{what}"), at, {"hostCallId": self.call_id, **metadata})
        try:
            event = await self.context.intake.event(self.caller, raw, taking=True)
            await self.context.intake.answer(event)
        except EventRefused as refused:
            if refused.code != "event_id_conflict":
                raise
            return False
        return True

    async def look(self, function: Any, *arguments: Any) -> Any:
        """The result of a function of `store/hook_calls.py` that reads of the run."""
        place = self.context.id_index, self.caller, self.report.run_id
        return await self.context.reads.read(self.caller, function, *place, *arguments)


async def done(context: Context, caller: Caller, size: int, work: Callable[[], T]) -> T:
    """The result of work that takes the longer the more a body of this size holds.

    INVARIANT: a body of the usual size never waits for a turn, in which it might be refused: a host goes
    ahead where its hook is answered with an error."""
    if size > LARGE:
        return await context.intake.turns.run(caller.key_id, work, size=size)
    return context.intake.processor_time.timed(caller.key_id, work)
