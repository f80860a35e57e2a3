"""One path for every route: authenticate, authorise, read and check the input, see that the credential still
counts, call the handler, reply.

A handler runs only after all of that; whatever goes wrong becomes a problem document (`http/problems.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.credentials import key_digest, unauthenticated
from api.caller import NOBODY, ROLES, Caller
from api.context import Context
from api.handlers.changes import perform
from api.http import bodies
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, as_api_error
from api.http.route import Route
from api.ingestion.turns import LARGE
from api.metrics import EVENTS_PATH
from api.server.request_observer import CALLER
from api.telemetry import correlation

log = logging.getLogger("governance")

PROBLEM = "application/problem+json"
KEY_HEADER: Final = "Governance-Key"
SLASH: Final = "\udc2f"
"""Stands in the path for an encoded slash (`%2F`), which belongs to an id, until the parameters are read."""
MOST_PARAMETERS: Final = 100
"""Of a query, which is read on the event loop: tens of thousands would take it as long as thousands of
requests. A single one may be long, as the cursor of a log of many chains."""


def path_of(scope: Scope) -> str:
    """The decoded path, by which requests are routed."""
    raw = scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
    return SLASH.join(unquote(part) for part in re.split("%2f", raw, flags=re.IGNORECASE))


def problem(error: ApiError, request_id: str) -> Response:
    return Response(
        msgspec.json.encode(error.body(request_id)),
        status_code=error.status,
        headers={**error.headers, "X-Request-Id": request_id, "Cache-Control": "no-store"},
        media_type=PROBLEM,
    )


STOPS: Final = "the service stops before it can answer this; ask again when it is there again"


def problem_for(error: BaseException, request_id: str, where: str) -> Response:
    """The problem document of any exception; one that nobody foresaw is logged and says nothing more."""
    known = as_api_error(error)
    if known is None:
        told = {"request": correlation.Correlation(request_id)}
        log.error("fault in %s", where, exc_info=error, extra=told)
        known = ApiError("internal_error", f"the service failed; the record is under `{request_id}`")
    return problem(known, request_id)


def refuse_repeated(headers: Headers) -> None:
    """Of two credentials of one kind, a proxy and we may each believe another one; so neither counts."""
    for name, scheme in (("Authorization", "Bearer"), ("X-API-Key", "ApiKey")):
        if len(headers.getlist(name)) > 1:
            raise unauthenticated(f"`{name}` was sent twice; send it once", scheme)


async def authenticate(route: Route, headers: Mapping[str, str], address: str, context: Context) -> Caller:
    """The caller, when their credential is valid and of a kind that is for this route; raises 401."""
    who = route.who
    if "anyone" in who:
        return NOBODY
    people = who - {"agent"}
    authorization = headers.get("authorization")
    key = headers.get("x-api-key")
    if people and authorization is not None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthenticated("send `Authorization: Bearer <access token>`")
        return await context.credentials.from_token(token.strip())
    if "agent" in who:
        if key is not None:
            return await context.credentials.from_key(key, address, certain=not route.checks_key)
        scheme = "Bearer" if people else "ApiKey"
        raise unauthenticated("send `X-API-Key: <key>`" + (" or a bearer token" if people else ""), scheme)
    refused = "" if key is None else "an API key is not accepted here; "
    raise unauthenticated(
        refused + "send `Authorization: Bearer <access token>`; get one from POST /auth/login"
    )


def authorise(route: Route, caller: Caller) -> None:
    """Raises 403 when the role of a person does not reach."""
    if caller.kind == "user" and caller.role not in route.who:
        needed = " or ".join(role for role in ROLES if role in route.who)
        raise ApiError("forbidden", f"this needs the role {needed}; you are {caller.role}", kind="role")


async def note_refusal(
    error: Exception, caller: Caller, route: Route, headers: Mapping[str, str], context: Context
) -> None:
    """Put a refusal on record, when it is one and it is known of whom; an API key that is of no use here
    says it, too."""
    refusal = as_api_error(error)
    key = headers.get("x-api-key")
    if caller is NOBODY and key is not None and "anyone" not in route.who:
        caller = context.credentials.known(key_digest(key)) or NOBODY
    if refusal is not None:
        await context.refusals.note(caller, refusal, f"{route.method} {route.path}")


def is_long(query: bytes) -> bool:
    """Whether nobody reads a query, since no route takes as much."""
    return query.count(b"&") >= MOST_PARAMETERS


def parse_query(route: Route, request: Request) -> dict[str, Any]:
    """Declared parameters only, parsed and checked; defaults filled in."""
    if is_long(request.scope["query_string"]):
        raise ApiError(
            "validation_failed", f"the query is too long: it may have at most {MOST_PARAMETERS} parameters"
        )
    declared = {query.name: query for query in route.query}
    found: dict[str, Any] = {}
    errors: list[dict[str, str]] = []
    for name, text in request.query_params.multi_items():
        query = declared.get(name)
        if query is None:
            known = ", ".join(declared) or "none"
            errors.append(
                {
                    "pointer": f"/{bodies.escape(name[:60])}",
                    "message": f"no such query parameter here; known: {known}",
                }
            )
            continue
        if name in found:
            errors.append({"pointer": f"/{name}", "message": f"`{name}` is given twice"})
            continue
        value, message = _parse(text, query.schema)
        if message is None:
            found[name] = value
        else:
            errors.append({"pointer": f"/{name}", "message": f"`{name}` {message}"})
    if errors:
        raise ApiError("validation_failed", errors[0]["message"], errors=errors[:100])
    for query in route.query:
        if "default" in query.schema:
            found.setdefault(query.name, query.schema["default"])
    return found


def _parse(text: str, schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    kind = schema.get("type", "string")
    if "\0" in text or len(text) > schema.get("maxLength", 500):
        return None, f"is not accepted: at most {schema.get('maxLength', 500)} characters, and no NUL"
    if kind in ("integer", "number"):
        if not re.fullmatch(r"-?[0-9]{1,15}" if kind == "integer" else r"-?[0-9]{1,15}(\.[0-9]{1,9})?", text):
            return None, f"must be {'a whole' if kind == 'integer' else 'a'} number, not `{text[:40]}`"
        number = int(text) if kind == "integer" else float(text)
        least, most = schema.get("minimum"), schema.get("maximum")
        if (least is not None and number < least) or (most is not None and number > most):
            return None, f"must be from {least} to {most}, not `{text[:40]}`"
        return number, None
    if kind == "boolean":
        if text not in ("true", "false"):
            return None, f"must be `true` or `false`, not `{text[:40]}`"
        return text == "true", None
    allowed = schema.get("enum")
    if allowed is not None and text not in allowed:
        return None, f"must be one of {', '.join(allowed)}, not `{text[:40]}`"
    if len(text) < schema.get("minLength", 0):
        return None, "must not be empty"
    return text, None


async def read_body(route: Route, request: Request, caller: Caller, context: Context) -> bytes:
    """The raw body, refused as soon as it is too large, or one too many that the caller has not sent wholly.

    INVARIANT: whoever is not known has no large body taken in, on however many connections."""
    most = context.settings.max_body_bytes
    if "anyone" in route.who:
        most = min(most, LARGE)
    check_length(request.headers, most)
    parts: list[bytes] = []
    size = 0
    with context.reads.coming(caller) as so_far:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large(most)
            if size > LARGE:
                so_far(size)
            parts.append(part)
    return b"".join(parts)


def too_large(most: int) -> ApiError:
    return ApiError("payload_too_large", f"the body is larger than {most} bytes")


def check_length(headers: Mapping[str, str], most: int) -> None:
    """Refuse a body that says itself that it is too large, before any of it is read."""
    length = headers.get("content-length", "").lstrip("0")
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise too_large(most)


def check_media_type(headers: Mapping[str, str]) -> None:
    """JSON, and as it is: nothing is unpacked here, so no small body becomes a large one."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise ApiError("unsupported_media_type", "send `Content-Type: application/json`")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError("unsupported_media_type", "send the body as it is, without `Content-Encoding`")


async def _body(route: Route, request: Request, caller: Caller, context: Context) -> Any:
    if route.body is None:
        if route.method != "GET":
            # A body that nobody asked for is read (and bounded), so that the connection stays usable.
            await read_body(route, request, caller, context)
        return None
    raw = await read_body(route, request, caller, context)
    if not route.counts:
        context.reads.count(caller, len(raw))
    if not raw and route.body_optional:
        return None
    check_media_type(request.headers)
    if route.body_as_sent:
        return raw
    if len(raw) <= LARGE:
        return bodies.read(route.body, raw)
    return await context.intake.turns.run(caller.holder, partial(bodies.read, route.body, raw), size=len(raw))


def endpoint(route: Route, context: Context) -> Callable[[Request], Awaitable[Response]]:
    """The web server's function for a route. To a program it says as what its API key is known, also after a
    rotation, unless that is to be as quick as can be."""

    async def serve(request: Request) -> Response:
        response = await answered(request)
        caller: Caller = request.scope.get(CALLER, NOBODY)
        if caller.kind == "key" and route.path != EVENTS_PATH:
            response.headers[KEY_HEADER] = f"{caller.organisation_id}/{caller.key_id}"
        return response

    async def answered(request: Request) -> Response:
        request_id = correlation.current().request_id
        caller = NOBODY
        try:
            refuse_repeated(request.headers)
            address = _address(request)
            caller = await authenticate(route, request.headers, address, context)
            request.scope[CALLER] = caller
            authorise(route, caller)
            if route.body is None and not route.counts:
                context.reads.count(caller)
            path = {name: text.replace(SLASH, "/") for name, text in request.path_params.items()}
            for name, text in path.items():
                if "\0" in text or len(text) > 300:
                    raise ApiError("not_found", f"`{name}` is no id of ours")
            values = Values(
                path=path,
                query=parse_query(route, request),
                body=await _body(route, request, caller, context),
                headers=request.headers,
                client=address,
                request_id=request_id,
                url=_url(request),
            )
            if route.method != "GET" and not route.checks_key:
                # INVARIANT: a body may be long in coming; whose credential ended meanwhile changes nothing.
                await context.credentials.recheck(caller)
            reply = context.reads.bounded(caller, await perform(route, caller, values, context))
        except ClientDisconnect:
            return Response(status_code=499)
        except asyncio.CancelledError:  # by a stop, which has waited for it as long as it waits
            return problem(ApiError("unavailable", STOPS, headers={"Retry-After": "5"}), request_id)
        except Exception as error:
            await note_refusal(error, caller, route, request.headers, context)
            found = problem_for(error, request_id, f"{route.method} {route.path}")
            if route.instead is None or caller is NOBODY:
                return found
            known = as_api_error(error) or ApiError("internal_error", "a fault of the service")
            asked = {} if is_long(request.scope["query_string"]) else request.query_params
            other = route.instead(request.path_params, asked, known)
            return found if other is None else response_of(other, request_id)
        if request.method == "HEAD" and reply.stream is not None:
            # Nobody will read the stream, so it is not begun.
            reply = replace(reply, stream=None, body=b"")
        return response_of(reply, request_id)

    return serve


def _address(request: Request) -> str:
    """The caller's address; what a proxy may pass on as one but is none never gets into a record."""
    try:
        return str(ipaddress.ip_address(request.client.host if request.client else ""))[:64]
    except ValueError:
        return "unknown"


def _url(request: Request) -> str:
    """Path and query as sent. The `Host` header has no say in it."""
    path = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    query = request.scope["query_string"]
    return (path.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def response_of(reply: Reply, request_id: str) -> Response:
    headers = {"X-Request-Id": request_id, "Cache-Control": "no-store", **reply.headers}
    if reply.stream is not None:
        return StreamingResponse(reply.stream, reply.status, headers, media_type=reply.media_type)
    if reply.status == 204:
        return Response(status_code=204, headers=headers)
    content = reply.body if isinstance(reply.body, bytes) else msgspec.json.encode(reply.body)
    return Response(content, reply.status, headers, media_type=reply.media_type)


class SecurityHeaders:
    """Adds the headers every answer carries. The console's own policy is stricter and set there."""

    HEADERS = (
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
    )

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.HEADERS]
            await send(message)

        await self.app(scope, receive, sender)
