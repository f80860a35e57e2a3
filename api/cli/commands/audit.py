"""`governance audit`: prove that the record is whole, or hand it out."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from api.cli.local_store import add_organisation, add_place, opened
from api.cli.terminal import FAILED, CommandError, Subparsers, add_format, moment, show

COLUMNS = {
    "organisationId": "ORGANISATION",
    "valid": "VALID",
    "count": "RECORDS",
    "firstBroken": "FIRST BROKEN",
    "lastHash": "LAST HASH",
}
AT_ONCE = 5_000


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("audit", help="the record: verify its hash chain, export it")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = actions.add_parser(
        "verify",
        help="check every link of the hash chain",
        description="Checks every link of the hash chain; exit code 1 names the first broken one.",
    )
    check.add_argument("--organisation", metavar="ID", help="only this one; default: all")
    export = actions.add_parser(
        "export",
        help="write the records as JSON lines",
        description="Writes the records as JSON lines, oldest first, exactly as hashed.",
    )
    add_organisation(export)
    export.add_argument("--since", metavar="TIME", help="ISO 8601; included")
    export.add_argument("--until", metavar="TIME", help="ISO 8601; not included")
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    for command, run in ((check, _verify), (export, _export)):
        add_place(command)
        command.set_defaults(run=run)
    add_format(check)


def _verify(arguments: argparse.Namespace) -> int:
    from api.database import audit_chain
    from api.store import accounts

    with opened(arguments) as store:
        if arguments.organisation is not None:
            chosen = [store.need_organisation(arguments.organisation)]
        else:
            chosen = store.read(accounts.list_organisations)
        ids = [organisation["organisationId"] for organisation in chosen]
        results = [{"organisationId": name} | store.read(audit_chain.verify, name) for name in ids]
    show(results, COLUMNS, arguments.format)
    return 0 if all(result["valid"] for result in results) else FAILED


def _export(arguments: argparse.Namespace) -> int:
    from api.database import audit_chain

    chosen = audit_chain.Filter(
        arguments.organisation, since=moment(arguments.since), until=moment(arguments.until)
    )
    with opened(arguments) as store, _output(arguments.output) as output:
        store.need_organisation(arguments.organisation)
        chosen = store.read(audit_chain.up_to_now, chosen)
        after: int | None = None
        while True:
            lines, after = store.read(audit_chain.export_lines, chosen, AT_ONCE, after, True)
            output.write(lines)
            if after is None:
                break
    return 0


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise CommandError(f"`{path}` cannot be written: {error.strerror}") from None
