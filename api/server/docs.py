"""The API document and its interactive page, which works with no internet: Swagger UI from its package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values
from api.http.problems import not_found
from api.http.route import ANYONE, Route
from api.server.openapi import document

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API - Agent Governance Service</title>
<link rel="icon" href="/console/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
</head>
<body>
<p><a href="/docs">The guide</a>: tutorial, how-to, reference</p>
<div id="swagger-ui"></div>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/start.js"></script>
</body>
</html>
"""
_START = """window.ui = SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: false,
  displayRequestDuration: true,
  docExpansion: "list",
  validatorUrl: null,
});
"""
_MEDIA = {".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "start.js")


@cache
def _asset(name: str) -> bytes:
    if name == "start.js":
        return _START.encode()
    return files("swagger_ui").joinpath("static", name).read_bytes()


async def api_docs(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /api/docs."""
    return Reply(_PAGE.encode(), headers={"Content-Security-Policy": _POLICY}, media_type="text/html")


async def api_docs_asset(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /api/docs/:asset."""
    name = values.path["asset"]
    if name not in ASSETS:
        raise not_found("file", name)
    headers = {"Cache-Control": "public, max-age=86400"}
    return Reply(_asset(name), headers=headers, media_type=_MEDIA["." + name.rpartition(".")[2]])


def routes(others: Sequence[Route]) -> tuple[Route, ...]:
    """The rows of the API document and its page; the document describes these rows and `others`."""

    @cache
    def described() -> bytes:
        """INVARIANT: it is there once, however many ask for it and do not read it: anybody may."""
        return msgspec.json.encode(document((*others, *rows)))

    async def api_document(caller: Caller, values: Values, context: Context) -> Reply:
        """GET /api/openapi.json."""
        return Reply(described())

    rows = (
        Route(
            "GET",
            "/api/openapi.json",
            ANYONE,
            api_document,
            "This document",
            "service",
            description="OpenAPI 3.1, made from the route table and the schemas.",
            reply="open-api-document",
        ),
        Route(
            "GET",
            "/api/docs",
            ANYONE,
            api_docs,
            "Interactive API documentation",
            "service",
            media_type="text/html",
        ),
        Route(
            "GET",
            "/api/docs/:asset",
            ANYONE,
            api_docs_asset,
            "A file of the documentation page",
            "service",
            media_type="text/javascript",
            also_media_types=("text/css",),
        ),
    )
    return rows
