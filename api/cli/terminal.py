"""What commands say: tables for people, JSON for programs, errors on the error stream."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

Subparsers = Any
"""What `add_subparsers` returns; argparse keeps the type to itself."""


_FRACTION = re.compile(r"(?<=\d\d:\d\d:\d\d)\.\d{6}Z\Z")


class CommandError(Exception):
    """Ends a command with a text for people and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def say_error(message: str) -> None:
    for line in message.splitlines():
        print(f"governance: {line}", file=sys.stderr)


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], form: str) -> None:
    """Rows as a table of `columns` (key -> heading), or all of them as JSON."""
    if form == "json":
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(key))) for key in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    # Seconds are enough to read; JSON has the rest.
    return _FRACTION.sub("Z", str(value))


def show_once(what: str, secret: str, form: str, record: Mapping[str, Any]) -> None:
    """A secret that is kept nowhere: on a line of its own, so that it can be copied or piped."""
    if form == "json":
        print(json.dumps(record, indent=2, ensure_ascii=False))
        return
    print(f"{what}, shown only now:", file=sys.stderr)
    print(secret)
