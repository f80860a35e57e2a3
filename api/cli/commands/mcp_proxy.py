"""`governance mcp-proxy`: governs the tool calls of any MCP client to one server, over stdio or HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from api.cli.spelling import spelled
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, filled, say_error

if TYPE_CHECKING:
    from api.mcp_proxy.tools.pin_file import PinFile

ADMIT = "admit"
WAIT_SECONDS = 50.0

EPILOG = """\
Write it before the command of an MCP server wherever your client starts that server; the client notices
nothing but refusals. GOVERNANCE_URL, GOVERNANCE_API_KEY, GOVERNANCE_AGENT_ID, GOVERNANCE_FAIL_MODE and
GOVERNANCE_JOURNAL are those of the client library; the server is started without them.

The definitions of the tools are pinned as they are first seen. One that changes is held: its calls are
refused, and the list shows it as it was, until somebody has looked at it: `governance mcp-proxy admit
SERVER`.

exit codes:
  that of the server; of a server behind --url, 0
  1  with `admit`: something is held and was not admitted
  2  wrong usage or settings; nothing was started

examples:
  governance mcp-proxy -- npx -y @modelcontextprotocol/server-everything
  governance mcp-proxy --url https://mcp.example/mcp --header 'Authorization: Bearer ${MCP_TOKEN}'
  governance mcp-proxy admit server-everything --tool echo
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "mcp-proxy",
        help="govern the tool calls of an MCP client to one server",
        description="Stands between an MCP client and a server, and asks the service before each tool call.",
        usage="governance mcp-proxy [options] -- COMMAND ...\n"
        "       governance mcp-proxy [options] --url URL\n"
        "       governance mcp-proxy admit SERVER [--tool NAME ... | --all]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="starts a server on its input and output")
    parser.add_argument("--url", type=filled, metavar="URL", help="a server of Streamable HTTP instead")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="sent to --url; ${NAME} stands for a variable of the environment",
    )
    parser.add_argument(
        "--server-name",
        type=filled,
        metavar="NAME",
        help="what policies and pins call the server, as in `mcp__NAME__tool`; default: from COMMAND or URL",
    )
    parser.add_argument(
        "--key-file",
        type=filled,
        metavar="FILE",
        help="holds the API key, where the client's own settings should not; default: GOVERNANCE_API_KEY",
    )
    parser.add_argument(
        "--task",
        metavar="TEXT",
        help="what the session is for, which policies may ask about; or GOVERNANCE_TASK",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long a call waits for its approval until it ends as still open; default: {WAIT_SECONDS:g}",
    )
    parser.add_argument(
        "--pin",
        choices=("first", "strict"),
        default="first",
        help="admit a tool as it is first seen, or never without `admit`; default: first",
    )
    parser.add_argument(
        "--pins", type=filled, metavar="DIR", help="where admitted tools are kept; default: in XDG_STATE_HOME"
    )
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", help="with `admit`: this one")
    parser.add_argument("--all", action="store_true", help="with `admit`: every one that is held")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from api.mcp_proxy.tools.pin_file import PinError

    try:
        if arguments.words[:1] == [ADMIT]:
            return _admit(arguments)
        return _serve(arguments)
    except (PinError, ValueError) as error:
        raise CommandError(str(error), USAGE) from None


def _serve(arguments: argparse.Namespace) -> int:
    import asyncio

    from governance_client import ClientSettings

    from api.hosts.setup import SetupError, key_of
    from api.mcp_proxy.proxy import ProxySettings, StartError, serve
    from api.mcp_proxy.server_name import default_name

    if bool(arguments.words) == bool(arguments.url):
        raise CommandError("say which server: `-- COMMAND ...`, or --url URL", USAGE)
    if arguments.tool or arguments.all:
        raise CommandError("--tool and --all go with `governance mcp-proxy admit SERVER`", USAGE)
    if arguments.header and not arguments.url:
        raise CommandError("--header is for a server behind --url", USAGE)
    if not 0 <= arguments.wait < 86_400:
        raise CommandError(f"--wait is {arguments.wait:g}; write seconds, such as {WAIT_SECONDS:g}", USAGE)
    name = arguments.server_name or default_name(arguments.words, arguments.url)
    try:
        own = {"GOVERNANCE_API_KEY": key_of(arguments.key_file)} if arguments.key_file else {}
        settings = ProxySettings(
            service=ClientSettings.from_env(os.environ | own),
            server_name=name,
            command=tuple(arguments.words),
            url=arguments.url,
            headers=tuple(_header(each) for each in arguments.header),
            task=arguments.task or os.environ.get("GOVERNANCE_TASK") or None,
            wait_seconds=arguments.wait,
            strict=arguments.pin == "strict",
            pins=_folder(arguments),
        )
        return asyncio.run(serve(settings, say_error))
    except (ValueError, SetupError, StartError) as error:
        raise CommandError(str(error), USAGE) from None


def _admit(arguments: argparse.Namespace) -> int:
    if len(arguments.words) != 2:
        raise CommandError("say of which server: governance mcp-proxy admit SERVER", USAGE)
    from api.mcp_proxy.tools.differences import told

    pins = _pins(arguments)
    held = pins.held()
    unknown = [name for name in arguments.tool if name not in held]
    if unknown:
        raise CommandError(f"`{unknown[0]}` is not held; held: {', '.join(held) or 'nothing'}", USAGE)
    chosen = list(held) if arguments.all else list(dict.fromkeys(arguments.tool))
    for name, (before, now) in held.items():
        print(told(name, before, now))
    admitted = pins.admit({name: now for name, (_, now) in held.items()}, chosen)
    for name in chosen:
        if name not in admitted:
            print(
                spelled(f"{name} is another one than when you last looked; look at it, and admit it then", "")
            )
    left = [name for name in held if name not in admitted]
    done = f"admitted: {', '.join(admitted) or 'nothing'}; held: {', '.join(left) or 'nothing'}"
    print(spelled(done, ""))
    return FAILED if left else 0


def _pins(arguments: argparse.Namespace) -> PinFile:
    from api.mcp_proxy.server_name import checked_name
    from api.mcp_proxy.tools.pin_file import PinFile

    name = arguments.words[1]
    pins = PinFile(_folder(arguments), checked_name(name))
    if not pins.path.exists():
        raise CommandError(f"nothing is known of a server `{name}`: there is no `{pins.path}`", USAGE)
    return pins


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.pins:
        return Path(arguments.pins)
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        return Path(state).expanduser() / "governance" / "mcp"
    except RuntimeError:
        raise CommandError("there is no home folder; say with --pins where tools are kept", USAGE) from None


def _header(text: str) -> tuple[str, str]:
    import re

    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name.strip()):
        raise ValueError(f"--header `{name}` is no header; write 'NAME: VALUE'")

    def variable(found: re.Match[str]) -> str:
        if (there := os.environ.get(found[1])) is None:
            raise ValueError(f"--header `{name}` needs the variable `{found[1]}`, which is not set")
        return there

    filled_in = re.sub(r"\$\{(\w+)\}", variable, value).strip()
    if not filled_in.isascii() or not filled_in.isprintable():
        raise ValueError(f"--header `{name}` has a value that no header can carry")
    return name.strip(), filled_in
