"""`governance halt`: stop all agents of the organisation, one agent or one run."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any, Final

from api.cli.api_client import RunningService, add_running, path_of, running
from api.cli.spelling import spelled
from api.cli.terminal import CommandError, Subparsers, add_yes, confirm, filled, print_json, say_error
from schemas.suggestion import suggestion

MOST_COMPARED: Final = 500
"""Agents among which one of a similar name is looked for."""

DESCRIPTION = (
    "Halts all agents of your organisation, or with --agent or --run one: from the next decision on every "
    "call is blocked, and none can be approved, until `governance resume`. Needs an admin. To halt all asks "
    "once."
)


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "halt", help="stop all agents, one agent or one run", description=DESCRIPTION
    )
    add_target(parser)
    parser.add_argument("--reason", metavar="TEXT", help="shown to agents, and kept in the record")
    add_yes(parser)
    add_running(parser)
    parser.set_defaults(run=_halt)


def add_target(parser: argparse.ArgumentParser) -> Any:
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--agent", type=filled, metavar="ID", help="only this agent")
    target.add_argument("--run", dest="run_id", type=filled, metavar="ID", help="only this run")
    return target


def target_of(arguments: argparse.Namespace) -> dict[str, str]:
    """What is named, in the words of the API; nothing for all agents."""
    named = {"agentId": arguments.agent, "runId": arguments.run_id, "reason": arguments.reason}
    return {name: value for name, value in named.items() if value is not None}


def said_of(halt: dict[str, Any]) -> str:
    """What a halt covers."""
    if halt["scope"] == "agent":
        return f"agent `{halt['agentId']}`"
    return f"run `{halt['runId']}`" if halt["scope"] == "run" else "all agents"


def affected(halt: dict[str, Any]) -> str:
    count = halt.get("affectedAgents")
    return "" if count is None else f"; {count} agent{'' if count == 1 else 's'} with a run that goes on"


def _halt(arguments: argparse.Namespace) -> int:
    service = running(arguments)
    body = target_of(arguments)
    if not arguments.agent and not arguments.run_id:
        confirm(f"Halt all agents at {service.url}?", arguments.yes)
    halt = service.send("POST", "/v1/halt", body).value
    if arguments.format == "json":
        print_json(halt)
        return 0
    print(spelled(f"halted {said_of(halt)}: {halt['haltId']}{affected(halt)}"))
    print(spelled(f"to end it: governance resume --halt {halt['haltId']}"))
    if unknown := _unknown(service, halt):
        say_error(spelled(unknown))
    return 0


def _unknown(service: RunningService, halt: dict[str, Any]) -> str:
    """What to tell whoever has halted an agent or a run that nobody knows: in haste a name is mistyped, and
    the one that was meant goes on. Empty: it is known, or cannot be told."""
    kind = halt["scope"]
    if kind == "all" or halt.get("affectedAgents") != 0:
        return ""
    name = halt[f"{kind}Id"]
    try:
        service.get(path_of(f"{kind}s", name))
    except CommandError as error:
        if "(404)" not in str(error):
            return ""
        near = ""
        if kind == "agent":
            with suppress(CommandError):
                known, _ = service.page("/v1/agents", MOST_COMPARED)
                near = suggestion(name, [each["agentId"] for each in known])
        return f"no call of {said_of(halt)} is known{near or ', so see that the name is right'}"
    return ""
