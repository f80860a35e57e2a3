"""Serves the console: its page for every room, and its files. Nothing comes from another host.

The page is plain HTML, CSS and ES modules; the Content-Security-Policy allows those of this service only, no
inline script or style at all, and no way of turning text into markup or code. A room is a module of
`console/rooms`: its file name is its path, so a new room needs no change here.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

HOME = "/approvals"
"""The room that `/` leads to."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_TAGS = re.compile(r'"[^"]*"')
MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """name -> content, media type and entity tag of every file of the console.

    INVARIANT: only a name that stands here is served, so no request reaches another file, and requests for
    names that do not exist leave nothing behind.
    """
    found: dict[str, tuple[bytes, str, str]] = {}
    folders: list[tuple[str, Traversable]] = [("", files("api").joinpath("console"))]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            elif (media := MEDIA.get(entry.name.rpartition(".")[2])) is not None:
                content = entry.read_bytes()
                tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
                found[prefix + entry.name] = (content, media, tag)
    return found


def _answer(request: Request, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        return Response("there is no such file", 404, media_type="text/plain")
    content, media, tag = found
    # Always asked again, so that a new version of the service never runs with half of an old page.
    headers = {
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
        "ETag": tag,
    }
    if tag in _TAGS.findall(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media)


async def _room(request: Request) -> Response:
    return _answer(request, "index.html")


async def _asset(request: Request) -> Response:
    return _answer(request, str(request.path_params["name"]))


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
