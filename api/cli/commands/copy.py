"""`governance copy`: move from the embedded database to PostgreSQL, with all that was recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from api.cli.local_store import add_place, settings_of
from api.cli.terminal import USAGE, CommandError, Subparsers, filled


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "copy",
        help="copy the embedded database into an empty PostgreSQL database",
        description="Copies the embedded database, of which no service may run, into an empty PostgreSQL "
        "database: everything, with its ids and numbers. Interrupted and run again it goes on where it was; "
        "at the end counts and the ends of the audit chains are compared. The source is never changed. "
        "Policies (policies.d), the signing secret and the key of the record (jwt-secret and audit-key in "
        "the data folder) are files and stay in use: without the same signing secret nobody can read the "
        "secrets in the copy.",
    )
    parser.add_argument(
        "--to",
        type=filled,
        metavar="URL",
        required=True,
        help="`postgresql://...`, of an empty database; a password may stand in PGPASSWORD or ~/.pgpass",
    )
    add_place(parser)
    parser.set_defaults(run=_copy)


def _copy(arguments: argparse.Namespace) -> int:
    from api.audit.mark import AuditMark
    from api.cli.report import stages
    from api.clock import iso, system_clock
    from api.database.errors import postgres_place
    from api.database.moving.move import copy
    from api.database.moving.streams import CopyError
    from api.database.sqlite.copied import note, note_of
    from api.database.sqlite.files import resolved
    from api.settings import SettingsError, load

    settings = settings_of(arguments)
    if not settings.database.startswith("sqlite:///"):
        raise CommandError("the source is the embedded database; copy PostgreSQL with `pg_dump`", USAGE)
    source = resolved(Path(settings.database.removeprefix("sqlite:///")))
    if not source.is_file():
        raise CommandError(f"there is no database `{source}`; say where it is with --data-dir", USAGE)
    AuditMark(settings).refuse()
    try:
        target = load({}, database_url=arguments.to).database
    except SettingsError as error:
        raise CommandError(str(error).replace("--database-url", "--to"), USAGE) from None
    if target.startswith("sqlite:"):
        raise CommandError("--to: write `postgresql://user:password@host:5432/name`", USAGE)
    unmarked: list[OSError] = []

    def mark() -> None:
        try:
            note(source, postgres_place(target)[0], iso(system_clock()))
        except OSError as error:
            unmarked.append(error)

    try:
        with stages("counting") as watch:
            copied = copy(source, target, watch, mark)
    except CopyError as error:
        raise CommandError(str(error)) from None
    for problem in unmarked:
        print(f"put `{source}` away, lest it is used again: it cannot be marked ({problem.strerror})")
    before = f", {copied.before} of them by the copy before" if copied.before else ""
    print(f"copied and verified: {copied.rows} rows of {copied.tables} tables{before}")
    print("next: start the service with GOVERNANCE_DATABASE_URL set to the new database, and the same data")
    print(f"folder (`{settings.data_dir}`: jwt-secret, audit-key) and policies. The old one is refused from")
    print(f"now on; should nothing be recorded in the new one, delete `{note_of(source)}` to go back")
    return 0
