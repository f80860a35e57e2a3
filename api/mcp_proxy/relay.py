"""Between a client and a server: every message goes on as it came, but for what concerns tool calls.

Looks into `tools/call`, which the governor decides; into `tools/list`, whose definitions must be those that
were admitted; and into the client's handshake, for what it can. What cannot be read in one way alone, and
answers to nothing that was asked, go nowhere. Knows nothing of pipes, HTTP or the service.

INVARIANT: no `tools/call` reaches the server but as the governor's `PassOn`, and no definition reaches the
client that was not admitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from governance_client import ToolDecision

from api.mcp_proxy.governor import AnswerItself, Governor, PassOn, refusal
from api.mcp_proxy.message import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RpcMessage,
    UnreadableMessage,
    error,
    key_of,
    made,
    read,
    result,
)
from api.mcp_proxy.tool_call import ProxiedCall
from api.mcp_proxy.tools.definitions import Catalogue, Definition, digest
from api.mcp_proxy.tools.listing import ListFailed, definitions_of, whole_list
from api.mcp_proxy.tools.pin_file import PinError

FETCH_SECONDS = 60.0
"""How long the server may take to answer the proxy's own `tools/list`."""


class ServerSide(Protocol):
    """Where messages for the server go."""

    async def send(self, message: RpcMessage) -> None: ...


class ClientSide(Protocol):
    """Where lines for the client go."""

    async def write(self, line: bytes) -> None: ...


@dataclass(slots=True)
class _Pending:
    """A request of the client's that the server has, or that is being decided."""

    message: RpcMessage
    task: asyncio.Task[None] | None = None
    """Set while it is decided; then the server has not seen it."""
    passed: tuple[ProxiedCall, ToolDecision] | None = None
    given_up: bool = False
    """Cancelled at the server, which may answer all the same: that answer is for nobody, and nothing else may
    be asked under its id before."""


@dataclass(slots=True)
class Relay:
    client: ClientSide
    server: ServerSide
    catalogue: Catalogue
    governor: Governor
    warn: Callable[[str], None]
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _asked_client: dict[str, asyncio.Future[RpcMessage]] = field(default_factory=dict)
    _asked_server: dict[str, asyncio.Future[RpcMessage]] = field(default_factory=dict)
    """Requests of the proxy's own by their key; either side answers what it was asked, and no other."""
    _elicitation: dict[str, Any] | None = None
    _own: str = field(default_factory=lambda: f"governance-{secrets.token_hex(8)}-")
    """What the ids of requests to the client begin with; the server never sees one, so that it cannot ask
    under the same."""
    _number: int = 0
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _shown: set[asyncio.Task[None]] = field(default_factory=set)
    """Lists of tools on their way to the client."""

    # ---- from the client -------------------------------------------------------------------------------

    async def serve_client(self, lines: AsyncIterator[bytes]) -> None:
        """Until the client says no more, and everything it said before was decided or given up."""
        async for line in lines:
            if line.strip():
                try:
                    await self._from_client(read(line))
                except UnreadableMessage as unreadable:
                    await self.client.write(error(unreadable.id, unreadable.code, str(unreadable)))
        await self._decide_the_rest()

    async def _from_client(self, message: RpcMessage) -> None:
        if message.is_response:
            if (asked := self._asked_client.get(message.key)) is not None:
                _settle(asked, message)
            elif not message.key.startswith(self._own):  # an answer to what is not asked any more
                await self.server.send(message)
        elif message.is_request:
            await self._request(message)
        elif message.method == "notifications/cancelled":
            await self._cancel(message)
        elif message.method == "tools/call":
            raise UnreadableMessage("a tool call without `id` is passed to nobody: it could not be answered")
        else:
            await self.server.send(message)

    async def _request(self, message: RpcMessage) -> None:
        if message.key in self._pending:
            raise UnreadableMessage(f"the id `{message.key}` is in use", INVALID_REQUEST, message.id)
        self.governor.run.client = message.client_name or self.governor.run.client
        pending = self._pending[message.key] = _Pending(message)
        if message.method == "tools/call":
            try:
                call = ProxiedCall.of(message)
            except UnreadableMessage:
                del self._pending[message.key]
                raise
            pending.task = asyncio.create_task(self._govern(call, pending))
            return
        if message.method == "initialize":
            capabilities = message.params.get("capabilities")
            found = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
            self._elicitation = found if isinstance(found, dict) else None
            self.catalogue.changes += 1  # it may be another server by now, as behind an address
        await self.server.send(message)

    async def _cancel(self, message: RpcMessage) -> None:
        """Ends what is held here; of what the server has, the server is told."""
        key = key_of(message.params.get("requestId"))
        pending = self._pending.get(key)
        if pending is not None and pending.task is not None:
            del self._pending[key]
            pending.task.cancel()
            await asyncio.gather(pending.task, return_exceptions=True)
            return
        if pending is not None:
            self._pending[key] = _Pending(message, given_up=True)
            if pending.passed is not None:
                self.governor.run.failed(pending.passed[1], "cancelled by the client")
        await self.server.send(message)

    async def _decide_the_rest(self) -> None:
        """The client has gone: what it asked last is still decided, what waits for a person is given up."""
        self.governor.hurry()
        await asyncio.gather(
            *(each.task for each in self._pending.values() if each.task is not None), return_exceptions=True
        )

    # ---- tool calls ------------------------------------------------------------------------------------

    async def _govern(self, call: ProxiedCall, pending: _Pending) -> None:
        verdict = await self._verdict(call)
        with contextlib.suppress(OSError):  # either side has gone, which ends the session
            if isinstance(verdict, PassOn):
                pending.task, pending.passed = None, (call, verdict.decision)
                await self.server.send(verdict.message)
            else:
                self._pending.pop(call.message.key, None)
                await self.client.write(result(call.message.id, verdict.result))

    async def _verdict(self, call: ProxiedCall) -> PassOn | AnswerItself:
        """Whatever goes wrong on the way is a refusal."""
        try:
            await self._know(call)
            verdict = await self.governor.decide(call, self)
            if isinstance(verdict, PassOn) and not self.catalogue.is_complete:
                await self._know(call)
                return self.governor.held_after_all(call, verdict) or verdict
            return verdict
        except (ListFailed, PinError) as problem:
            return refusal(call, f"The call of `{call.name}` was refused: {problem}.")
        except Exception as problem:
            self.warn(f"`{call.name}` could not be governed: {type(problem).__name__}: {problem}")
            return refusal(call, f"The call of `{call.name}` was refused, because it could not be governed.")

    async def _know(self, call: ProxiedCall) -> None:
        """No call is decided before the server has said what its tools are. What does not stand as admitted
        may have been admitted at the service since."""
        async with self._listing:
            changes = self.catalogue.changes
            if not self.catalogue.is_complete:
                await self.governor.learn(await whole_list(self._ask_server, call.message), changes)
            elif self.catalogue.standing(call.name) != "admitted":
                await self.governor.learn(self.catalogue.all(), changes)

    async def _know_all(self, asked: RpcMessage, page: Sequence[Definition]) -> None:
        """A page of the list is shown only once all of the list is known, here and at the service."""
        async with self._listing:
            known = {digest(each) for each in self.catalogue.all()}
            if not self.catalogue.is_complete or not all(digest(each) in known for each in page):
                changes = self.catalogue.changes
                await self.governor.learn(await whole_list(self._ask_server, asked), changes)

    async def _ask_server(self, method: str, params: dict[str, Any]) -> RpcMessage:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                asked = made({"id": f"governance-{secrets.token_hex(8)}", "method": method, "params": params})
                return await self._ask(asked, self.server.send, self._asked_server)
        except TimeoutError:
            raise ListFailed("the server does not say what its tools are") from None

    async def _ask(
        self,
        message: RpcMessage,
        send: Callable[[RpcMessage], Awaitable[None]],
        waiting: dict[str, asyncio.Future[RpcMessage]],
    ) -> RpcMessage:
        """The answer to a request of the proxy's own."""
        answer: asyncio.Future[RpcMessage] = asyncio.get_running_loop().create_future()
        waiting[message.key] = answer
        try:
            await send(message)
            return await answer
        finally:
            del waiting[message.key]

    # ---- the person at the client ----------------------------------------------------------------------

    def elicitation(self) -> dict[str, Any] | None:
        return self._elicitation

    async def elicit(self, params: dict[str, Any]) -> str:
        self._number += 1
        asked = made({"id": f"{self._own}{self._number}", "method": "elicitation/create", "params": params})
        try:
            answer = await self._ask(asked, self._tell_client, self._asked_client)
        except asyncio.CancelledError:
            why = {"requestId": asked.id, "reason": "the approval was decided, or the call given up"}
            with contextlib.suppress(OSError):
                await self._tell_client(made({"method": "notifications/cancelled", "params": why}))
            raise
        found = answer.body.get("result")
        if not isinstance(found, dict):
            raise UnreadableMessage("the client could not ask")
        return str(found.get("action"))

    async def progress(self, token: str | int, progress: float, text: str) -> None:
        params = {"progressToken": token, "progress": progress, "message": text}
        await self._tell_client(made({"method": "notifications/progress", "params": params}))

    async def _tell_client(self, message: RpcMessage) -> None:
        await self.client.write(message.line)

    # ---- from the server -------------------------------------------------------------------------------

    async def serve_server(self, lines: AsyncIterator[bytes]) -> None:
        """Until the server says no more."""
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = read(line)
            except UnreadableMessage as unreadable:
                self.warn(f"a line of the server was not passed on: {unreadable}")
                continue
            if (passed := await self._from_server(message)) is not None:
                await self.client.write(passed)
        await asyncio.gather(*self._shown)
        for pending in self._pending.values():
            if pending.passed is not None:
                self.governor.run.failed(pending.passed[1], "the server ended without an answer")

    async def _from_server(self, message: RpcMessage) -> bytes | None:
        """The line that goes to the client, if any does."""
        if not message.is_response:
            if message.method == "notifications/tools/list_changed":
                self.catalogue.changes += 1
            return message.line
        if (asked := self._asked_server.get(message.key)) is not None:
            _settle(asked, message)
            return None
        if message.id is None:
            return message.line
        pending = self._pending.get(message.key)
        if pending is None or pending.task is not None:
            self.warn(
                f"an answer of the server to `{message.key}` was not passed on: nothing of this id was asked"
            )
            return None
        del self._pending[message.key]
        if pending.given_up:
            return None
        if pending.passed is not None:
            self._report(*pending.passed, message)
        elif pending.message.method == "tools/list":
            task = asyncio.create_task(self._show(pending.message, message, self.catalogue.changes))
            self._shown.add(task)
            task.add_done_callback(self._shown.discard)
            return None
        return message.line

    def _report(self, call: ProxiedCall, decision: ToolDecision, answer: RpcMessage) -> None:
        """An outcome that cannot be reported as it is is the client's all the same. INVARIANT: it is reported
        then that there was one: a server chooses what cannot be read, and its call gives labels."""
        try:
            self.governor.answered(call, decision, answer)
        except Exception as problem:
            name = type(problem).__name__
            self.warn(f"the outcome of `{call.name}` was not reported as it is: {name}: {problem}")
            with contextlib.suppress(Exception):
                self.governor.run.completed(decision, {"unreadable": name})

    async def _show(self, asked: RpcMessage, answer: RpcMessage, changes: int) -> None:
        try:
            line = await self._listed(asked, answer, changes)
        except Exception as problem:
            self.warn(f"the list of tools could not be looked at: {type(problem).__name__}: {problem}")
            line = error(answer.id, INTERNAL_ERROR, "the list of tools was not passed on")
        with contextlib.suppress(OSError):
            await self.client.write(line)

    async def _listed(self, asked: RpcMessage, answer: RpcMessage, changes: int) -> bytes:
        """The list, as it is after so many changes, as it came where all of it was admitted; else as it was
        admitted."""
        body = answer.body.get("result")
        if not isinstance(body, dict):
            return answer.line
        try:
            found = definitions_of(answer)
            if "cursor" not in asked.params and "nextCursor" not in body:
                await self.governor.learn(found, changes)
            else:
                await self._know_all(asked, found)
            shown = self.catalogue.shown(found)
        except (ListFailed, PinError) as problem:
            self.warn(str(problem))
            return error(answer.id, INTERNAL_ERROR, f"the list of tools was not passed on: {problem}")
        if shown == found:
            return answer.line
        self.warn("the list of tools is shown as it was admitted; see `governance mcp-proxy admit`")
        return made({**answer.body, "result": {**body, "tools": shown}}).line


def _settle(asked: asyncio.Future[RpcMessage], answer: RpcMessage) -> None:
    if not asked.done():
        asked.set_result(answer)
