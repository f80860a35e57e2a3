"""The client session of the `mcp` package under test, with a server of the same package in memory.

There is no model in it, so the driver is one: it calls what the script says, and takes results as they come.
"""

from __future__ import annotations

from governance_client import AsyncGovernance
from governance_client.adapters.mcp import govern
from mcp import Client
from mcp.server import MCPServer

from tests.api.client.adapters.driver import DONE, TASK, Outcome, OutOfOrder, Script, Tools


class McpSession:
    name = "mcp"
    pauses, survives, knows_task = False, True, False

    async def run(
        self, governance: AsyncGovernance, script: Script, tools: Tools, *, breaks: bool = False
    ) -> Outcome:
        server = MCPServer("tools")
        for function in tools.functions:
            server.tool()(function)
        answers = []
        async with governance.run(task=TASK):
            async with Client(server) as client:
                govern(client.session)
                for calls in script:
                    for tool, arguments in calls:
                        result = await client.call_tool(tool, arguments)
                        answers.append("".join(getattr(part, "text", "") for part in result.content))
            if breaks:
                raise OutOfOrder
        return Outcome(answers, DONE)

    async def pause(self, governance: AsyncGovernance, script: Script, tools: Tools) -> str:
        raise NotImplementedError

    async def resume(self, governance: AsyncGovernance, script: Script, tools: Tools, saved: str) -> Outcome:
        raise NotImplementedError
