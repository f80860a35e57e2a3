"""Files that are sent as they are, and the headers of every page that people open: nothing from another host.

The Content-Security-Policy allows this service's own files only, no inline script or style at all, and no way
of turning text into markup or code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
MEDIA: Mapping[str, str] = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
}
_TAGS = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    media: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'


def files_below(root: Traversable) -> dict[str, File]:
    """Every file of a known kind, by its path below `root`.

    INVARIANT: only a name that stands here is served, so no request reaches another file, and requests for
    names that do not exist leave nothing behind.
    """
    found: dict[str, File] = {}
    folders: list[tuple[str, Traversable]] = [("", root)]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            elif (media := MEDIA.get(entry.name.rpartition(".")[2])) is not None:
                found[prefix + entry.name] = File(entry.read_bytes(), media)
    return found


def answer(request: Request, file: File | None) -> Response:
    if file is None:
        raise HTTPException(404)
    # Always asked again, so that a new version of the service never runs with half of an old page.
    headers = {
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
        "ETag": file.tag,
    }
    if file.tag in _TAGS.findall(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media)
