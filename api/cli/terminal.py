"""What commands say: tables for people, JSON for programs, errors on the error stream."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from api.cli.spelling import json_text, spelled

FAILED: Final = 1
USAGE: Final = 2
AWAY: Final = 3
WAITS: Final = 4
INTERRUPTED: Final = 130
_ESCAPES: Final = "governance-escapes"

Subparsers = Any
"""What `add_subparsers` returns; argparse keeps the type to itself."""


_FRACTION = re.compile(r"(?<=\d\d:\d\d:\d\d)\.\d{6}Z\Z")


_COPIED = re.compile(r"(Id|Hash|Broken|email|prefix)\Z")
"""Columns that one copies from, and which therefore stand on one line."""
NARROW: Final = 10
"""Characters that any other column keeps at the least."""


class CommandError(Exception):
    """Ends a command with a text for people and an exit code; `shown` is what `--json` prints besides."""

    def __init__(self, message: str, code: int = FAILED, shown: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.shown = shown


def whole_output() -> None:
    """Said once, before a command writes anything: all of that arrives, or the command fails."""
    with contextlib.suppress(OSError, ValueError):  # it is no file, as in tests
        # Somebody who shares it, such as a program of Node.js that wrote to the same pipe, may have set it so
        # that what does not fit at once is left out without an error.
        if os.name != "nt" and not os.get_blocking(sys.stdout.fileno()):
            os.set_blocking(sys.stdout.fileno(), True)
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        codecs.register_error(_ESCAPES, _escaped)
        sys.stdout.reconfigure(errors=_ESCAPES)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What the terminal has no letters for, as JSON writes it, so that JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


def drop_output() -> None:
    """Whatever is still buffered goes nowhere, so that the end of the process does not fail at it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def filled(text: str) -> str:
    """The type of an argument that names something, so that an unset variable of a shell is noticed."""
    if not text:
        raise argparse.ArgumentTypeError("this argument is empty; is a variable of the shell not set?")
    return text


def moment(text: str | None) -> str | None:
    """The time of an option as the records write it."""
    from api.clock import iso, seconds

    if text is None:
        return None
    try:
        return iso(seconds(text))
    except (ValueError, OverflowError):
        raise CommandError(
            f"`{text}` is not an ISO 8601 time; write one such as `2026-01-31T09:30:00Z`", USAGE
        ) from None


def first_line() -> str:
    """The first line of the input, such as a password; without the mark that editors and shells of Windows
    put before a text. Raises CommandError."""
    try:
        line = sys.stdin.readline()
        line.encode()
        if "\0" in line:  # as in UTF-16, which need not be marked
            raise UnicodeError
    except UnicodeError:
        raise CommandError(
            "the input is not text in UTF-8, as a file of another encoding; save it as UTF-8", USAGE
        ) from None
    return line.removeprefix("\ufeff").rstrip("\r\n")


def say_error(message: str) -> None:
    for line in message.split("\n"):
        print(f"governance: {spelled(line, '')}", file=sys.stderr)


def confirm(question: str, sure: bool) -> None:
    """Ask once, on a terminal; `sure` is the flag --yes. Raises CommandError when it must not go on."""
    if sure:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Nobody can be asked here; give --yes if you are sure", USAGE)
    print(f"{spelled(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )


def print_json(value: Any) -> None:
    """Indented, and safe on a terminal whoever wrote what is in it."""
    print(json_text(value))


def tell(record: Any, form: str, *lines: str) -> None:
    """A record as JSON, or what people are told of it."""
    if form == "json":
        print_json(record)
    else:
        print(*map(spelled, lines), sep="\n")


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], form: str) -> None:
    """Rows as a table of `columns` (key -> heading), or all of them as JSON."""
    if form == "json":
        print_json(list(rows))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[Text(_cell(row.get(key))) for key in columns] for row in rows]
    whole = not sys.stdout.isatty()
    needed = 0
    for number, (key, heading) in enumerate(columns.items()):
        width = max([cell_len(heading), *(cell_len(line[number].plain) for line in cells)])
        fixed = whole or bool(_COPIED.search(key))
        table.add_column(heading, overflow="fold", no_wrap=fixed, min_width=width if fixed else None)
        needed += (width if fixed else min(width, max(cell_len(heading), NARROW))) + 2
    for line in cells:
        table.add_row(*line)
    console = Console()
    # A line that is too long for the terminal is broken by the terminal, and copied as one.
    console.width = max(console.width, needed)
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return spelled(", ".join(map(str, value)))
    # Seconds are enough to read; JSON has the rest.
    return spelled(_FRACTION.sub("Z", str(value)))


def program() -> str:
    """How to call this program from here: `governance` if the shell finds this one, else its path."""
    called = Path(sys.argv[0])
    if called.stem != "governance":
        # `python -m api.cli`, or a test: the one beside this interpreter.
        called = Path(sys.executable).with_name("governance")
        if not called.is_file():
            return f"{shlex.quote(sys.executable)} -m api.cli"
    found = shutil.which("governance")
    try:
        if found is not None and Path(found).samefile(called):
            return "governance"
    except OSError:
        return "governance"
    path = called.absolute()
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
        # The shell looks for a bare name on the PATH only.
        return shlex.quote(str(path) if len(path.parts) > 1 else f"./{path}")
    return shlex.quote(str(path))


def show_once(what: str, secret: str, form: str, record: Mapping[str, Any]) -> None:
    """A secret that is kept nowhere: on a line of its own, so that it can be copied or piped."""
    if form == "json":
        print_json(record)
        return
    print(f"{what}, shown only now:", file=sys.stderr)
    print(secret)
