"""`governance resume`: end a halt, or all halts of one scope."""

from __future__ import annotations

import argparse

from api.cli.api_client import add_running, running
from api.cli.commands.halt import add_target, affected, said_of, target_of
from api.cli.terminal import Subparsers, add_yes, confirm, filled, tell

DESCRIPTION = (
    "Ends the halts of all agents, with --agent or --run those of exactly that one, or with --halt one halt. "
    "Halts of other scopes stay: `governance halts` lists them. Needs an admin, and asks once."
)


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("resume", help="end a halt", description=DESCRIPTION)
    add_target(parser).add_argument("--halt", type=filled, metavar="ID", help="only this halt")
    parser.add_argument("--reason", metavar="TEXT", help="kept in the record")
    add_yes(parser)
    add_running(parser)
    parser.set_defaults(run=_resume)


def _resume(arguments: argparse.Namespace) -> int:
    service = running(arguments)
    body = target_of(arguments)
    if arguments.halt:
        body["haltId"] = arguments.halt
    what = arguments.halt or arguments.agent or arguments.run_id
    named = f"`{what}`" if what else "all agents"
    confirm(f"End the halt of {named} at {service.url}?", arguments.yes)
    ended = service.send("POST", "/v1/resume", body).value
    said = [f"ended the halt of {said_of(halt)}: {halt['haltId']}{affected(halt)}" for halt in ended]
    none = f"no halt of {named} was in force; see `governance halts`"
    tell(ended, arguments.format, *(said or [none]))
    return 0
