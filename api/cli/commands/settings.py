"""`governance settings`: what policies know of the organisation. Works on the policies folder; a service that
runs takes the file over."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from api.cli.local_store import add_organisation
from api.cli.policy_source import default_folder
from api.cli.spelling import json_or_text, spelled
from api.cli.terminal import USAGE, CommandError, Subparsers, add_format, filled, say_error, show

if TYPE_CHECKING:
    from engine.conditions.placeholders import Parameter
    from engine.model import OrganisationSettings
    from engine.worktree.disk import Disk

COLUMNS = {"name": "NAME", "value": "VALUE", "from": "FROM", "description": "WHAT IT IS"}
TRIES = 10
"""Others may change the file meanwhile."""
MOST_GONE = 10
"""Entries of a list that are named as gone."""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("settings", help="what policies know of the organisation: list, set, unset")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "list", "list every setting and its value", _list)
    setting = _action(actions, "set", "give a setting a value", _set)
    setting.add_argument("name", metavar="NAME", type=filled, help="such as companyDomains")
    setting.add_argument("values", metavar="VALUE", nargs="+", help="a number, or all texts of a list")
    unset = _action(actions, "unset", "take a value away; what is shipped counts again, if anything", _unset)
    unset.add_argument("name", metavar="NAME", type=filled, help="such as companyDomains")


def _action(actions: Subparsers, name: str, help: str, run: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = actions.add_parser(name, help=help, description=help)
    made.add_argument(
        "--dir",
        metavar="DIR",
        type=filled,
        help="the policies folder; default: GOVERNANCE_POLICIES_DIR or ./policies.d",
    )
    add_organisation(made)
    add_format(made)
    made.set_defaults(run=run)
    return made


def _list(arguments: argparse.Namespace) -> int:
    from engine.conditions.settings import SETTINGS, value_of

    _, settings, _ = _read(arguments)

    def origin(name: str) -> str:
        if name in settings.values:
            return "set"
        return "missing" if value_of(settings, name) is None else "shipped"

    rows = [
        {
            "name": name,
            "value": value_of(settings, name),
            "from": origin(name),
            "description": setting.description,
        }
        for name, setting in SETTINGS.items()
    ]
    rows += [
        {
            "name": f"notifications.{name}",
            "value": [channel["type"], *channel["events"]],
            "from": "set",
            "description": "A channel by which people are told.",
        }
        for name, channel in sorted(settings.values.get("notifications", {}).items())
    ]
    show(rows, COLUMNS, arguments.format)
    return 0


def _set(arguments: argparse.Namespace) -> int:
    setting = _known(arguments.name)
    value: Any = arguments.values
    if setting.type != "list":
        if len(arguments.values) > 1:
            raise CommandError(f"`{arguments.name}` takes one value", USAGE)
        value = arguments.values[0]
        if setting.type in ("number", "integer"):
            value = json_or_text(value)
    return _change(arguments, {arguments.name: value})


def _unset(arguments: argparse.Namespace) -> int:
    _known(arguments.name)
    return _change(arguments, {arguments.name: None})


def _known(name: str) -> Parameter:
    from engine.conditions.settings import SETTINGS
    from schemas.suggestion import suggestion

    if name == "notifications":
        raise CommandError("channels are written in the file, `settings/<organisationId>.yaml`", USAGE)
    if name == "changes":
        raise CommandError("who agrees to changes is written in `settings/<organisationId>.yaml`", USAGE)
    if name not in SETTINGS:
        near = suggestion(name, SETTINGS) or "; see `governance settings list`"
        raise CommandError(f"there is no setting `{name}`{near}", USAGE)
    return SETTINGS[name]


def _change(arguments: argparse.Namespace, changes: dict[str, Any]) -> int:
    from engine.documents.document import digest_of
    from engine.documents.edit import dump, edit
    from engine.documents.settings import load_settings, settings_document
    from engine.errors import DocumentError, EngineError
    from engine.worktree.observer import DiskChanged
    from engine.worktree.paths import path_of_settings
    from engine.worktree.worktree import Worktree

    path = path_of_settings(arguments.organisation)
    for _ in range(TRIES):
        disk, settings, content = _read(arguments)
        values = {key: value for key, value in (dict(settings.values) | changes).items() if value is not None}
        if content is None:
            document = settings_document(arguments.organisation, 1, values)
            del document["version"]
            after = dump(document).encode()
        else:
            after = edit(content, {"settings": values})
        try:
            load_settings(after, path)
            Worktree(disk).put(path, after, None if content is None else digest_of(content))
        except DiskChanged:
            continue  # another command, the service or an editor was faster
        except DocumentError as error:
            raise CommandError("\n".join(each.message for each in error.problems), USAGE) from None
        except EngineError as error:
            raise CommandError(str(error)) from None
        rows = [{"name": name, "value": _shown(values.get(name))} for name in changes]
        show(rows, {key: COLUMNS[key] for key in ("name", "value")}, arguments.format)
        if content is None and arguments.organisation != "default":
            say_error(
                f"`{path}` is new; it counts for an organisation with the id `{arguments.organisation}`, and "
                "`governance organisations list` tells which there are"
            )
        for name in changes:
            _tell_of_gone(name, settings, replace(settings, values=values))
            _tell_of_no_value(name, settings, replace(settings, values=values))
        return 0
    raise CommandError(f"`{path}` was changed by others again and again; nothing is set, try again")


def _tell_of_gone(name: str, before: OrganisationSettings, after: OrganisationSettings) -> None:
    """Whoever means to add to a list, takes its place: a folder or branch that is shipped would be no longer
    protected, and nothing else would say so."""
    from engine.conditions.settings import value_of
    from engine.worktree.disk import listed

    was, remains = value_of(before, name), value_of(after, name)
    if isinstance(was, list | tuple) and (
        gone := [f"`{each}`" for each in was if each not in (remains or ())]
    ):
        told = (
            f"`{name}` holds no more: {listed(gone, MOST_GONE)}; a list takes the place of the one before, so"
        )
        say_error(spelled(f"{told} name what is to count beside it again"))


def _tell_of_no_value(name: str, before: OrganisationSettings, after: OrganisationSettings) -> None:
    """The files are refused then as a whole where policies read it, by a service that runs on them."""
    from engine.conditions.settings import value_of

    if value_of(before, name) is not None and value_of(after, name) is None:
        say_error(
            f"`{name}` has no value any more: where policies in force read it, a service takes over neither"
            " this nor later edits of the files until it has one again, or they are disabled; `policies` in"
            " /health names them"
        )


def _read(arguments: argparse.Namespace) -> tuple[Disk, OrganisationSettings, bytes | None]:
    """The folder, and what it says of the organisation."""
    from pathlib import Path

    from engine.conditions.settings import NO_SETTINGS
    from engine.documents.settings import load_settings
    from engine.errors import DocumentError
    from engine.worktree.disk import Disk, reason
    from engine.worktree.paths import path_of_settings

    folder = Path(arguments.dir or default_folder())
    if not (folder / "policies").is_dir():
        raise CommandError(f"`{folder}` is no policies folder; say where it is with --dir", USAGE)
    disk = Disk(folder)
    try:
        path = path_of_settings(arguments.organisation)
        content = disk.read(path)
        settings = NO_SETTINGS if content is None else load_settings(content, path)[0]
    except DocumentError as error:
        raise CommandError("\n".join(map(str, error.problems)), USAGE) from None
    except OSError as error:
        raise CommandError(f"`{path}` cannot be read: {reason(error)}", USAGE) from None
    return disk, settings, content


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
