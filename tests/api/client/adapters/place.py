"""An agent on a running service, the people who watch it, and servers that are none."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Self

from governance_client import AsyncGovernance, ClientSettings

from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.running_service import Served

POLICIES = [
    on_tool("No wires", "block", "wire"),
    on_tool("Ask before paying", "require_approval", "pay"),
    on_tool("Label looks", "allow", "look", on="tool.completed", labels={"add": ["looked"]}),
    policy_body("No dropping", "block", where("inputPayload.really", "equals", True)),
    policy_body("No etc", "block", where("inputPayload.where.path", "starts_with", "/etc")),
    on_tool("Ask soon", "require_approval", "rent", approval={"expiresAfterSeconds": 600}),
]

PATIENCE = 60.0
_numbers = count(1)


def within(place: Place, job: Callable[[AsyncGovernance], Awaitable[Any]]) -> Any:
    """What a job gives that has a client while it lasts."""

    async def whole() -> Any:
        async with place.governance() as governance:
            return await job(governance)

    return asyncio.run(whole())


class Place:
    """An agent of its own on the shared service, and the people who watch it."""

    def __init__(self, service: Served) -> None:
        self.service = service
        self.agent_id = f"agent-{next(_numbers)}"

    def governance(self, **options: Any) -> AsyncGovernance:
        url = f"http://127.0.0.1:{self.service.port}"
        told = {"url": url, "api_key": self.service.api_key, "agent_id": self.agent_id, **options}
        return AsyncGovernance(ClientSettings(**told))

    def runs(self) -> list[Any]:
        """Those of this agent."""
        found = self._get(f"/v1/runs?agentId={self.agent_id}")
        return [self._get(f"/v1/runs/{each['runId']}") for each in found]

    def run(self) -> Any:
        """Its only one."""
        (found,) = self.runs()
        return found

    def pending(self) -> list[dict[str, Any]]:
        mine = {run["runId"] for run in self._get(f"/v1/runs?agentId={self.agent_id}")}
        return [each for each in self._get("/v1/approvals?status=pending") if each["runId"] in mine]

    async def reported(self, calls: int) -> list[dict[str, Any]]:
        """Its calls in all its runs, once there are that many."""
        until = time.monotonic() + PATIENCE
        while len(found := await asyncio.to_thread(self._calls)) < calls:
            assert time.monotonic() < until, f"only {len(found)} calls are on record"
            await asyncio.sleep(0.02)
        return found

    async def waiting(self, calls: int = 1) -> list[dict[str, Any]]:
        """What waits for a person, once that many calls do."""
        until = time.monotonic() + PATIENCE
        while len(found := await asyncio.to_thread(self.pending)) < calls:
            assert time.monotonic() < until, "nobody waits for an approval"
            await asyncio.sleep(0.02)
        return found

    async def person(self, verb: str, reason: str = "", calls: int = 1) -> None:
        """Resolves what waits, once that many calls do."""
        for approval in await self.waiting(calls):
            path = f"/v1/approvals/{approval['approvalId']}/{verb}"
            answer = await asyncio.to_thread(
                self.service.call, "reviewer", "POST", path, {"reason": reason} if reason else {}
            )
            assert answer.status_code == 200, answer.text

    def _calls(self) -> list[dict[str, Any]]:
        return [call for run in self.runs() for call in run["toolCalls"]]

    def _get(self, path: str) -> Any:
        return self.service.answered("admin", "GET", path)


GARBAGE = (b"", b"null", b"[]", b'{"toolCallStatus": "allowed"}', b"<html>allowed</html>", b"{" * 5000)


class Answering:
    """A server that is none: it answers everything alike."""

    status = 200

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def respond(self, method: str, path: str, key: str, body: bytes) -> tuple[int, bytes]:
        return self.status, self.answer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        respond = self.respond

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, answer = respond(self.command, self.path, self.headers["X-API-Key"], body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler


class Door(Answering):
    """A way to the service that is shut until it is opened: the service is away, and is back."""

    def __init__(self, service: Served) -> None:
        super().__init__()
        self.is_open = False
        self._service = service

    def respond(self, method: str, path: str, key: str, body: bytes) -> tuple[int, bytes]:
        if not self.is_open:
            return 503, b""
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        answer = self._service.http.request(method, path, content=body, headers=headers)
        return answer.status_code, answer.content
