"""`governance packs`: sets of ready-made policies, put in force and taken out again."""

from __future__ import annotations

import argparse
from typing import Any

from api.cli.api_client import RunningService, add_running_action, path_of, running
from api.cli.spelling import json_or_text, json_text, spelled
from api.cli.terminal import USAGE, WAITS, CommandError, Subparsers, add_yes, confirm, print_json, show
from schemas.suggestion import suggestion

COLUMNS = {
    "packId": "PACK",
    "name": "NAME",
    "inForceCount": "IN FORCE",
    "presetCount": "OF",
    "description": "DESCRIPTION",
}
PRESETS = {
    "presetId": "PRESET",
    "action": "ACTION",
    "policy": "POLICY",
    "settings": "NEEDS SETTINGS",
    "name": "NAME",
}
POLICIES = {
    "policyId": "POLICY",
    "action": "ACTION",
    "version": "VERSION",
    "presetId": "PRESET",
    "name": "NAME",
}
PARAMETERS = {"name": "PARAMETER", "type": "TYPE", "value": "VALUE", "description": "DESCRIPTION"}


def register(commands: Subparsers) -> None:
    what = "packs of ready-made policies: list, show, activate, deactivate"
    parser = commands.add_parser("packs", help=what)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_running_action(actions, "list", "list packs", _list)
    one = add_running_action(actions, "show", "show the presets and parameters of a pack", _show)
    activate = add_running_action(
        actions,
        "activate",
        "make the policies of a pack",
        _activate,
        "Shows them and asks. What was made already is left alone, and named where it is not in force.",
    )
    activate.add_argument(
        "--parameter",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="JSON, or a text as it is; may be repeated",
    )
    end = add_running_action(
        actions,
        "deactivate",
        "delete the policies made from a pack",
        _deactivate,
        "Shows them and asks, also those that were edited since or belong to another pack as well. "
        "Their versions stay readable.",
    )
    for command in (one, activate, end):
        command.add_argument("pack_id", metavar="PACK", help="from `governance packs list`")
    for command in (activate, end):
        command.add_argument("--preview", action="store_true", help="only show what would be done")
        add_yes(command)


def _list(arguments: argparse.Namespace) -> int:
    show(running(arguments).get("/v1/policy-presets/packs"), COLUMNS, arguments.format)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    service = running(arguments)
    pack, presets = _pack(service, arguments.pack_id), _presets(service)
    members = [presets[each] for each in pack["presetIds"] if each in presets]
    if arguments.format == "json":
        print_json(pack | {"presets": members})
        return 0
    print(spelled(f"{pack['name']}: {pack.get('description', '')}"))
    _print_presets(members, _made(service))
    _print_parameters(members, {})
    return 0


# ---- activation -----------------------------------------------------------------------------------------


def _activate(arguments: argparse.Namespace) -> int:
    service = running(arguments)
    pack, presets = _pack(service, arguments.pack_id), _presets(service)
    members = [presets[each] for each in pack["presetIds"] if each in presets]
    parameters = _parameters(arguments.parameter, members)
    wanted = [each for each in members if not each["activated"]]
    policies: dict[str, list[dict[str, Any]]] = {}
    if arguments.format == "table":
        policies = _made(service)
        _print_presets(members, policies)
        _print_parameters(members, parameters)
    elif arguments.preview:
        print_json({"new": [each["presetId"] for each in wanted], "parameters": parameters})
    if arguments.preview:
        return 0
    confirm(f"Make {len(wanted)} policies of the pack `{pack['name']}`?", arguments.yes)
    place = path_of("policy-presets", "packs", arguments.pack_id, "activate")
    made = service.send("POST", place, {"parameters": parameters}).value
    if arguments.format == "json":
        print_json(made)
        return 0
    for each in made:
        lacking = ", ".join(each.get("missingSettings", ()))
        waits = f"; not in force until these settings are made: {lacking}" if lacking else ""
        print(spelled(f"in force: {each['policyId']} ({each['action']}){waits}"))
    print(f"{len(made)} policies made or changed")
    fresh = {each["policyId"] for each in made}
    for policy in (each for preset in members for each in policies.get(preset["presetId"], ())):
        if policy["policyId"] not in fresh and (why := _idle(policy)):
            print(spelled(f"left as it is: {policy['policyId']} {why}"))
    return 0


def _idle(policy: dict[str, Any]) -> str | None:
    """Why a policy does not act, although it was made."""
    if not policy["enabled"]:
        return f"is disabled; `governance policies enable {policy['policyId']}` puts it in force"
    if policy.get("missingSettings"):
        return f"waits for settings: {', '.join(policy['missingSettings'])}"
    return "is in shadow mode" if policy["mode"] == "shadow" else None


def _parameters(given: list[str], presets: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--parameter` says, by the types of the presets: a text needs no quotes."""
    known = {name: shape for each in presets for name, shape in each.get("parameters", {}).items()}
    found: dict[str, Any] = {}
    for entry in given:
        name, sign, text = entry.partition("=")
        if not sign:
            raise CommandError(f"--parameter {entry}: write NAME=VALUE", USAGE)
        if name not in known:
            close = suggestion(name, known) or f"; known are {', '.join(sorted(known)) or 'none'}"
            raise CommandError(f"no preset of this pack has a parameter `{name}`{close}", USAGE)
        found[name] = text if known[name].get("type") == "string" else json_or_text(text)
    return found


def _deactivate(arguments: argparse.Namespace) -> int:
    service = running(arguments)
    pack, made = _pack(service, arguments.pack_id), _made(service)
    gone = [policy for preset in pack["presetIds"] for policy in made.get(preset, ())]
    if arguments.format == "table":
        show(gone, POLICIES, "table")
    elif arguments.preview:
        print_json(gone)
    if arguments.preview:
        return 0
    confirm(f"Delete {len(gone)} policies of the pack `{pack['name']}`?", arguments.yes)
    done, waiting = [], []
    for each in gone:
        try:
            _delete(service, each)
        except CommandError as error:
            if error.code != WAITS:
                raise
            waiting.append(error.shown)
            continue
        done.append(each)
        if arguments.format == "table":
            print(spelled(f"deleted: {each['policyId']}"))
    if waiting:
        told = f"{len(waiting)} deletions wait for another admin; see `governance changes list`"
        raise CommandError(told, WAITS, waiting)
    if arguments.format == "json":
        print_json(done)
    return 0


def _delete(service: RunningService, shown: dict[str, Any]) -> None:
    """The very version that was shown."""
    place = path_of("policies", shown["policyId"])
    found = service.send("GET", place)
    if found.value["version"] != shown["version"]:
        raise CommandError(f"`{shown['policyId']}` was changed meanwhile; look at it, and run this again")
    service.send("DELETE", place, match=found.headers.get("etag"))


# ---- what there is --------------------------------------------------------------------------------------


def _pack(service: RunningService, pack_id: str) -> dict[str, Any]:
    packs: dict[str, dict[str, Any]] = {
        each["packId"]: each for each in service.get("/v1/policy-presets/packs")
    }
    if pack_id not in packs:
        close = suggestion(pack_id, packs) or "; see `governance packs list`"
        raise CommandError(f"there is no pack `{pack_id}`{close}")
    return packs[pack_id]


def _presets(service: RunningService) -> dict[str, dict[str, Any]]:
    groups = service.get("/v1/policy-presets")
    return {preset["presetId"]: preset for group in groups for preset in group["presets"]}


def _made(service: RunningService) -> dict[str, list[dict[str, Any]]]:
    """The policies that were made of each preset."""
    found: dict[str, list[dict[str, Any]]] = {}
    for policy in service.page("/v1/policies", 10_000)[0]:
        found.setdefault(policy.get("presetId", ""), []).append(policy)
    return found


def _print_presets(presets: list[dict[str, Any]], made: dict[str, list[dict[str, Any]]]) -> None:
    rows = [
        each
        | {
            "policy": [policy["policyId"] for policy in made.get(each["presetId"], ())] or None,
            "settings": each.get("missingSettings"),
        }
        for each in presets
    ]
    show(rows, PRESETS, "table")


def _print_parameters(presets: list[dict[str, Any]], chosen: dict[str, Any]) -> None:
    known = {name: shape for each in presets for name, shape in each.get("parameters", {}).items()}
    rows = []
    for name, shape in sorted(known.items()):
        value = chosen.get(name, shape.get("default"))
        rows.append({"name": name, **shape, "value": None if value is None else json_text(value, None)})
    if rows:
        print()
        show(rows, PARAMETERS, "table")
