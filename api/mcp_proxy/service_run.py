"""The run of one session at the service: begun with the first tool call, ended with the session.

A client that only lists tools leaves no run behind. Everything else is the client library's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from governance_client import AsyncGovernance, ToolDecision
from governance_client.exchange import ClientRequest, ClientResponse, Flow, Unreachable

from api.mcp_proxy.tools.definitions import Standing
from api.mcp_proxy.tools.proposal import standings

END_SECONDS: Final = 3.0
PROPOSE_SECONDS: Final = 5.0


class SessionRun:
    """See the module; all that is told of the session is its task and who acts in it."""

    def __init__(
        self, governance: AsyncGovernance, agent_id: str, task: str | None, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._governance = governance
        self._run = governance.run(task=task, agent_id=agent_id)
        self._begun = False

    async def check(
        self, tool: str, arguments: dict[str, Any], tool_call_id: str, annotations: dict[str, Any] | None
    ) -> ToolDecision:
        if not self._begun:
            self._begun = True
            self._run.begin()
        return await self._run.check(
            tool, arguments, tool_call_id=tool_call_id, annotations=annotations, wait=False
        )

    async def wait(self, decision: ToolDecision, seconds: float) -> ToolDecision:
        return await self._run.wait(decision, seconds)

    async def propose(self, body: bytes) -> dict[str, Standing]:
        """Tells the service what the tools of the server are; what it says of each definition, by its digest.
        Nothing, where it does not answer or knows no proposals: calls are asked about all the same."""
        request = ClientRequest("POST", "/v1/tool-proposals", body, PROPOSE_SECONDS)
        try:
            answer = await self._governance.core.driver.run_async(_once(request))
            if answer.status == 200:
                return standings(answer.json())
            if answer.status != 404:
                self._warn(f"the service does not take the tools of this server: {answer.problem()}")
        except (Unreachable, ValueError) as problem:
            self._warn(f"the service was not told of the tools of this server: {problem}")
        return {}

    def completed(self, decision: ToolDecision, output: Any) -> None:
        self._run.completed(decision, output)

    def failed(self, decision: ToolDecision, error: str) -> None:
        self._run.failed(decision, error)

    async def end(self) -> None:
        """What is not reported yet is, where the service takes it before the client loses its patience."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                if self._begun:
                    await self._run.end()
                await self._governance.close()


def _once(request: ClientRequest) -> Flow[ClientResponse]:
    response: ClientResponse = yield request
    return response
