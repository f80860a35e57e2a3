"""`governance webhooks`: who hears of what, over a running service."""

from __future__ import annotations

import argparse
from typing import Any

from api.cli.api_client import add_limit, add_running_action, path_of, running, show_page
from api.cli.terminal import Subparsers, add_yes, confirm, filled, show_once, tell

COLUMNS = {
    "webhookId": "WEBHOOK",
    "url": "URL",
    "events": "EVENTS",
    "enabled": "ENABLED",
    "failingSince": "FAILING SINCE",
    "disabledReason": "WHY DISABLED",
}
DELIVERIES = {
    "deliveryId": "DELIVERY",
    "event": "EVENT",
    "status": "STATUS",
    "tries": "TRIES",
    "last": "LAST ANSWER",
    "createdAt": "CREATED",
    "nextAttemptAt": "NEXT TRY",
}


def register(commands: Subparsers) -> None:
    what = "webhooks of a running service: list, add, remove, test, deliveries, redeliver"
    parser = commands.add_parser("webhooks", help=what)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_limit(add_running_action(actions, "list", "list webhooks", _list))
    add = add_running_action(actions, "add", "register a receiver; prints its signing secret, once", _add)
    add.add_argument("address", metavar="ADDRESS", help="https address that takes the notices")
    add.add_argument(
        "--event",
        metavar="EVENT",
        action="append",
        required=True,
        help="such as tool.blocked; may be repeated",
    )
    add.add_argument("--description", metavar="TEXT", help="for people")
    remove = add_running_action(
        actions, "remove", "delete a webhook, with what it has not been sent", _remove
    )
    test = add_running_action(actions, "test", "send a test event", _test)
    sent = add_running_action(actions, "deliveries", "list what was sent, newest first", _deliveries)
    again = add_running_action(actions, "redeliver", "send a delivery again", _redeliver)
    for command in (remove, test, sent, again):
        command.add_argument("webhook_id", metavar="WEBHOOK", help="from `governance webhooks list`")
    again.add_argument(
        "delivery_id", type=filled, metavar="DELIVERY", help="from `governance webhooks deliveries`"
    )
    add_limit(sent)
    add_yes(remove)


def _list(arguments: argparse.Namespace) -> int:
    return show_page(arguments, "/v1/webhooks", COLUMNS)


def _add(arguments: argparse.Namespace) -> int:
    body = {"url": arguments.address, "events": arguments.event, "description": arguments.description}
    sent = {name: value for name, value in body.items() if value is not None}
    made = running(arguments).send("POST", "/v1/webhooks", sent).value
    show_once(f"signing secret of webhook {made['webhookId']}", made["secret"], arguments.format, made)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("webhooks", arguments.webhook_id)
    found = service.get(place)
    confirm(f"Delete the webhook to {found['url']}?", arguments.yes)
    service.send("DELETE", place)
    tell(found, arguments.format, f"deleted the webhook {found['webhookId']} to {found['url']}")
    return 0


def _test(arguments: argparse.Namespace) -> int:
    return _sent(arguments, "test")


def _redeliver(arguments: argparse.Namespace) -> int:
    return _sent(arguments, "deliveries", arguments.delivery_id, "redeliver")


def _sent(arguments: argparse.Namespace, *rest: str) -> int:
    made = running(arguments).send("POST", path_of("webhooks", arguments.webhook_id, *rest)).value
    see = f"governance webhooks deliveries {made['webhookId']}"
    tell(made, arguments.format, f"on its way: {made['deliveryId']}; see `{see}`")
    return 0


def _deliveries(arguments: argparse.Namespace) -> int:
    place = path_of("webhooks", arguments.webhook_id, "deliveries")
    return show_page(arguments, place, DELIVERIES, _tried)


def _tried(delivery: dict[str, Any]) -> dict[str, Any]:
    tries = delivery["attempts"]
    last = str(tries[-1]["error"] or tries[-1]["responseStatus"]) if tries else None
    return {"tries": len(tries), "last": last}
