"""`governance alerts`: what detectors found unusual, over a running service."""

from __future__ import annotations

import argparse
from typing import Any

from api.cli.api_client import add_limit, add_running_action, path_of, running, show_one, show_page
from api.cli.spelling import spelled
from api.cli.terminal import Subparsers, tell

STATUSES = ("open", "acknowledged", "all")
SEVERITIES = ("low", "medium", "high", "critical")
COLUMNS = {
    "alertId": "ALERT",
    "severity": "SEVERITY",
    "status": "STATUS",
    "count": "COUNT",
    "summary": "WHAT WAS FOUND",
    "raisedAt": "RAISED",
    "lastAt": "LAST",
}
_SHOWN = (
    *("detectorId", "detectorVersion", "per", "subject", "agentId", "runId", "count", "threshold"),
    *("windowSeconds", "firstAt", "lastAt", "raisedAt", "acknowledgedAt", "acknowledgedBy", "note"),
)


def register(commands: Subparsers) -> None:
    what = "what detectors found unusual: list, show, acknowledge"
    parser = commands.add_parser("alerts", help=what)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_running_action(actions, "list", "list alerts, newest first", _list)
    listing.add_argument("--status", choices=STATUSES, default="open", help="default: open")
    listing.add_argument("--severity", choices=SEVERITIES, help="only those")
    listing.add_argument("--agent", metavar="ID", help="only those about this agent")
    add_limit(listing)
    one = add_running_action(actions, "show", "show an alert with its evidence", _show)
    seen = add_running_action(actions, "acknowledge", "say that somebody has looked", _acknowledge)
    seen.add_argument("--note", metavar="TEXT", help="what was found out, for those who come later")
    for command in (one, seen):
        command.add_argument("alert_id", metavar="ALERT", help="from `governance alerts list`")


def _list(arguments: argparse.Namespace) -> int:
    chosen = {"severity": arguments.severity, "agentId": arguments.agent}
    if arguments.status != "all":
        chosen["status"] = arguments.status
    return show_page(arguments, "/v1/alerts", COLUMNS, **chosen)


def _show(arguments: argparse.Namespace) -> int:
    return show_one(arguments, path_of("alerts", arguments.alert_id), _print)


def _print(alert: dict[str, Any]) -> None:
    print(spelled(f"{alert['severity']}, {alert['status']}: {alert['summary']}"))
    if alert["message"]:
        print(spelled(alert["message"]))
    for name in _SHOWN:
        if alert[name] is not None:
            print(spelled(f"  {name}: {alert[name]}", ""))
    for audit_id in alert["evidence"]:
        print(spelled(f"  evidence: {audit_id} (GET /v1/audit/{audit_id})", ""))


def _acknowledge(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("alerts", arguments.alert_id)
    body = {} if arguments.note is None else {"note": arguments.note}
    alert = service.send("POST", f"{place}/acknowledge", body).value
    tell(alert, arguments.format, f"acknowledged by {alert['acknowledgedBy']}: {alert['summary']}")
    return 0
