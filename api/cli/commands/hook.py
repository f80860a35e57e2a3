"""`governance hook`: puts the hook into an agent host's settings, and takes it out.

What an agent starts before each tool call, `governance hook HOST`, never comes here (`api/cli/__init__.py`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from api.cli.terminal import USAGE, CommandError, Subparsers, filled
from api.hosts.setup import DEFAULT_URL, SetupError, address_of, agent_id_of
from api.hosts.table import NAMES

if TYPE_CHECKING:
    from api.hosts.installer import Wish

DESCRIPTION = """\
`governance hook install HOST` lets the service decide each tool call of an agent: the host starts
`governance hook HOST` before the call, with the call on its input. Afterwards run `governance doctor HOST`.
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "hook", help="govern Claude Code, Codex, Cursor, Gemini CLI or Copilot", description=DESCRIPTION
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="write the hook into the host's settings")
    uninstall = actions.add_parser("uninstall", help="take the hook out of the host's settings")
    for action, run in ((install, _install), (uninstall, _uninstall)):
        action.set_defaults(run=run)
        action.add_argument("host", choices=NAMES, metavar="HOST", help=", ".join(NAMES))
        where = action.add_mutually_exclusive_group()
        where.add_argument("--user", action="store_true", help="your settings, for all projects (default)")
        where.add_argument(
            "--project", action="store_true", help="the settings of the project in this folder"
        )
    install.add_argument("--url", type=filled, metavar="URL", help=f"the service; default: {DEFAULT_URL}")
    install.add_argument(
        "--key-file",
        type=filled,
        metavar="FILE",
        help="holds the API key; default: ~/.config/governance/HOST.key, written from GOVERNANCE_API_KEY",
    )
    install.add_argument("--agent-id", type=filled, metavar="ID", help="default: the host's name")
    install.add_argument(
        "--fail-mode",
        choices=("closed", "open"),
        default="closed",
        help="while the service is away, `closed` denies; `open` lets calls through and journals them",
    )
    install.add_argument(
        "--timeout", type=int, metavar="SECONDS", help="to wait for a decision and a person; default: 300"
    )
    install.add_argument(
        "--http", action="store_true", help="let the host call the service itself, where it can"
    )


def _install(arguments: argparse.Namespace) -> int:
    from api.hosts import installer
    from api.hosts.table import host

    found = host(arguments.host)
    wish = _wish(arguments)
    if arguments.http and not found.entries.http:
        raise CommandError(f"{found.title} has no http hooks; leave --http out", USAGE)
    if arguments.http and found.name == "copilot" and not wish.url.startswith("https://"):
        raise CommandError("Copilot calls https addresses alone; give --url https://..., or leave --http out")
    file = installer.settings_file(found, Path.cwd() if arguments.project else None, os.environ)
    try:
        text = installer.with_hook(file, wish)
        if not arguments.http:
            _keep_key(wish.key_file)
        changed = installer.write(file, text)
    except (installer.InstallError, OSError) as error:
        raise CommandError(str(error), USAGE) from None
    print(f"{file}: {'the hook is installed' if changed else 'the hook was there already'}")
    for note in (*found.entries.notes, *_notes(arguments)):
        print(f"note: {note}")
    print(f"next: governance doctor {found.name}")
    return 0


def _notes(arguments: argparse.Namespace) -> list[str]:
    from api.hosts.table import host

    notes = []
    if arguments.http:
        notes.append("the host must be started with GOVERNANCE_API_KEY in its environment")
        if arguments.host == "copilot":
            notes.append("Copilot lets a call through when its http hook fails; its command hook denies")
    if arguments.project:
        notes.append("the entry names Python and files of this machine; do not commit it for others")
        if trust := host(arguments.host).entries.trust:
            notes.append(f"the host reads it only in a folder that it trusts: {trust}")
    return notes


def _wish(arguments: argparse.Namespace) -> Wish:
    from api.hosts.installer import DECIDE_SECONDS, Wish
    from api.hosts.table import host

    timeout = DECIDE_SECONDS if arguments.timeout is None else arguments.timeout
    if not 10 <= timeout <= 3600:
        raise CommandError(f"--timeout must be from 10 to 3600 seconds, not {timeout}", USAGE)
    default = _default_key_file(arguments.host)
    key_file = Path(arguments.key_file).expanduser().absolute() if arguments.key_file else default
    try:
        url = address_of(arguments.url or os.environ.get("GOVERNANCE_URL") or DEFAULT_URL)
        agent_id = agent_id_of(arguments.agent_id or os.environ.get("GOVERNANCE_AGENT_ID", ""))
    except SetupError as error:
        raise CommandError(str(error), USAGE) from None
    return Wish(host(arguments.host), url, key_file, agent_id, arguments.fail_mode, timeout, arguments.http)


def _default_key_file(host: str) -> Path:
    """One for each host: a key may be bound to one agent, and another host's would speak in its name."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "governance" / f"{host}.key"


def _keep_key(file: Path | None) -> None:
    """The key of the environment in the file, which its owner alone can read; raises CommandError."""
    from api.hosts.installer import KEY_VARIABLE, replace
    from api.hosts.setup import key_of

    assert file is not None
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if key and (not key.isascii() or not key.isprintable()):
        raise CommandError(f"{KEY_VARIABLE} holds no API key", USAGE)
    if not key:
        try:
            key_of(str(file))
        except SetupError as error:
            raise CommandError(
                f"{error}; put an API key there, or set {KEY_VARIABLE}, and run this again (an admin"
                " makes one with `governance keys add NAME`)",
                USAGE,
            ) from None
        file.chmod(0o600)
        return
    if not file.parent.exists():
        file.parent.mkdir(mode=0o700, parents=True)
    try:
        is_another = key_of(str(file)) != key
    except SetupError:
        is_another = False
    replace(file, key + "\n", 0o600)
    print(f"{file}: holds the API key, for you alone", file=sys.stderr)
    if is_another:
        print(
            "note: it held another API key; hooks that are installed with this file, also of other projects, "
            "use this one from now on (--key-file FILE keeps them apart)",
            file=sys.stderr,
        )


def _uninstall(arguments: argparse.Namespace) -> int:
    from api.hosts import installer
    from api.hosts.table import host

    found = host(arguments.host)
    file = installer.settings_file(found, Path.cwd() if arguments.project else None, os.environ)
    try:
        changed = installer.write(file, installer.without_hook(file, found))
    except (installer.InstallError, OSError) as error:
        raise CommandError(str(error), USAGE) from None
    print(f"{file}: {'the hook is gone' if changed else 'there was no hook'}")
    return 0
