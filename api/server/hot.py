"""POST /v1/events, answered in front of the router: the one path where every microsecond counts.

It does exactly what `endpoint.py` does for the same row of the route table - a test compares the two -
without building request and response objects. Everything else goes on to the router.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth.credentials import unauthenticated
from api.context import Context
from api.handlers.events import post_event
from api.server.endpoint import (
    SecurityHeaders,
    check_length,
    check_media_type,
    problem_for,
    request_id_of,
    too_large,
)

PATH = "/v1/events"

FIXED = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    *SecurityHeaders.HEADERS,
)


class HotPath:
    """`context` is asked for at each request, since it exists only once the application has started."""

    def __init__(self, app: ASGIApp, context: Callable[[], Context]) -> None:
        self.app = app
        self.context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["query_string"] or len(headers) != len(scope["headers"]):
            # Nothing that an agent sends: the router has the words for it.
            await self.app(scope, receive, send)
            return
        context = self.context()
        request_id = request_id_of(headers, context)
        try:
            key = headers.get("x-api-key")
            if key is None:
                raise unauthenticated("send `X-API-Key: <key>`", "ApiKey")
            caller = await context.credentials.from_key(key)
            raw = await _read(receive, headers, context.settings.max_body_bytes)
            check_media_type(headers)
            answer = await post_event(caller, raw, context)
        except ClientDisconnect:
            return
        except Exception as error:
            await SecurityHeaders(problem_for(error, request_id, f"POST {PATH}"))(scope, receive, send)
            return
        sent = [*FIXED, (b"content-length", b"%d" % len(answer.content))]
        sent.append((b"x-request-id", request_id.encode("latin-1")))
        if answer.replayed:
            sent.append((b"idempotent-replay", b"true"))
        await send({"type": "http.response.start", "status": 200, "headers": sent})
        await send({"type": "http.response.body", "body": answer.content})


async def _read(receive: Receive, headers: dict[str, str], most: int) -> bytes:
    check_length(headers, most)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    raw: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(raw) > most:
            raise too_large(most)
        return raw
    parts, size = [raw], len(raw)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_large(most)
    return b"".join(parts)
