"""`governance openapi`: the API document, for generators and diffs."""

from __future__ import annotations

import argparse
import json

from api.cli.terminal import Subparsers


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "openapi", help="print the API document", description="Prints the OpenAPI 3.1 document as JSON."
    )
    parser.set_defaults(run=_openapi)


def _openapi(arguments: argparse.Namespace) -> int:
    from api.server.openapi import document
    from api.server.routes import ROUTES

    print(json.dumps(document(ROUTES), indent=2, ensure_ascii=False))
    return 0
