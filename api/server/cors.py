"""The web front end of `GOVERNANCE_FRONTEND_URL` may call the API from its own origin (CORS).

No other origin may. Credentials are headers that a page adds itself, never cookies, so there is nothing here
that a browser would send on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EXPOSED: Final = (
    "Link",
    "X-Total-Count",
    "ETag",
    "Location",
    "X-Request-Id",
    "Idempotent-Replay",
    "Retry-After",
)
PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match, X-API-Key, X-Request-Id",
    "Access-Control-Max-Age": "600",
}


class CrossOrigin:
    """Answers preflights of the one origin, and lets its pages read every answer."""

    def __init__(self, app: ASGIApp, origin: Callable[[], str | None]) -> None:
        """`origin` is asked at each request, when the settings are known; None: nobody is let in."""
        self._app = app
        self._origin = origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        sent = headers.get("origin")
        if sent is None or sent != self._origin():
            await self._app(scope, receive, send)
            return
        allowed = {"Access-Control-Allow-Origin": sent, "Vary": "Origin"}
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=204, headers=allowed | PREFLIGHT)(scope, receive, send)
            return
        allowed["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
        added = [(name.lower().encode(), value.encode()) for name, value in allowed.items()]

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, sender)
