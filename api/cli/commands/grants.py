"""`governance grants`: what people allowed beyond one call, seen, given and ended from a terminal.

A grant of the same call comes with its approval: `governance approvals approve ID --grant run`.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from api.cli.api_client import add_count, add_limit, add_running_action, path_of, running, show_one, show_page
from api.cli.spelling import spelled
from api.cli.terminal import Subparsers, add_yes, confirm, filled, tell

COLUMNS = {
    "grantId": "GRANT",
    "status": "STATUS",
    "what": "WHAT IT ALLOWS",
    "where": "WHERE",
    "left": "USED",
    "expiresAt": "EXPIRES",
    "createdBy": "BY",
}
_SHOWN: Final = (
    *("kind", "scope", "runId", "agentId", "keyId", "toolName", "payloadDigest", "approvalId", "toolCallId"),
    *("reason", "createdAt", "createdBy", "expiresAt", "revokedAt", "revokedBy"),
)


def register(commands: Subparsers) -> None:
    what = "what people allowed beyond one call: list, show, exempt, revoke"
    parser = commands.add_parser("grants", help=what)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_running_action(
        actions, "list", "list grants that may cover a call now, newest first", _list
    )
    listing.add_argument("--all", action="store_true", help="those that have ended, too")
    listing.add_argument(
        "--run", dest="run_id", type=filled, metavar="ID", help="only those made in this run"
    )
    listing.add_argument("--agent", type=filled, metavar="ID", help="only those for this agent")
    add_limit(listing)
    one = add_running_action(actions, "show", "show a grant", _show)
    exempt = add_running_action(
        actions,
        "exempt",
        "let labels of a run not count for some time",
        _exempt,
        "Policies that block see them all the same.",
    )
    exempt.add_argument("run_id", metavar="RUN", type=filled, help="the run that has the labels")
    exempt.add_argument(
        "--label", dest="labels", action="append", required=True, type=filled, help="may be given repeatedly"
    )
    exempt.add_argument(
        "--reason", required=True, type=filled, metavar="TEXT", help="why they need not count"
    )
    add_count(exempt, "minutes", "so long", 60)
    revoke = add_running_action(
        actions, "revoke", "end a grant before its time", _revoke, "One that has ended stays as it is."
    )
    revoke.add_argument("--reason", metavar="TEXT", help="kept in the record")
    for command in (one, revoke):
        command.add_argument("grant_id", metavar="GRANT", help="from `governance grants list`")
    for command in (exempt, revoke):
        add_yes(command)


def _list(arguments: argparse.Namespace) -> int:
    chosen = {"runId": arguments.run_id, "agentId": arguments.agent}
    if not arguments.all:
        chosen["active"] = "true"
    return show_page(arguments, "/v1/grants", COLUMNS, _told, **chosen)


def _told(grant: dict[str, Any]) -> dict[str, str]:
    return {"what": _what(grant), "where": _where(grant), "left": _used(grant)}


def _what(grant: dict[str, Any]) -> str:
    if grant["kind"] == "labels":
        return f"labels that do not count: {', '.join(grant['labels'])}"
    about = grant.get("about")
    return str(about["sentence"]) if about else f"call {grant['toolName']}"


def _where(grant: dict[str, Any]) -> str:
    return f"run {grant['runId']}" if grant["scope"] == "run" else f"agent {grant['agentId']}"


def _used(grant: dict[str, Any]) -> str:
    most = f" of {grant['calls']}" if "calls" in grant else ""
    return f"{grant['used']}{most}"


def _show(arguments: argparse.Namespace) -> int:
    return show_one(arguments, path_of("grants", arguments.grant_id), _print)


def _print(grant: dict[str, Any]) -> None:
    print(spelled(f"{grant['status']}: {_what(grant)} ({_where(grant)})"))
    for name in _SHOWN:
        if grant.get(name) is not None:
            print(spelled(f"  {name}: {grant[name]}", ""))
    print(f"  calls: {_used(grant)}")
    for policy in grant.get("policies", ()):
        print(
            spelled(
                f"  policy: {policy['policyName']} ({policy['policyId']}, version {policy['version']})", ""
            )
        )


def _exempt(arguments: argparse.Namespace) -> int:
    named = ", ".join(f"`{each}`" for each in arguments.labels)
    confirm(
        f"Let {named} of the run `{arguments.run_id}` not count for {arguments.minutes} minutes?",
        arguments.yes,
    )
    body = {
        "runId": arguments.run_id,
        "labels": arguments.labels,
        "minutes": arguments.minutes,
        "reason": arguments.reason,
    }
    made = running(arguments).send("POST", "/v1/grants", body).value
    said = f"exempted until {made['expiresAt']}: {made['grantId']}"
    tell(made, arguments.format, said, f"to end it: governance grants revoke {made['grantId']}")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("grants", arguments.grant_id)
    if not arguments.yes:
        grant = service.get(place)
        confirm(f"End the grant to {_what(grant)} ({_where(grant)})?", arguments.yes)
    body = {} if arguments.reason is None else {"reason": arguments.reason}
    grant = service.send("POST", f"{place}/revoke", body).value
    tell(grant, arguments.format, f"{grant['status']}: {_what(grant)} ({grant['grantId']})")
    return 0
