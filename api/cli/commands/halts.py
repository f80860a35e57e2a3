"""`governance halts`: what is halted now."""

from __future__ import annotations

import argparse

from api.cli.api_client import add_running, running
from api.cli.terminal import Subparsers, show

COLUMNS = {
    "haltId": "HALT",
    "scope": "SCOPE",
    "target": "AGENT OR RUN",
    "reason": "REASON",
    "createdAt": "SINCE",
    "createdBy": "BY",
}


def register(commands: Subparsers) -> None:
    what = "Lists the halts in force, oldest first."
    parser = commands.add_parser("halts", help="list what is halted", description=what)
    add_running(parser)
    parser.set_defaults(run=_list)


def _list(arguments: argparse.Namespace) -> int:
    halts = running(arguments).get("/v1/halts")
    if arguments.format == "table":
        if not halts:
            print("nothing is halted")
            return 0
        halts = [each | {"target": each.get("agentId") or each.get("runId")} for each in halts]
    show(halts, COLUMNS, arguments.format)
    return 0
