"""What is noted of every request on the ordinary way: its id, its metrics, its span, and its line in the log.

The line has the path as sent but never the query, no header and no body: what is secret stands there. It is
written when the answer has been sent, so that of a stream at its end.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import metrics
from api.caller import NOBODY, Caller
from api.clock import Ids
from api.telemetry import correlation, tracing

log = logging.getLogger("governance.access")

CALLER: Final = "governance.caller"
"""Under this name the endpoint leaves in the scope who asks."""
GONE: Final = 499
"""The status of a request whose client left before it was answered."""
LONGEST_PATH: Final = 300
PARTS: Final = 3
"""Of a path that is no route, the empty one before the first slash among them."""
LONGEST_PART: Final = 40

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}\Z")
_TRACE_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?\Z"
)
_PARAMETER = re.compile(r"\{([A-Za-z]+)(?::path)?\}")


def request_id_of(sent: str, ids: Ids) -> str:
    """The caller's `X-Request-Id` when it is harmless, else a new one."""
    return sent if _REQUEST_ID.match(sent) else ids("req")


def trace_id_of(sent: str) -> str:
    """The trace of a `traceparent` (W3C Trace Context, level 1); empty when it is none."""
    found = _TRACE_PARENT.match(sent)
    return found[1] if found else ""


class RequestObserver:
    """Stands around everything that answers."""

    def __init__(self, app: ASGIApp, ids: Callable[[], Ids], writes_lines: Callable[[], bool]) -> None:
        """The functions are asked at each request, when the settings are known."""
        self._app = app
        self._ids = ids
        self._writes_lines = writes_lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        headers = Headers(scope=scope)
        request_id = request_id_of(headers.get("x-request-id", ""), self._ids())
        status = size = 0

        async def sender(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = [*message.get("headers", ())]
                if all(name != b"x-request-id" for name, _ in sent):
                    sent.append((b"x-request-id", request_id.encode()))
                message["headers"] = sent
            else:
                size += len(message.get("body", b""))
            await send(message)

        method, trace_id = scope["method"], trace_id_of(headers.get("traceparent", ""))
        spans = tracing.request(method, headers) if tracing.is_on() else nullcontext()
        with spans as span, correlation.of(request_id, trace_id):
            try:
                await self._app(scope, receive, sender)
            finally:
                route, status = route_of(scope), status or GONE
                metrics.requested(method, route, status)
                if span is not None:
                    tracing.answered(span, method, route, status, request_id)
                if self._writes_lines():
                    _write(scope, route, status, size, perf_counter() - begun)


def route_of(scope: Scope) -> str:
    """The route that a request took, as the API document writes it; empty: there is none."""
    return _PARAMETER.sub(r":\1", getattr(scope.get("route"), "path", ""))


def _shown_path(scope: Scope, route: str) -> str:
    """As sent; the beginning of what is no route of ours, since nobody knows what stands in it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    if route:
        return path[:LONGEST_PATH]
    parts = path.split("/")
    return "/".join(part[:LONGEST_PART] for part in parts[:PARTS]) + ("/..." if len(parts) > PARTS else "")


def _write(scope: Scope, route: str, status: int, size: int, seconds: float) -> None:
    caller: Caller = scope.get(CALLER, NOBODY)
    client = scope.get("client")
    members: dict[str, Any] = {
        "client": client[0][:64] if client else "unknown",
        "method": scope["method"],
        "path": _shown_path(scope, route),
        "route": route,
        "status": status,
        "durationMs": round(seconds * 1000, 3),
        "bytes": size,
    }
    if caller is not NOBODY:
        members |= {"organisationId": caller.organisation_id, "actor": caller.actor}
    said = "{client} {method} {path} {status} {durationMs} ms {bytes} bytes".format_map(members)
    log.info("%s %s", said, members.get("actor", "-"), extra={"members": members})
