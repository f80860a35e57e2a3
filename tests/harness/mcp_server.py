"""An MCP server made with the package `mcp`, as a process: `python -m tests.harness.mcp_server [http]`.

It speaks both generations of the protocol, over its input and output, or over HTTP on a port that it prints.
"""

from __future__ import annotations

import os
import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server: MCPServer = MCPServer("fixture")


@server.tool(description="Says it back.", annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    return text


@server.tool(description="Moves money.")
def wire(amount: float) -> str:
    return f"moved {amount}"


@server.tool(description="Tells that it runs, until it is cancelled.")
async def hang(ctx: Context) -> str:
    await ctx.report_progress(1)
    await anyio.sleep_forever()
    return ""


@server.tool(description="Fails.")
def fail() -> str:
    raise ValueError("it failed")


@server.tool(description="Ends the server.")
def crash() -> str:
    os._exit(7)


@server.tool(description="What the server sees of its environment.")
def variables() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("GOVERNANCE_"))


@server.tool(description="Tells of its progress.")
async def work(steps: int, ctx: Context) -> str:
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    return "done"


def main() -> None:
    if sys.argv[1:] == ["http"]:
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        uvicorn.Server(config).run([listener])
    else:
        server.run()


if __name__ == "__main__":
    main()
