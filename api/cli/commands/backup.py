"""`governance backup`: a whole copy of the embedded database while the service runs."""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
from pathlib import Path

from api.cli.local_store import EMPTY, add_place, settings_of
from api.cli.output_file import output_file
from api.cli.terminal import USAGE, CommandError, Subparsers

PAGES_AT_ONCE = 4_096


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "backup",
        help="copy the embedded database while the service runs",
        description="Copies the embedded database while the service runs; the copy is checked before it gets "
        "its name. Policies (policies.d) are files of their own, and so are the signing secret and the key "
        "of the record (jwt-secret and audit-key in the data folder). For PostgreSQL use pg_dump.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="where the copy goes")
    parser.add_argument("--force", action="store_true", help="replace FILE when it exists")
    add_place(parser)
    parser.set_defaults(run=_backup)


def _backup(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    database = settings.database
    if not database.startswith("sqlite:///"):
        raise CommandError("this is for the embedded database; copy PostgreSQL with `pg_dump`", USAGE)
    source, target = Path(database.removeprefix("sqlite:///")), arguments.file
    if not source.is_file():
        raise CommandError(f"there is no database `{source}`; say where it is with --data-dir", USAGE)
    with output_file(target, settings, force=arguments.force) as aside:
        try:
            _copy(source, aside)
        except sqlite3.Error as error:
            raise CommandError(f"the copy failed: {error}") from None
    print(f"{target}: {target.stat().st_size} bytes, checked")
    return 0


def _copy(source: Path, target: Path) -> None:
    from rich.console import Console
    from rich.progress import Progress

    place = f"{source.absolute().as_uri()}?mode=ro"  # whatever characters are in it
    with (
        contextlib.closing(sqlite3.connect(place, uri=True, isolation_level=None)) as live,
        contextlib.closing(sqlite3.connect(target)) as copy,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        # From here on it reads one state: else each commit of the service would make it begin again.
        live.execute("BEGIN")
        if live.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,):
            raise CommandError(EMPTY.format(path=source), USAGE)
        task = progress.add_task("copying")
        live.backup(
            copy,
            pages=PAGES_AT_ONCE,
            progress=lambda _, left, total: progress.update(task, total=total, completed=total - left),
        )
        # One file and no journal beside it, so that it can be moved about.
        copy.execute("PRAGMA journal_mode = delete")
        if copy.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("the copy is damaged")
