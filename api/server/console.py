"""Serves the console: its page for every room, and its files. Nothing comes from another host.

The page is plain HTML, CSS and ES modules. A room is a module of `console/rooms`: its file name is its path,
so a new room needs no change here.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from api.server.static import File, answer, files_below

HOME = "/approvals"
"""The room that `/` leads to."""


@cache
def _files() -> dict[str, File]:
    return files_below(files("api").joinpath("console"))


async def _room(request: Request) -> Response:
    return answer(request, _files().get("index.html"))


async def _asset(request: Request) -> Response:
    return answer(request, _files().get(str(request.path_params["name"])))


async def _home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)


def room_paths() -> tuple[str, ...]:
    """The path of every room."""
    parts = (name.removesuffix(".js").split("/") for name in _files())
    return tuple(sorted(f"/{part[1]}" for part in parts if part[0] == "rooms" and len(part) == 2))


def console_routes() -> list[BaseRoute]:
    """The console's routes; they are no part of the API document."""
    return [
        Route("/", _home),
        *(Route(path, _room) for path in room_paths()),
        Route("/console/{name:path}", _asset),
    ]
