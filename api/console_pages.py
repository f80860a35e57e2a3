"""Serves the console: its page for every room, and its files. Nothing comes from another host.

The page is plain HTML, CSS and ES modules; the Content-Security-Policy allows those of this service only, and
no inline script or style at all.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

ROOMS = ("/approvals",)
"""The paths of rooms, as in `console/app.js`."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _file(name: str) -> tuple[bytes, str, str] | None:
    """Content, media type and entity tag of a console file; None when there is none of that name."""
    parts = name.split("/")
    media = MEDIA.get(name.rpartition(".")[2])
    if media is None or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        return None
    found = files("api").joinpath("console", *parts)
    if not found.is_file():
        return None
    content = found.read_bytes()
    return content, media, f'"{hashlib.sha256(content).hexdigest()[:20]}"'


def _answer(request: Request, name: str) -> Response:
    found = _file(name)
    if found is None:
        return Response("there is no such file", 404, media_type="text/plain")
    content, media, tag = found
    # Always asked again, so that a new version of the service never runs with half of an old page.
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media)


async def _room(request: Request) -> Response:
    return _answer(request, "index.html")


async def _asset(request: Request) -> Response:
    return _answer(request, str(request.path_params["name"]))


async def _home(request: Request) -> Response:
    return RedirectResponse(ROOMS[0], 307)


def console_routes() -> list[BaseRoute]:
    """The console's routes; they are no part of the API document."""
    return [
        Route("/", _home),
        *(Route(path, _room) for path in ROOMS),
        Route("/console/{name:path}", _asset),
    ]
