"""The application: one context per process, the routes, background tasks.

`create()` is what the server calls in every worker process; `build()` takes its parts as arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from api.context import Context
from api.http.problems import ApiError
from api.http.route import Route
from api.server.connections.event_fast_path import STATE
from api.server.console import console_routes, no_such_page
from api.server.cors import CrossOrigin
from api.server.endpoint import SLASH, SecurityHeaders, endpoint, path_of, problem, problem_for
from api.server.guide import guide_routes
from api.server.request_observer import RequestObserver
from api.server.routes import ROUTES
from api.telemetry import correlation, tracing
from engine.worktree.observer import Progress

_PARAMETER = re.compile(r":([A-Za-z]+)")

Startup = Callable[[], contextlib.AbstractAsyncContextManager[Context]]
"""Opens everything a process needs and gives the context; closes it at the end."""


class Application:
    """Holds the context once the process has started."""

    def __init__(self, startup: Startup) -> None:
        self._startup = startup
        self._context: Context | None = None
        handlers = {HTTPException: self._http_error, Exception: self._fault}
        routes = [self._route(path, rows) for path, rows in _by_path(ROUTES).items()]
        self._starlette = Starlette(
            routes=[*routes, *console_routes(), *guide_routes()],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )
        self._starlette.router.redirect_slashes = False
        opened = CrossOrigin(self._starlette, lambda: self.context().settings.frontend_origin)
        self._asgi: ASGIApp = RequestObserver(
            SecurityHeaders(opened), lambda: self.context().ids, lambda: self.context().settings.access_log
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if b"%2" in scope.get("raw_path", b""):
            scope = {**scope, "path": path_of(scope)}
        await self._asgi(scope, receive, send)

    def context(self) -> Context:
        if self._context is None:
            raise RuntimeError("the application has not started")
        return self._context

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[dict[str, Context]]:
        tracing.start(os.environ)
        try:
            async with self._startup() as context:
                self._context = context
                try:
                    yield {STATE: context}
                finally:
                    self._context = None
        finally:
            await asyncio.to_thread(tracing.stop)

    def _route(self, path: str, rows: list[Route]) -> BaseRoute:
        return WebRoute(_PARAMETER.sub(r"{\1}", path), _Path(rows, self.context), include_in_schema=False)

    def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        request_id = correlation.current().request_id
        if error.status_code == 405:
            allow = (error.headers or {}).get("Allow", "")
            message = f"`{request.method}` is not possible here; use {allow}"
            known = ApiError("method_not_allowed", message, headers={"Allow": allow})
        elif error.status_code == 404:
            path = request.scope["path"].replace(SLASH, "%2F")[:200]
            if "text/html" in request.headers.get("accept", ""):
                return no_such_page(path, request_id)
            known = ApiError("not_found", f"there is nothing at `{path}`; see /api/docs")
        else:
            known = ApiError("invalid_request", error.detail)
        return problem(known, request_id)

    def _fault(self, request: Request, error: Exception) -> Response:
        return problem_for(error, correlation.current().request_id, repr(request.scope["path"]))


class _Path:
    """All methods of one path, so that a wrong method is a 405 that names the right ones.

    An object rather than a function, because the web server then hands it every method.
    """

    def __init__(self, rows: list[Route], context: Callable[[], Context]) -> None:
        self._rows = {row.method: row for row in rows}
        if "GET" in self._rows:
            self._rows.setdefault("HEAD", self._rows["GET"])
        self._context = context
        self._served: dict[str, Callable[[Request], Awaitable[Response]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        served = self._served.get(method)
        if served is None:
            row = self._rows.get(method)
            if row is None:
                raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._rows))})
            served = self._served[method] = endpoint(row, self._context())
        response = await served(Request(scope, receive, send))
        await response(scope, receive, send)


def _by_path(routes: tuple[Route, ...]) -> dict[str, list[Route]]:
    paths: dict[str, list[Route]] = {}
    for route in routes:
        paths.setdefault(route.path, []).append(route)
    # A fixed path goes before one that would swallow it: /v1/policies/simulate before /v1/policies/:id.
    return dict(sorted(paths.items(), key=lambda item: [part.startswith(":") for part in item[0].split("/")]))


def create(progress: Progress | None = None, *, prepared: bool = False) -> Application:
    """The application of one worker process, by the environment's settings; the server's factory.

    `progress` is told how far the loading of the policies is. `prepared`: see `open_service`.
    """
    from api.policies.opening import open_policies
    from api.service import open_service
    from api.settings import load

    settings = load()
    opened = functools.partial(open_policies, progress=progress)
    return Application(lambda: open_service(settings, opened, prepared=prepared))
