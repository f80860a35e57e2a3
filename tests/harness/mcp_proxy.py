"""A proxy whose client and server are the test itself: what it sends to either is looked at line by line.

    async with Proxy(run, [tool("echo")]) as proxy:
        await proxy.say(call(1, "echo", text="x"))
        assert (await proxy.to_server()) == ...
        await proxy.server_says({"id": 1, "result": {...}})
        assert (await proxy.to_client()) == ...

A list of tools is answered by the server itself unless `lists=False`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from governance_client import ToolDecision

from api.mcp_proxy.governor import Governor, ServiceRun
from api.mcp_proxy.message import RpcMessage
from api.mcp_proxy.relay import Relay
from api.mcp_proxy.tools.definitions import Catalogue, Definition
from api.mcp_proxy.tools.pin_file import PinFile

SECONDS = 60
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""`_meta` of every request of 2026-07-28, as mcp 2.3.0 sends it."""


def tool(name: str, description: str = "", **more: Any) -> Definition:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def call(id: str | int, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"id": id, "method": "tools/call", "params": params}


def elicits(**modes: Any) -> dict[str, Any]:
    """`_meta` of a client of 2026-07-28 that can ask a person."""
    return MODERN | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": modes}}


class ScriptedRun:
    """Decisions that a test sets: `now` for the question, `later` for who waits."""

    def __init__(self, status: Any = "allowed") -> None:
        self.client: str | None = None
        self.now: Any = status
        self.later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[str, dict[str, Any], str, dict[str, Any] | None]] = []
        self.outcomes: list[tuple[str, Any]] = []
        self.proposed: list[dict[str, Any]] = []
        self.said: dict[str, Any] = {}
        """What the service says of definitions, by their digests."""
        self._approvals: set[str] = set()
        """Calls that somebody was asked to decide."""

    async def check(
        self, tool: str, arguments: dict[str, Any], tool_call_id: str, definition: dict[str, Any]
    ) -> ToolDecision:
        self.asked.append((tool, arguments, tool_call_id, definition.get("annotations")))
        return self._decision(self.now, tool, tool_call_id)

    async def wait(self, decision: ToolDecision, seconds: float) -> ToolDecision:
        done, _ = await asyncio.wait((self.later,), timeout=seconds)
        status = self.later.result() if done else "awaiting_approval"
        return self._decision(status, decision.tool, decision.tool_call_id)

    async def propose(self, body: bytes) -> dict[str, Any]:
        self.proposed.append(json.loads(body))
        return self.said

    def completed(self, decision: ToolDecision, output: Any) -> None:
        self.outcomes.append((decision.tool_call_id, output))

    def failed(self, decision: ToolDecision, error: str) -> None:
        self.outcomes.append((decision.tool_call_id, error))

    @property
    def call_ids(self) -> list[str]:
        return [each[2] for each in self.asked]

    def _decision(self, status: Any, tool: str, tool_call_id: str) -> ToolDecision:
        url = "https://console.example/approvals?approvalId=apr_1"
        if status != "allowed":
            self._approvals.add(tool_call_id)
        approval = ("apr_1", url) if tool_call_id in self._approvals else (None, None)
        return ToolDecision(
            status, tool, "run-1", tool_call_id, f"{status}, it said", f"To the model: {status}.", *approval
        )


class Proxy:
    """See the module."""

    def __init__(
        self,
        run: ServiceRun,
        tools: Sequence[Definition] = (),
        *,
        pins: Path,
        wait: float = SECONDS,
        strict: bool = False,
        lists: bool = True,
    ) -> None:
        self.tools = list(tools)
        self.lists = lists
        self.warnings: list[str] = []
        self.pins = PinFile(pins, "fixture", first_sight=not strict)
        catalogue = Catalogue(self.pins)
        self.governor = Governor(run, catalogue, "fixture", wait, strict)
        self._from_client: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._from_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[bytes] = asyncio.Queue()
        self._to_server: asyncio.Queue[bytes] = asyncio.Queue()
        self.relay = Relay(self, self, catalogue, self.governor, self.warnings.append)

    async def __aenter__(self) -> Proxy:
        self._tasks = [
            asyncio.create_task(self.relay.serve_client(_lines(self._from_client))),
            asyncio.create_task(self.relay.serve_server(_lines(self._from_server))),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client_ends()
        self.server_ends()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*self._tasks)

    # ---- what the relay calls --------------------------------------------------------------------------

    async def write(self, line: bytes) -> None:
        self._to_client.put_nowait(line)

    async def send(self, message: RpcMessage) -> None:
        if self.lists and message.method == "tools/list":
            answer = {"jsonrpc": "2.0", "id": message.id, "result": {"tools": self.tools}}
            self._from_server.put_nowait(json.dumps(answer).encode())
        else:
            self._to_server.put_nowait(message.line)

    # ---- what a test calls -----------------------------------------------------------------------------

    async def say(self, body: dict[str, Any] | bytes) -> None:
        """The client says this."""
        self._from_client.put_nowait(_line(body))

    async def server_says(self, body: dict[str, Any] | bytes) -> None:
        self._from_server.put_nowait(_line(body))

    async def line_to_client(self) -> bytes:
        return await asyncio.wait_for(self._to_client.get(), SECONDS)

    async def line_to_server(self) -> bytes:
        return await asyncio.wait_for(self._to_server.get(), SECONDS)

    async def to_client(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.line_to_client())
        return found

    async def to_server(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.line_to_server())
        return found

    async def refusal(self) -> str:
        """The text of the tool error that the client gets next."""
        result = (await self.to_client())["result"]
        assert result["isError"] is True
        text: str = result["content"][0]["text"]
        return text

    async def nothing_reached_the_server(self) -> bool:
        """Whether a message that is sent now is the next thing that the server sees."""
        await self.say({"method": "notifications/marker"})
        return (await self.to_server())["method"] == "notifications/marker"

    async def until_asked(self, run: ScriptedRun, times: int = 1) -> None:
        async with asyncio.timeout(SECONDS):
            while len(run.asked) < times:
                await asyncio.sleep(0)

    def client_ends(self) -> None:
        self._from_client.put_nowait(None)

    def server_ends(self) -> None:
        self._from_server.put_nowait(None)


async def _lines(queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (line := await queue.get()) is not None:
        yield line


def _line(body: dict[str, Any] | bytes) -> bytes:
    return body if isinstance(body, bytes) else json.dumps({"jsonrpc": "2.0", **body}).encode()
