"""`governance changes`: what one admin wants and another must agree to, where an organisation asks so."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from api.cli.api_client import add_limit, add_running_action, path_of, running, show_one, show_page
from api.cli.spelling import json_text, remarks, spelled
from api.cli.terminal import Subparsers, add_yes, confirm, tell

STATUSES = ("pending", "applied", "rejected", "expired", "stale", "failed", "all")
COLUMNS = {
    "changeId": "CHANGE",
    "status": "STATUS",
    "operation": "OPERATION",
    "subject": "ABOUT",
    "requestedBy": "ASKED BY",
    "requestedAt": "ASKED",
    "expiresAt": "EXPIRES",
}


def register(commands: Subparsers) -> None:
    what = "changes that wait for a second admin: list, show, approve, reject"
    parser = commands.add_parser("changes", help=what)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_running_action(actions, "list", "list changes, newest first", _list)
    listing.add_argument("--status", choices=STATUSES, default="pending", help="default: pending")
    add_limit(listing)
    one = add_running_action(actions, "show", "show a change with all that it would do", _show)
    agree = add_running_action(actions, "approve", "agree to a change, which applies it", _approve)
    reject = add_running_action(actions, "reject", "refuse a change, or take one's own back", _reject)
    for command in (one, agree, reject):
        command.add_argument("change_id", metavar="CHANGE", help="from `governance changes list`")
    for command in (agree, reject):
        command.add_argument("--reason", metavar="TEXT", help="kept in the record")
        add_yes(command)


def _list(arguments: argparse.Namespace) -> int:
    status = None if arguments.status == "all" else arguments.status
    return show_page(arguments, "/v1/changes", COLUMNS, status=status)


def _show(arguments: argparse.Namespace) -> int:
    return show_one(arguments, path_of("changes", arguments.change_id), _print)


def _print(change: dict[str, Any], output: TextIO | None = None) -> None:
    for line in _lines(change):
        print(spelled(line), file=output)


def _lines(change: dict[str, Any]) -> Iterator[str]:
    yield f"{change['status']}: {change['summary']} ({change['subject']})"
    names = ("operation", "requestedBy", "requestedAt", "expiresAt", "resolvedBy", "resolvedAt", "reason")
    for name in (*names, "problem", "mayNotApprove"):
        if change.get(name) is not None:
            yield f"  {name}: {spelled(str(change[name]), '')}"
    if change.get("request") is not None:
        yield "what was asked:"
        yield json_text(change["request"])
    if change.get("before") is not None:
        yield "what it is about, as it was:"
        yield json_text(change["before"])
    for edit in change.get("edits", ()):
        yield f"{edit['path']} is {edit['change']}:"
        yield edit["diff"]
    yield from (f"beware: {each}" for each in remarks([change]))


def _approve(arguments: argparse.Namespace) -> int:
    return _resolve(arguments, "approved", "Apply it?")


def _reject(arguments: argparse.Namespace) -> int:
    return _resolve(arguments, "rejected", "Reject it?")


def _resolve(arguments: argparse.Namespace, decision: str, question: str) -> int:
    """What is applied is what was shown: the service compares both."""
    service = running(arguments)
    place = path_of("changes", arguments.change_id)
    change = service.get(place)
    # Nobody is asked about what was not shown; programs read the other stream.
    _print(change, sys.stderr if arguments.format == "json" else None)
    confirm(question, arguments.yes)
    body = {"decision": decision} | ({} if arguments.reason is None else {"reason": arguments.reason})
    done = service.send("POST", f"{place}/resolve", body).value
    tell(done, arguments.format, f"{done['status']}: {done['summary']} ({done['changeId']})")
    return 0
