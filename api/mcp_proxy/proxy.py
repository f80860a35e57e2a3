"""A proxy put together for one server and served on this process's input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from governance_client import AsyncGovernance, ClientSettings

from api.mcp_proxy.governor import Governor
from api.mcp_proxy.http_server import McpEndpoint
from api.mcp_proxy.pipes import ByteInput, ByteOutput, McpProcess
from api.mcp_proxy.relay import Relay
from api.mcp_proxy.server_name import checked_name
from api.mcp_proxy.service_run import SessionRun
from api.mcp_proxy.session import hold
from api.mcp_proxy.tools.definitions import Catalogue
from api.mcp_proxy.tools.pin_file import PinFile

AGENT_ID = "mcp-client"
"""Who acts, where nobody says."""
CONNECT_SECONDS = 30.0


class StartError(Exception):
    """The server cannot be started; the text says why."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What a proxy is told. Either `command` or `url` names the server."""

    service: ClientSettings
    server_name: str
    pins: Path
    wait_seconds: float
    command: tuple[str, ...] = ()
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    task: str | None = None
    strict: bool = False


async def serve(settings: ProxySettings, warn: Callable[[str], None]) -> int:
    """Until the session ends; the exit code of the server. Raises StartError, PinError, ValueError."""
    name = checked_name(settings.server_name)
    catalogue = Catalogue(PinFile(settings.pins, name, first_sight=not settings.strict))
    async with _server(settings, catalogue, warn) as server:
        run = SessionRun(
            AsyncGovernance(settings.service), settings.service.agent_id or AGENT_ID, settings.task, warn
        )
        governor = Governor(run, catalogue, name, settings.wait_seconds, settings.strict)
        relay = Relay(ByteOutput(sys.stdout.fileno()), server, catalogue, governor, warn)
        try:
            return await hold(relay, ByteInput(sys.stdin.fileno()).lines(), server)
        finally:
            await run.end()


@asynccontextmanager
async def _server(
    settings: ProxySettings, catalogue: Catalogue, warn: Callable[[str], None]
) -> AsyncIterator[McpEndpoint | McpProcess]:
    if settings.url is None:
        try:
            yield await McpProcess.start(settings.command, os.environ)
        except OSError as error:
            raise StartError(f"`{settings.command[0]}` cannot be started: {error.strerror}") from None
        return
    if httpx.URL(settings.url).scheme not in ("http", "https"):
        raise StartError(f"`{settings.url}` is no address; write for example https://mcp.example/mcp")
    timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
    limits = httpx.Limits(max_connections=None)
    local = httpx.URL(settings.url).host in ("localhost", "127.0.0.1", "::1")  # reached without proxies
    async with httpx.AsyncClient(
        headers=dict(settings.headers), timeout=timeout, limits=limits, trust_env=not local
    ) as http:
        yield McpEndpoint(settings.url, http, catalogue.get, warn)
