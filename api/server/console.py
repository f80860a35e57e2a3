"""Serves the console: its page for every room, and its files. Nothing comes from another host.

The page is plain HTML, CSS and ES modules. A room is a module of `console/rooms`: its file name is its path,
so a new room needs no change here.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from api.server.static import POLICY, File, answer, files_below

HOME = "/overview"
"""The room that `/` leads to."""

_NO_SUCH_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>There is nothing here - Agent Governance Service</title>
<link rel="icon" href="/console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/console/style.css">
</head>
<body>
<main>
<h1>There is nothing here</h1>
<p>No page has the address <code>%s</code>.</p>
<p><a href="/">Console</a>: approvals that wait for you</p>
<p><a href="/docs">Guide</a>: tutorial, how-to, reference</p>
<p><a href="/api/docs">API</a>: what programs and the command line can read here</p>
</main>
</body>
</html>
"""


@cache
def _files() -> dict[str, File]:
    return files_below(files("api").joinpath("console"))


async def _room(request: Request) -> Response:
    return answer(request, _files().get("index.html"))


async def _asset(request: Request) -> Response:
    return answer(request, _files().get(str(request.path_params["name"])))


async def _home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)


def no_such_page(path: str, request_id: str) -> Response:
    """For a browser whose address leads nowhere; programs get a problem document instead."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Request-Id": request_id}
    return HTMLResponse(_NO_SUCH_PAGE % escape(path), 404, headers)


def room_paths() -> tuple[str, ...]:
    """The path of every room."""
    parts = (name.removesuffix(".js").split("/") for name in _files())
    return tuple(sorted(f"/{part[1]}" for part in parts if part[0] == "rooms" and len(part) == 2))


def console_routes() -> list[BaseRoute]:
    """The console's routes; they are no part of the API document."""
    return [
        Route("/", _home),
        *(Route(path + below, _room) for path in room_paths() for below in ("", "/{place:path}")),
        Route("/console/{name:path}", _asset),
    ]
