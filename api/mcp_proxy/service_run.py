"""The run of one session at the service: begun with the first tool call, ended with the session.

A client that only lists tools leaves no run behind. Everything else is the client library's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from governance_client import AsyncAgentRun, AsyncGovernance, ClientRequest, ToolDecision, Unreachable

from api.mcp_proxy.tools.definitions import Definition, Standing
from api.mcp_proxy.tools.proposal import standings

END_SECONDS: Final = 3.0
PROPOSE_SECONDS: Final = 5.0
MOST_OF_NAME: Final = 100
"""Characters of what a client calls itself that are told."""


class SessionRun:
    """See the module; all that is told of the session is its task, who acts in it, and by which client: its
    name without its version, so that an update is no other client."""

    def __init__(
        self, governance: AsyncGovernance, agent_id: str, task: str | None, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._governance = governance
        self._agent_id, self._task = agent_id, task
        self.client: str | None = None

    @cached_property
    def _run(self) -> AsyncAgentRun:
        client = None if self.client is None else self.client[:MOST_OF_NAME]
        return self._governance.run(self._task, agent_id=self._agent_id, host=client).begin()

    async def check(
        self, tool: str, arguments: dict[str, Any], tool_call_id: str, definition: Definition
    ) -> ToolDecision:
        annotations, schema = definition.get("annotations"), definition.get("inputSchema")
        decision = await self._run.check(
            tool,
            arguments,
            tool_call_id=tool_call_id,
            annotations=annotations if isinstance(annotations, dict) else None,
            input_schema=schema if isinstance(schema, dict) else None,
            wait=False,
        )
        return self._kept(decision)

    async def wait(self, decision: ToolDecision, seconds: float) -> ToolDecision:
        return self._kept(await self._run.wait(decision, seconds))

    def _kept(self, decision: ToolDecision) -> ToolDecision:
        """Which calls go on, and under which ids, the governor knows itself."""
        self._run.postponed(decision)
        return decision

    async def propose(self, body: bytes) -> dict[str, Standing]:
        """Tells the service what the tools of the server are; what it says of each definition, by its digest.
        Nothing, where it does not answer or knows no proposals: calls are asked about all the same."""
        request = ClientRequest("POST", "/v1/tool-proposals", body, PROPOSE_SECONDS)
        try:
            answer = await self._governance.request(request)
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
                if "_run" in vars(self):
                    await self._run.end()
                await self._governance.close()
