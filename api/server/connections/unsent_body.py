"""An answer before the client has sent the body, which it asks about first (`Expect: 100-continue`).

Whether the body still comes, nobody knows. Where it does not, a proxy written in Go before 1.22.5
(CVE-2024-24791), such as the Caddy of Debian 12, takes the connection for free, and the next request, of
somebody else, would be read as that body: for as long as a request may take. So such an answer says that it
is the last of its connection. What the client sends all the same is read to its end, since who is cut off
while it sends may lose the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Any, Send], Awaitable[None]]


def last_of_its_connection(cycle: Any, app: Application, ends: Callable[[], None]) -> Application:
    """The application, for a request of a client that waits to be asked for its body. `ends` is told when it
    was answered without."""

    async def answered(scope: Any, receive: Any, send: Send) -> None:
        async def announced(message: Any) -> None:
            if not (cycle.waiting_for_100_continue and cycle.more_body and cycle.keep_alive):
                await send(message)
                return
            headers = [*message.get("headers", ()), (b"connection", b"close")]
            await send({**message, "headers": headers})
            cycle.keep_alive = True  # the server would close at once
            ends()

        await app(scope, receive, announced)

    return answered
