"""One session from its first message to its end: who ends it, and in which order the others follow.

The client ends it by closing its output; then the server's input is closed, and what it still answers is
passed on. The server ends it by ending; then so does the proxy. A signal ends both.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Protocol

from api.mcp_proxy.pipes import PATIENCE, LineTooLong
from api.mcp_proxy.relay import Relay

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndingServer(Protocol):
    """The server as the session's end sees it."""

    def lines(self) -> AsyncIterator[bytes]: ...

    async def end(self) -> int: ...

    def interrupt(self) -> None: ...


async def hold(relay: Relay, client: AsyncIterator[bytes], server: EndingServer) -> int:
    """Until either side ends; the exit code of the server."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    from_client = asyncio.create_task(relay.serve_client(client))
    from_server = asyncio.create_task(relay.serve_server(server.lines()))
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((from_client, from_server, stop), return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            server.interrupt()
        code = await server.end()
        await asyncio.wait((from_server,), timeout=PATIENCE)
        return code
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        for task in (from_client, from_server, stop):
            task.cancel()
        for ended in await asyncio.gather(from_client, from_server, stop, return_exceptions=True):
            if isinstance(ended, LineTooLong):
                relay.warn(str(ended))
            elif isinstance(ended, Exception) and not isinstance(ended, OSError):
                raise ended
