"""The run of one session at the service: begun with the first tool call, ended with the session.

A client that only lists tools leaves no run behind. Everything else is the client library's.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from governance_client import AsyncGovernance, ToolDecision

END_SECONDS: Final = 3.0


class SessionRun:
    """See the module; all that is told of the session is its task and who acts in it."""

    def __init__(self, governance: AsyncGovernance, agent_id: str, task: str | None) -> None:
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
