"""What becomes of one tool call: passed on, refused, or held until a person has decided.

Asks the service, and lets a call through on `allowed` alone; whatever goes wrong on the way is a refusal.
Knows the protocol's answers, not how they travel.

While a call is held, the person at the client is told that a reviewer decides and where; nothing said there
approves. A client of 2026-07-28 gets `input_required` with a `requestState`: a random name of a call that the
proxy remembers, which ends with this process, serves only the same name and arguments, lapses, and is taken
once - it says nothing, so there is nothing in it to forge.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from governance_client import ToolDecision
from governance_client.adapters.mcp_results import failure, problem, reported

from api.mcp_proxy.message import RpcMessage, near_miss
from api.mcp_proxy.tool_call import APPROVAL, ProxiedCall
from api.mcp_proxy.tools.definitions import Catalogue, Definition, Standing, declared_arguments, digest
from api.mcp_proxy.tools.proposal import left_out, proposal

STATE: Final = "governance."
"""What the proxy's own request states begin with."""
STATE_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 10_000
PROGRESS_SECONDS: Final = 10.0
QUICKEST_SECONDS: Final = 0.5
"""In which nobody reads a question: a client without a person says no to each by itself."""


_T = TypeVar("_T")


class ServiceRun(Protocol):
    """The run of this session at the service. `client`: what the client calls itself, once that is known."""

    client: str | None

    async def check(
        self, tool: str, arguments: dict[str, Any], tool_call_id: str, definition: Definition
    ) -> ToolDecision:
        """What the service says now; `definition` is what the server says of the tool."""

    async def wait(self, decision: ToolDecision, seconds: float) -> ToolDecision:
        """The decision of a person, or as it is after so long."""

    async def propose(self, body: bytes) -> Mapping[str, Standing]:
        """What the service says of the definitions in a proposal, by their digests."""

    def completed(self, decision: ToolDecision, output: Any) -> None: ...

    def failed(self, decision: ToolDecision, error: str) -> None: ...


class PersonAtClient(Protocol):
    """How the client lets somebody be told that a call waits."""

    def elicitation(self) -> dict[str, Any] | None:
        """The ways to ask a person that it named at its handshake; None where it has none."""

    async def elicit(self, params: dict[str, Any]) -> str:
        """Asks, and gives the person's action; ends with the answer, or by being cancelled."""

    async def progress(self, token: str | int, progress: float, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PassOn:
    """The call may be made with this message."""

    message: RpcMessage
    decision: ToolDecision


@dataclass(frozen=True, slots=True)
class AnswerItself:
    """The call is answered by the proxy with this result."""

    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """A call whose outcome was not handed out yet."""

    tool_call_id: str
    state: str | None
    """The request state with which the client was asked about it."""
    until: float


@dataclass(slots=True)
class Governor:
    """See the module. `wait_seconds` is how long a call is held before the client hears that it is still
    open."""

    run: ServiceRun
    catalogue: Catalogue
    server_name: str
    wait_seconds: float
    strict: bool = False
    _open: dict[str, _OpenCall] = field(default_factory=dict)
    """By digest: the same call again goes on with it, and takes it from here."""
    _passed: dict[tuple[str, str], str] = field(default_factory=dict)
    """`toolCallId` of calls that the server wants continued, by the digest and its own request state."""
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    def tool_name(self, name: str) -> str:
        """From the name at the server to the one that the service and its policies know."""
        return f"mcp__{self.server_name}__{name}"

    async def decide(self, call: ProxiedCall, person: PersonAtClient) -> PassOn | AnswerItself:
        standing = self.catalogue.standing(call.name)
        if standing == "changed" or (self.strict and standing == "new"):
            return refusal(call, self._held_back(call.name, _WHY[standing]))
        if (meant := self.catalogue.almost(call.name)) is not None:
            return refusal(call, _MISNAMED.format(name=call.name, right=meant))
        if near := near_miss(call.arguments, declared_arguments(self.catalogue.get(call.name))):
            return refusal(call, _MISWRITTEN.format(name=call.name, wrong=near[0], right=near[1]))
        answers_us = (call.request_state or "").startswith(STATE)
        goes_on = (answers_us or not call.continues) and call.digest in self._open
        tool_call_id = self._answered_call(call) if answers_us else self._call_id(call)
        if tool_call_id is None:
            return refusal(call, NOT_OF_THIS_CALL)
        if answers_us and call.action != "accept":
            return refusal(call, GIVEN_UP)
        state: str | None = None
        handed_out = False
        try:
            decision = await self._ask(call, tool_call_id)
            if goes_on and decision.allowed and decision.approval_id is None:
                # Decided when it was left: by what the run had read then, and by no person.
                tool_call_id = secrets.token_hex(16)
                decision = await self._ask(call, tool_call_id)
            if decision.waiting and not answers_us and call.modern_elicitation is not None:
                state = STATE + secrets.token_urlsafe(32)
                return AnswerItself(input_required(decision, call.modern_elicitation, state))
            if decision.waiting:
                given_up, decision = await self._wait(call, decision, person)
                if given_up:
                    handed_out = True
                    return refusal(call, GIVEN_UP)
            handed_out = decision.status not in ("awaiting_approval", "unavailable")
            if decision.allowed:
                return PassOn(call.for_server(without_state=answers_us), decision)
            return refusal(call, _told(decision))
        finally:
            if not handed_out:
                self._keep_open(call, tool_call_id, state)

    def held_after_all(self, call: ProxiedCall, passed: PassOn) -> AnswerItself | None:
        """The refusal of a call whose tool changed while it was decided; the decision is for the same call
        once a person has looked at the tool."""
        standing = self.catalogue.standing(call.name)
        if standing != "changed" and not (self.strict and standing == "new"):
            return None
        self._keep_open(call, passed.decision.tool_call_id, None)
        return refusal(call, self._held_back(call.name, _WHY[standing]))

    def hurry(self) -> None:
        """Nobody waits any more: what is held is answered as still open."""
        self._gone.set()

    def answered(self, call: ProxiedCall, decision: ToolDecision, message: RpcMessage) -> None:
        """The server's answer to a call that was passed on, for the record."""
        body = message.body.get("result")
        if not isinstance(body, dict):
            self.run.failed(decision, problem(message.body.get("error", body)))
        elif call.modern and body.get("resultType") == "input_required":
            # Clients of before know of no such result, and show what else stands in it to their model.
            key = (call.digest, str(body.get("requestState", "")))
            _remember(self._passed, key, decision.tool_call_id)
        elif body.get("isError") is True:
            self.run.failed(decision, failure(body))
        else:
            self.run.completed(decision, reported(body))

    async def learn(self, definitions: Sequence[Definition], whole_at: int) -> None:
        """Takes the whole list of the server's tools, of which the service is told too."""
        body = proposal(self.server_name, definitions, self.tool_name)
        said = dict(await self.run.propose(body) if definitions else {})
        for each in left_out(definitions, self.tool_name):
            if self.catalogue.pins.standing(each) != "admitted":
                said[digest(each)] = "changed"  # for all that is known: a person has to look at it
        self.catalogue.learn(definitions, said, whole_at)

    # ---- which call it is ------------------------------------------------------------------------------

    def _call_id(self, call: ProxiedCall) -> str | None:
        """Of a call that goes on with one which the server has, or with an open one, or is new. None: it
        answers what nobody asked. INVARIANT: no policy sees answers, so they go to a server that asked."""
        if call.continues:
            return self._passed.pop((call.digest, call.request_state or ""), None)
        return (
            self._open.pop(call.digest).tool_call_id if call.digest in self._open else secrets.token_hex(16)
        )

    def _keep_open(self, call: ProxiedCall, tool_call_id: str, state: str | None) -> None:
        """The same call again goes on with it."""
        theirs = call.request_state or ""
        if call.continues and not theirs.startswith(STATE):
            _remember(self._passed, (call.digest, theirs), tool_call_id)
        else:
            until = time.monotonic() + STATE_SECONDS
            _remember(self._open, call.digest, _OpenCall(tool_call_id, state, until))

    def _answered_call(self, call: ProxiedCall) -> str | None:
        """Of a call that comes back with the proxy's own request state, which is taken by it."""
        found = self._open.get(call.digest)
        if found is None or found.state is None or found.until < time.monotonic():
            return None
        if not hmac.compare_digest(found.state.encode(), (call.request_state or "").encode(errors="replace")):
            return None
        return self._open.pop(call.digest).tool_call_id

    def _held_back(self, name: str, why: str) -> str:
        return _HELD_BACK.format(name=name, why=why, server=self.server_name)

    # ---- asking ----------------------------------------------------------------------------------------

    async def _ask(self, call: ProxiedCall, tool_call_id: str) -> ToolDecision:
        definition = self.catalogue.get(call.name)
        return await self.run.check(self.tool_name(call.name), call.arguments, tool_call_id, definition)

    # ---- while it is held ------------------------------------------------------------------------------

    async def _wait(
        self, call: ProxiedCall, decision: ToolDecision, person: PersonAtClient
    ) -> tuple[bool, ToolDecision]:
        """Whether the person at the client gave the call up, and the decision when the waiting ended."""
        async with contextlib.AsyncExitStack() as beside:

            def start(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
                task = asyncio.create_task(work)
                beside.push_async_callback(_cancelled, task)
                return task

            outcome = start(self.run.wait(decision, self.wait_seconds))
            gone = start(self._gone.wait())
            asked: asyncio.Task[str] | None = None
            if call.progress_token is not None:
                start(_tick(person, call.progress_token, decision))
            if not call.modern and (modes := person.elicitation()) is not None:
                asked = start(person.elicit(elicitation(decision, modes)))
                begun = time.monotonic()
                await asyncio.wait((outcome, asked, gone), return_when=asyncio.FIRST_COMPLETED)
                by_a_person = time.monotonic() - begun >= QUICKEST_SECONDS
                if not outcome.done() and by_a_person and _gave_up(asked):
                    return True, decision
            await asyncio.wait((outcome, gone), return_when=asyncio.FIRST_COMPLETED)
            return False, await outcome if outcome.done() else decision


def _gave_up(asked: asyncio.Task[str]) -> bool:
    """Whether the person at the client said no. A client that cannot ask leaves the call waiting."""
    return asked.done() and not asked.cancelled() and asked.exception() is None and asked.result() != "accept"


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    memory.pop(key, None)
    while len(memory) >= MOST_REMEMBERED:
        del memory[next(iter(memory))]
    memory[key] = value


async def _cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _tick(person: PersonAtClient, token: str | int, decision: ToolDecision) -> None:
    """Progress so small that whatever the server says later is more."""
    number = 0
    while True:
        number += 1
        await person.progress(token, number / 1_000_000, _waiting(decision))
        await asyncio.sleep(PROGRESS_SECONDS)


# ---- texts ---------------------------------------------------------------------------------------------

GIVEN_UP: Final = (
    "The person at this client did not want to wait for the approval, so the call was not made. Do not call"
    " again unless you are asked to."
)
NOT_OF_THIS_CALL: Final = (
    "The call was not made: its request state is not of this call, was used or has lapsed. Call again without"
    " one."
)
_MISNAMED: Final = (
    "The call of `{name}` was not made: there is no tool of this name, which some servers would take for"
    " `{right}`. Call `{right}`."
)
_MISWRITTEN: Final = (
    "The call of `{name}` was not made: it has no argument `{wrong}`, which some servers would take for"
    " `{right}`. Call again with `{right}` alone."
)
_HELD_BACK: Final = (
    "The call of `{name}` was refused: {why}. Neither waiting nor changing the call helps; ask the person who"
    " runs this client to look at the tool and to admit it (`governance mcp-proxy admit {server}`)."
)
_WHY: Final = {"changed": "its description changed since it was admitted", "new": "it was never admitted"}


def refusal(call: ProxiedCall, text: str) -> AnswerItself:
    """A tool's error: the model reads it, and the client goes on."""
    found: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    return AnswerItself({"resultType": "complete", **found} if call.modern else found)


def input_required(decision: ToolDecision, modes: dict[str, Any], state: str) -> dict[str, Any]:
    """What a client of 2026-07-28 answers by calling again with `state`."""
    asked = {"method": "elicitation/create", "params": elicitation(decision, modes)}
    return {"resultType": "input_required", "inputRequests": {APPROVAL: asked}, "requestState": state}


def elicitation(decision: ToolDecision, modes: dict[str, Any]) -> dict[str, Any]:
    """What the person at the client is asked: nothing that could approve, only whether to go on waiting."""
    text = (
        f"{_waiting(decision)} Accept to go on waiting for the reviewer; decline to give the call up."
        " Accepting does not approve it."
    )
    if "url" in modes and "form" not in modes and decision.approval_url:
        return {
            "mode": "url",
            "message": text,
            "url": decision.approval_url,
            "elicitationId": decision.approval_id,
        }
    return {"message": text, "requestedSchema": {"type": "object", "properties": {}}}


def _waiting(decision: ToolDecision) -> str:
    where = f" at {decision.approval_url}" if decision.approval_url else ""
    return f"A reviewer has to decide about `{decision.tool}`{where} (approval {decision.approval_id})."


def _told(decision: ToolDecision) -> str:
    if decision.agent_message != decision.reason:
        return decision.agent_message
    if decision.waiting:  # by a service that has no words for the model
        return f"{_waiting(decision)} It is still open; call again with the same arguments to go on."
    return decision.reason
