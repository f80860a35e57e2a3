"""`governance serve`: make what is missing, say where everything is, and serve.

Whatever forbids serving is found before the first worker starts, or said by the first that fails, in words:
the address first, so that a second start by mistake changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from api.cli.serving import hang_up
from api.cli.serving.log_lines import json_line
from api.cli.serving.server_log import configuration
from api.cli.terminal import USAGE, CommandError, Subparsers, drop_output, program

if TYPE_CHECKING:
    from api.bootstrap import FirstStart
    from api.cli.serving.hang_up import HangUp
    from api.database.connection import Database
    from api.settings import Settings
    from api.store.policy_archive import SqlRecords

T = TypeVar("T")
_HEADINGS: Final = {"apiDocs": "API docs"}

FLAGS: Final = {
    "host": ("ADDRESS", "address to listen on"),
    "port": ("PORT", "port to listen on; 0: any free one"),
    "workers": ("N", "server processes"),
    "env": ("NAME", "`development` or `production`"),
    "data_dir": ("DIR", "folder of the embedded database and the signing secret"),
    "policies_dir": ("DIR", "folder of policies, presets and tools"),
    "database_url": ("URL", "`sqlite:///file` or `postgresql://...`"),
    "frontend_url": ("URL", "address of the web front end in approval links"),
    "git": ("MODE", "`off` or `commit`"),
}
"""Flag (and field of the settings) -> metavar, help. Each goes before its GOVERNANCE_* variable."""

GRACE: Final = 15
"""Seconds that requests under way have to finish when the service is told to stop."""
KEEP_ALIVE: Final = 150
"""Seconds that an idle connection stays open: longer than proxies keep theirs (nginx 60, Go's and Traefik 90,
Caddy 120), or a request that they send just when it ends is 502, and never comes."""
TAKEN_TOGETHER: Final = 16
"""New connections in one round of the event loop."""
FEWEST_FILES: Final = 128
"""With fewer, idle connections leave none for the database."""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Runs the service. The first start makes a data folder, an admin and an API key, and "
        "prints them once.",
        epilog="Exit codes: 0 stopped as asked; 2 it refused to start and said why.",
    )
    for name, (metavar, help) in FLAGS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, metavar=metavar, help=f"{help} (GOVERNANCE_{name.upper()})")
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from api.settings import load

    on_hang_up = hang_up.installed(follows_terminal=True)
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings = load(**flags)
    for name, value in flags.items():
        if value is not None:
            # Worker processes read the environment alone.
            os.environ[f"GOVERNANCE_{name.upper()}"] = value
    _check_open_files()
    listener = _listen(settings.host, settings.port)
    try:
        _check_policies_folder(settings)
        # With port 0 the system has chosen one; links must name it.
        os.environ["GOVERNANCE_PORT"] = str(listener.getsockname()[1])
        settings = load()
        with contextlib.ExitStack() as lasting:
            made = _prepared(settings, lasting)
            _tell(settings, banner(settings, made), start_members(settings, made))
            return _run(settings, listener, on_hang_up)
    finally:
        listener.close()


def _tell(settings: Settings, text: str, members: Mapping[str, Any] | None = None) -> None:
    """In the form of the log, as one line of JSON whose `message` the first line is. Serving goes on when
    whoever read this (`head`) is gone."""
    if settings.log_format == "json":
        text = json_line("info", text.splitlines()[0], members or {})
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def _prepared(settings: Settings, lasting: contextlib.ExitStack) -> FirstStart:
    """What was missing, made; or the reason why the service does not start, alone. `lasting` ends when
    it serves no more."""
    from api import bootstrap
    from api.cli.serving.server_process import reason, refused
    from api.policies import one_folder

    def check(store: Database) -> None:
        _check_policies(settings, store)

    try:
        made = bootstrap.prepare(settings, check=check)
        lasting.enter_context(one_folder.held(settings))
        return made
    except Exception as error:
        if not refused(error):
            raise
        raise CommandError(f"refused to start: {reason(error)}", USAGE) from None


def _check_policies(settings: Settings, store: Database) -> None:
    """Whether the workers will refuse the folder, which they do while no set was ever in force. They load it
    themselves; later starts, which may have thousands of files, spare the time."""
    from api.cli.serving.server_process import loading_line
    from api.clock import iso, random_ids, system_clock
    from api.store.policy_archive import SqlArchive
    from engine.repository.repository import Repository

    class LooksOnly(SqlArchive):
        def transact(self, work: Callable[[SqlRecords], T]) -> T:
            raise _Loads

    archive = LooksOnly(store, system_clock, random_ids)
    if archive.view(lambda records: records.head())[0] == 0:
        repository = Repository(settings.policies_dir, archive, clock=lambda: iso(system_clock()))
        line = loading_line(sys.stderr, "MainProcess")
        try:
            with contextlib.suppress(_Loads):
                repository.start(line)
        finally:
            if line is not None:
                line.clear()


class _Loads(Exception):
    """The folder is good: it was about to be recorded."""


def _check_open_files() -> None:
    """Beside its connections the service needs some for the database, its log, policy files and webhooks."""
    if os.name == "nt":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < FEWEST_FILES:
        raise CommandError(
            f"this process may open {limit} files only, and needs {FEWEST_FILES} or more; raise the limit, "
            "such as with `ulimit -n 4096`",
            USAGE,
        )


def _check_policies_folder(settings: Settings) -> None:
    from api.cli.serving.shipped import lay_out, shipped

    folder = settings.policies_dir
    try:
        if lay_out(settings):
            _tell(settings, f"`{folder}` is made of the shipped policies, presets and tool sets")
    except OSError as error:
        raise CommandError(f"`{folder}` cannot be made: {error}", USAGE) from None
    if not folder.is_dir():
        raise CommandError(
            f"there is no policies folder `{folder}`; make it, or say where it is with --policies-dir; the "
            f"shipped one is `{shipped()}`",
            USAGE,
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise CommandError(f"the policies folder `{folder}` cannot be read", USAGE)


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket, which the workers share."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
    except (OSError, UnicodeError):
        raise CommandError(f"`{host}` is no address of this machine; set --host", USAGE) from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening now finds a port that another service listens on, which binding alone may not.
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        match error.errno:
            case errno.EADDRINUSE:
                message = (
                    f"port {port} of {host} is in use; stop what listens there, or choose another --port"
                )
            case errno.EACCES:
                message = f"port {port} is reserved for the system; choose one above 1023 with --port"
            case errno.EADDRNOTAVAIL:
                message = f"`{host}` is no address of this machine; set --host"
            case _:
                message = f"cannot listen on {host}:{port}: {error.strerror}"
        raise CommandError(message, USAGE) from None
    listener.set_inheritable(True)
    return listener


def proxies(networks: Iterable[str]) -> list[str]:
    """These, and how a listener of both families (`::`) names those of IPv4: `::ffff:10.0.0.7`."""
    from ipaddress import ip_network

    parsed = [ip_network(network) for network in networks]
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in parsed if each.version == 4]
    return [*map(str, parsed), *mapped]


def banner(settings: Settings, made: FirstStart) -> str:
    """What a person wants to know at the start. Secrets stand in it at the first start only."""
    from api.version import VERSION

    lines = [f"Agent Governance Service {VERSION}", ""]
    lines += [f"  {_HEADINGS.get(name, name):<9} {place}" for name, place in _places(settings).items()]
    lines.append("")
    if made.admin_email is not None:
        password = made.admin_password or "the one in GOVERNANCE_ADMIN_PASSWORD"
        lines += [f"  admin     {made.admin_email}", f"  password  {password}"]
    if made.made_key:
        lines.append(f"  API key   {made.api_key or 'the one in GOVERNANCE_API_KEY'}")
    if made.made_anything:
        lines.append("")
    if made.admin_password is not None or made.api_key is not None:
        lines += ["  These secrets are kept nowhere and shown only now. Note them.", ""]
    if made.made_key:
        command = f"{program()} keys add NAME --agent ID{_where(settings)}"
        lines += [f"  This key may name any agent. Give each agent one of its own: {command}", ""]
    if not made.made_anything:
        where = _where(settings)
        lines += [
            f"  Lost the password? {program()} users password EMAIL{where}",
            f"  Another API key?   {program()} keys add NAME{where}",
            "",
        ]
    if notes := [*_notes(settings), *made.notes]:
        lines += [*(f"  {note}" for note in notes), ""]
    return "\n".join(lines)


def start_members(settings: Settings, made: FirstStart) -> dict[str, Any]:
    """The same for programs. Secrets stand in it as in the banner."""
    members: dict[str, Any] = _places(settings)
    secrets = {"admin": made.admin_email, "password": made.admin_password, "apiKey": made.api_key}
    members |= {name: value for name, value in secrets.items() if value is not None}
    if notes := [*_notes(settings), *made.notes]:
        members["notes"] = notes
    return members


def _places(settings: Settings) -> dict[str, str]:
    return {
        "service": settings.base_url,
        "console": f"{settings.frontend}/approvals",
        "guide": f"{settings.base_url}/docs",
        "apiDocs": f"{settings.base_url}/api/docs",
        "policies": str(settings.policies_dir),
        "data": _data(settings),
    }


def _where(settings: Settings) -> str:
    """The flag with which other commands find these data; never an address with a password."""
    from api.settings import TABLE

    if settings.database_url.startswith("sqlite:"):
        return f" --database-url {shlex.quote(settings.database_url)}"
    if settings.database_url:
        return " --database-url URL"
    default = next(row.default for row in TABLE if row.field == "data_dir")
    if settings.data_dir == Path(default):
        return ""
    return f" --data-dir {shlex.quote(str(settings.data_dir))}"


def _data(settings: Settings) -> str:
    if settings.database.startswith("sqlite:"):
        return settings.database.removeprefix("sqlite:///")
    return "PostgreSQL"


def _notes(settings: Settings) -> list[str]:
    """What is allowed but probably not meant."""
    notes = []
    everywhere = settings.host in ("0.0.0.0", "::")
    if everywhere and not settings.frontend_url:
        notes.append(
            f"Approval links will lead to {settings.frontend}; "
            "set GOVERNANCE_FRONTEND_URL to the address that people use."
        )
    if not settings.database.startswith("sqlite:") and not settings.jwt_secret:
        notes.append(
            "Tokens are signed with a secret of this machine's data folder; "
            "set the same GOVERNANCE_JWT_SECRET on every node."
        )
    return notes


def _handles(listener: socket.socket) -> list[socket.socket]:
    """The socket, and further names of it. Of each, uvloop takes one connection in a round, so that with a
    single one a new connection would wait for as many rounds as there are others before it."""
    return [listener, *(listener.dup() for _ in range(TAKEN_TOGETHER - 1))]


def _run(settings: Settings, listener: socket.socket, on_hang_up: HangUp | None) -> int:
    import uvicorn
    from uvicorn.config import STARTUP_FAILURE

    from api.server.connections.event_fast_path import EventProtocol

    config = uvicorn.Config(
        "api.cli.serving.server_process:application",
        factory=True,
        workers=settings.workers,
        lifespan="on",
        http=EventProtocol,
        ws="none",
        access_log=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=proxies(settings.trusted_proxies),
        server_header=False,
        log_config=configuration(settings.log_format, settings.secrets),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    if settings.workers > 1:
        from api.cli.serving.supervisor import Supervisor

        supervisor = Supervisor(config, _handles(listener), on_hang_up)
        supervisor.run()
        return USAGE if supervisor.was_refused else 0
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server raises the signal that stopped it once more when it is done: being told to stop is no
        # failure.
        signal.signal(number, _stopped)
    try:
        uvicorn.Server(config).run(sockets=_handles(listener))
    except SystemExit as stopped:
        return USAGE if stopped.code == STARTUP_FAILURE else 0
    return 0


def _stopped(_number: int, _frame: FrameType | None) -> NoReturn:
    # Whoever presses Ctrl-C twice has the server leave what is under way, which it would tell of as a fault.
    logging.getLogger("uvicorn.error").disabled = True
    raise SystemExit(0)
