"""A request of AuthZEN: who sends which body, and whether what it evaluates is the call of an approval."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from api import clock
from api.caller import Caller
from api.context import Context
from api.http import bodies
from api.http.exchange import Reply, Values
from api.ingestion.authzen import (
    SAME_SECONDS,
    Evaluation,
    Place,
    a_day_after,
    agent_of,
    bad_request,
    event_of_evaluation,
    is_said,
    payload_of,
    place_of,
    refuse_misspelt,
    run_of,
    tool_of,
)
from api.ingestion.event import Incoming
from api.store import recorded_calls
from api.store.call_facts import payload_digest
from api.store.review import reading

T = TypeVar("T")


class AccessQuery(NamedTuple):
    """One request of a policy enforcement point."""

    caller: Caller
    values: Values
    context: Context

    @property
    def now(self) -> str:
        return clock.iso(self.context.clock())

    @property
    def is_dear(self) -> bool:
        """Whether the work for it is done in turns, and one after the other: what a body says for all of its
        evaluations is part of each."""
        return self.context.intake.is_dear(self.caller.key_id, len(self.values.body))

    async def done(self, work: Callable[[], T]) -> T:
        return await self.context.intake.done(self.caller.key_id, len(self.values.body), work)

    async def body(self, schema: str) -> dict[str, Any]:
        return await self.done(partial(_checked, schema, self.values.body))

    async def event(self, evaluation: Evaluation, number: int) -> Incoming:
        """The event of the `number`th of many evaluations (0: of a single one); of the call of an approval,
        if it refers to one."""
        approved = await self._approved(evaluation)
        sent = self.values.headers.get("x-request-id")
        call_id, event_id, at = self.context.ids("call"), self.context.ids("evl"), self.now

        def made() -> bytes:
            place = approved or place_of(evaluation, number, self.caller, sent, call_id)
            return event_of_evaluation(evaluation, place, self.caller, event_id, at)

        with bad_request():
            return await self.context.intake.event(self.caller, await self.done(made))

    async def _approved(self, evaluation: Evaluation) -> Place | None:
        """Run and tool call of the approval that an evaluation refers to; None when it is not of this call
        and run, was used or given too long ago, and then nothing follows from it."""
        approval_id = evaluation.get("context", {}).get("approval", {}).get("id")
        if approval_id is None or not await self.is_bound(approval_id, evaluation, to_use=True):
            return None
        found = await self.approval(approval_id)
        said = agent_of(evaluation, self.caller), run_of(evaluation, self.caller)
        if found is None or (found["agentId"], found["runId"]) != said or self._is_over(found):
            return None
        return found["runId"], found["toolCallId"]

    async def approval(self, approval_id: str) -> dict[str, Any] | None:
        """None: there is none that the caller may see."""
        return await self.context.reads.read(self.caller, reading.find_approval, self.caller, approval_id)

    async def is_asked_again(self, place: Place, evaluation: Evaluation) -> bool:
        """Whether a call was asked about for the same subject and action, and the same where policies
        look."""
        of_call, owner = recorded_calls.asserted_of_call, self.caller.organisation_id
        asserted = await self.context.reads.read(self.caller, of_call, self.context.id_index, owner, *place)

        def is_same() -> bool:
            return asserted is not None and is_said(asserted, evaluation, self._roots())

        return await self.done(is_same)

    async def is_bound(self, approval_id: str, evaluation: Evaluation, *, to_use: bool = False) -> bool:
        """Whether an approval was asked for this subject, tool, payload and action; `to_use` it, also for the
        same where policies look, and it is for one execution, of which nobody has told yet."""
        owner = self.caller.organisation_id
        bound = await self.context.reads.read(self.caller, recorded_calls.bound_to, owner, approval_id)
        if bound is None:
            return False
        digest, asserted, is_made = bound

        def is_same() -> bool:
            asked = payload_digest(tool_of(evaluation), payload_of(evaluation))
            read = self._roots() if to_use else ()
            return digest.partition(":")[0] == asked and is_said(asserted, evaluation, read)

        return not (to_use and is_made) and await self.done(is_same)

    def _roots(self) -> Container[str]:
        """Where policies look."""
        return self.context.live.ruleset(self.caller.organisation_id).roots

    async def may_ask_anew(self, evaluations: list[Evaluation]) -> bool:
        """Whether one of many may be asked anew, as `is_of_before` has it: its request id is that of a call
        which is known. INVARIANT: it is behind none that stands behind it, whose decision may depend on
        it."""
        sent, owner = self.values.headers.get("x-request-id"), self.caller.organisation_id
        if sent is None:
            return False

        def places() -> set[Place]:
            numbered = enumerate(evaluations, 1)
            return {place_of(each, number, self.caller, sent, "") for number, each in numbered}

        find, index = recorded_calls.is_any_known, self.context.id_index
        found: bool = await self.context.reads.read(self.caller, find, index, owner, await self.done(places))
        return found

    async def is_of_before(self, said: Mapping[str, Any]) -> bool:
        """Whether the request id was that of a call which was made since, or so long ago that it is asked
        again, and not sent again. What a person has decided counts for as long as it does by the name of its
        approval."""
        if said.get("approvalId") is None and said["decidedAt"] < clock.iso(
            self.context.clock() - SAME_SECONDS
        ):
            return True
        return await self.is_spent(said)

    async def is_spent(self, said: Mapping[str, Any]) -> bool:
        """Whether a call was made since, or a person decided it too long ago."""
        if "completion" in said:
            return True
        approval_id = said.get("approvalId")
        approval = None if approval_id is None else await self.approval(approval_id)
        return approval is not None and self._is_over(approval)

    def _is_over(self, approval: Mapping[str, Any]) -> bool:
        """Whether what a person has decided does not count any more."""
        resolved = approval["resolvedAt"]
        return resolved is not None and a_day_after(resolved) < self.now

    def without_headers(self) -> AccessQuery:
        """The same words, as if no request id had been sent with them."""
        return self._replace(values=replace(self.values, headers={}))

    def reply(
        self, body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """With the caller's own `X-Request-Id`, whatever characters it is of."""
        sent = self.values.headers.get("x-request-id", "")
        echoed = {"X-Request-Id": sent} if sent and sent.isascii() and sent.isprintable() else {}
        return Reply(body, status, {**(headers or {}), **echoed})


def _checked(schema: str, raw: bytes) -> dict[str, Any]:
    with bad_request():
        value: dict[str, Any] = bodies.decode_unique(raw)
        bodies.validate(schema, value)
        refuse_misspelt(value)
        bodies.check_digits(raw, "")
    return value
