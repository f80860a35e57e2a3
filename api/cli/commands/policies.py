"""`governance policies`: the policies of a running service; `lint`, `test` and `diff` are for files."""

from __future__ import annotations

import argparse
from typing import Any

from api.cli.api_client import RunningService, add_limit, add_running_action, path_of, running, show_page
from api.cli.commands.simulate import read_policy
from api.cli.spelling import spelled
from api.cli.terminal import Subparsers, add_yes, confirm, print_json, show, tell

COLUMNS = {
    "policyId": "POLICY",
    "name": "NAME",
    "action": "ACTION",
    "mode": "MODE",
    "enabled": "ENABLED",
    "version": "VERSION",
    "presetId": "PRESET",
    "updatedAt": "UPDATED",
}
VERSIONS = {
    "version": "VERSION",
    "name": "NAME",
    "action": "ACTION",
    "enabled": "ENABLED",
    "archivedAt": "ARCHIVED",
    "archivedBy": "BY",
}
_OF_SERVICE = ("version", "createdAt", "updatedAt", "missingSettings")
"""Members that the service adds to what a policy says."""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "policies",
        help="policies of a running service: list, show, enable, disable, history, rollback, apply",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_running_action(actions, "list", "list policies, by name", _list)
    listing.add_argument(
        "--search", metavar="TEXT", help="only those that have it in name, id or description"
    )
    add_limit(listing)
    one = add_running_action(actions, "show", "show a policy as its file would be", _show)
    enable = add_running_action(actions, "enable", "put a policy in force", _enable)
    disable = add_running_action(actions, "disable", "take a policy out of force", _disable)
    past = add_running_action(actions, "history", "list earlier versions, newest first", _history)
    back = add_running_action(actions, "rollback", "make an earlier version the newest", _rollback)
    for command in (one, enable, disable, past, back):
        command.add_argument("policy_id", metavar="POLICY", help="from `governance policies list`")
    back.add_argument("version", type=int, metavar="VERSION", help="from `governance policies history`")
    apply = add_running_action(
        actions,
        "apply",
        "create or change a policy as a file says",
        _apply,
        "What the file does not say is removed. A policy that says the same already stays as it is.",
    )
    apply.add_argument("file", metavar="FILE", help="YAML, as in the policies folder; `-`: the input")
    for command in (disable, back, apply):
        add_yes(command)


def _list(arguments: argparse.Namespace) -> int:
    return show_page(arguments, "/v1/policies", COLUMNS, search=arguments.search)


def _show(arguments: argparse.Namespace) -> int:
    policy = running(arguments).get(path_of("policies", arguments.policy_id))
    if arguments.format == "json":
        print_json(policy)
        return 0
    from engine.documents.document import API_VERSION
    from engine.documents.edit import dump

    told = [f"# made {policy['createdAt']}, as it is since {policy['updatedAt']}"]
    if policy.get("missingSettings"):
        told.append(f"# {_lacks(policy)}")
    head = {"apiVersion": API_VERSION, "kind": "Policy", "version": policy["version"]}
    says = {key: value for key, value in policy.items() if key not in _OF_SERVICE}
    print(spelled(dump(head | says, told)), end="")
    return 0


def _history(arguments: argparse.Namespace) -> int:
    found = running(arguments).get(path_of("policies", arguments.policy_id, "versions"))
    if arguments.format == "json":
        print_json(found)
        return 0
    show(found["versions"], VERSIONS, "table")
    print(f"the newest is version {found['currentVersion']}")
    return 0


def _enable(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("policies", arguments.policy_id)
    return _done(service.send("PATCH", place, {"enabled": True}).value, arguments, "enabled")


def _disable(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("policies", arguments.policy_id)
    found = service.send("GET", place)
    confirm(f"Take `{found.value['name']}` ({found.value['action']}) out of force?", arguments.yes)
    changed = service.send("PATCH", place, {"enabled": False}, match=found.headers.get("etag")).value
    return _done(changed, arguments, "disabled")


def _rollback(arguments: argparse.Namespace) -> int:
    service, place = running(arguments), path_of("policies", arguments.policy_id)
    found = service.send("GET", place)
    name, version = found.value["name"], found.value["version"]
    confirm(f"Make version {arguments.version} of `{name}` (now {version}) the newest?", arguments.yes)
    body, tag = {"version": arguments.version}, found.headers.get("etag")
    changed = service.send("POST", f"{place}/rollback", body, match=tag).value
    return _done(changed, arguments, f"as version {arguments.version} was")


def _done(policy: dict[str, Any], arguments: argparse.Namespace, how: str) -> int:
    lacks = [_lacks(policy)] if policy.get("missingSettings") else []
    said = f"{policy['policyId']} is {how}, version {policy['version']}"
    tell(policy, arguments.format, said, *lacks)
    return 0


def _lacks(policy: dict[str, Any]) -> str:
    settings = ", ".join(policy["missingSettings"])
    return f"it is not in force until these settings of the organisation are made: {settings}"


# ---- from a file ----------------------------------------------------------------------------------------


def _apply(arguments: argparse.Namespace) -> int:
    from engine.documents.edit import same

    wanted = _wanted(arguments.file)
    service = running(arguments)
    place = path_of("policies", wanted["policyId"])
    found = _existing(service, wanted)
    if found is None:
        confirm(f"Create the policy `{wanted['policyId']}` ({wanted['action']})?", arguments.yes)
        return _done(service.send("POST", "/v1/policies", wanted).value, arguments, "created")
    policy, tag = found
    has = {key: value for key, value in policy.items() if key not in _OF_SERVICE}
    if same(has, wanted):
        return _done(policy, arguments, "as the file says already")
    gone = [key for key in has if key not in wanted]
    changed = [key for key, value in wanted.items() if not same(has.get(key), value)]
    named = ", ".join(f"`{key}`" for key in (*changed, *gone))
    confirm(f"Change {named} of the policy `{wanted['policyId']}`?", arguments.yes)
    body = {key: wanted[key] for key in changed} | dict.fromkeys(gone)
    return _done(service.send("PATCH", place, body, match=tag).value, arguments, "changed")


def _wanted(file: str) -> dict[str, Any]:
    """What the file says, in the shape of the API. Raises DocumentError at its place in the file."""
    from engine.documents.policy import policy_as_json

    shape: dict[str, Any] = policy_as_json(read_policy(file))
    return {key: value for key, value in shape.items() if key not in _OF_SERVICE}


def _existing(service: RunningService, wanted: dict[str, Any]) -> tuple[dict[str, Any], str | None] | None:
    """The policy of this id and its ETag."""
    rows, _ = service.page("/v1/policies", 1_000, search=wanted["policyId"])
    if not any(each["policyId"] == wanted["policyId"] for each in rows):
        return None
    answer = service.send("GET", path_of("policies", wanted["policyId"]))
    return answer.value, answer.headers.get("etag")
