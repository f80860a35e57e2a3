"""`governance audit`: prove that the record is whole, or hand it out."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from api.cli.local_store import actor, add_organisation, add_place, opened, settings_of
from api.cli.output_file import output_file
from api.cli.spelling import spelled
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, add_format, moment, show

if TYPE_CHECKING:
    from api.audit.installation_key import PublicKey
    from api.audit.verification import Expectation
    from api.cli.local_store import LocalStore
    from api.database.transaction import Transaction
    from api.settings import Settings

_HASH = re.compile(r"[0-9a-f]{64}")
COLUMNS = {
    "organisationId": "ORGANISATION",
    "valid": "VALID",
    "count": "RECORDS",
    "firstBroken": "FIRST BROKEN",
    "lastHash": "LAST HASH",
    "unsigned": "UNSIGNED",
    "keyId": "KEY",
}
AT_ONCE = 5_000


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("audit", help="the record: verify its hash chain, export it")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    check = actions.add_parser(
        "verify",
        help="check that nothing was changed or removed",
        description="Checks every link of the hash chain and every signed checkpoint, and compares calls, "
        "approvals, events, policies, users and keys with the log; exit code 1 when something is wrong.",
    )
    check.add_argument("--organisation", metavar="ID", help="only this one; default: all")
    check.add_argument(
        "--expect",
        metavar="FILE|COUNT|HASH",
        help="what was noted earlier: a file with what `verify --format json` said, or for one organisation "
        "a count or a hash",
    )
    check.add_argument(
        "--public-key",
        metavar="HEX",
        action="append",
        default=[],
        help="a key that checkpoints may be signed with; default: the one of the data folder",
    )
    key = actions.add_parser("key", help="show the public key of the checkpoints, to note it elsewhere")
    rekey = actions.add_parser(
        "rekey",
        help="begin with a new key",
        description="Begins with a new key for the checkpoints; the key of before signs that, so `verify` "
        "accepts both and says when it changed. Afterwards copy the key to every node and start them again.",
    )
    rekey.add_argument("--lost", action="store_true", help="the key of before is lost for ever")
    accept = actions.add_parser(
        "accept-restored",
        help="go on with a database that holds less than was signed",
        description="Goes on with a database that was put in its place on purpose, such as a backup, "
        "although it holds less than was signed: what is missing is given up. Without it nothing starts on "
        "such a database. Run it while the service is stopped. With PostgreSQL, where a copy that lacked the "
        "last commits has taken over, it gives up the checkpoints that are missing, which `verify` tells: as "
        "a note from then on, and no more as a fault; it needs the key of the record (audit-key).",
    )
    export = actions.add_parser(
        "export",
        help="write the records as JSON lines",
        description="Writes the records as JSON lines, oldest first: as hashed, or as events of OCSF.",
    )
    export.add_argument(
        "--format",
        choices=("jsonl", "ocsf"),
        default="jsonl",
        help="`ocsf`: events of OCSF 1.8.0, with the record in `unmapped`; default: jsonl",
    )
    add_organisation(export)
    export.add_argument("--since", metavar="TIME", help="ISO 8601; included")
    export.add_argument("--until", metavar="TIME", help="ISO 8601; not included")
    export.add_argument("--output", type=Path, metavar="FILE", help="default, and `-`: standard output")
    export.add_argument("--force", action="store_true", help="replace FILE when it exists")
    every = (check, _verify), (accept, _accept), (export, _export), (key, _key), (rekey, _rekey)
    for command, run in every:
        add_place(command)
        command.set_defaults(run=run)
    add_format(check)
    add_format(key)


def _verify(arguments: argparse.Namespace) -> int:
    from api.audit import verification
    from api.audit.mark import AuditMark

    trusted = _trusted(arguments)
    mark = AuditMark(settings_of(arguments))
    lacks = mark.lacks()
    if lacks and mark.beside_log:
        # To open it would copy into it what may not be its own.
        raise CommandError(mark.complaint(lacks))
    with opened(arguments, behind=True, reads=True) as store:
        only = arguments.organisation
        known = store.read(verification.organisations, store.database)
        ids = sorted({*known, *(each.organisation_id for each in lacks)})
        if only is not None and only not in ids:
            store.need_organisation(only)
        expected = _expected(arguments.expect, [only] if only else ids, only)
        ids = [only] if only else sorted({*ids, *expected})
        if not ids:
            raise CommandError(
                "this database holds no organisation, and so no record to verify: is it the right one? Look "
                "at --data-dir, --database-url and GOVERNANCE_DATABASE_URL"
            )
        results = [
            {"organisationId": name}
            | store.read(verification.verify, store.database, name, trusted, expected.get(name))
            for name in ids
        ]
    for result in results:
        if any(each.organisation_id == result["organisationId"] for each in lacks):
            result["problems"].append(mark.complaint(lacks))
            result["valid"] = False
    show(results, COLUMNS, arguments.format)
    if arguments.format == "table":
        for result in results:
            for note in result["notes"]:
                print(spelled(f"{result['organisationId']}: note: {note}"), file=sys.stderr)
            for problem in result["problems"]:
                print(spelled(f"{result['organisationId']}: {problem}"), file=sys.stderr)
    return 0 if all(result["valid"] for result in results) else FAILED


def _trusted(arguments: argparse.Namespace) -> list[PublicKey]:
    """The keys of the command line, else the installation's; none where it has none here."""
    from api.audit.installation_key import installation_key, key_file, public_key

    try:
        named = [public_key(text) for text in arguments.public_key]
    except ValueError:
        raise CommandError(
            "--public-key: write the 64 hexadecimal digits that `audit key` shows", USAGE
        ) from None
    settings = settings_of(arguments)
    return named or ([installation_key(settings).public] if key_file(settings).exists() else [])


def _expected(text: str | None, organisations: list[str], only: str | None) -> dict[str, Expectation]:
    """What was noted, by organisation; of the `only` one that is asked for."""
    from api.audit.verification import Expectation

    if text is None:
        return {}
    if text.isdecimal() or _HASH.fullmatch(text):
        if len(organisations) != 1:
            raise CommandError("--expect: say of which organisation, with --organisation", USAGE)
        one = Expectation(count=int(text)) if text.isdecimal() else Expectation(digest=text)
        return {organisations[0]: one}
    try:
        noted = json.loads(Path(text).read_bytes())
        rows = noted if isinstance(noted, list) else [noted]
        noted_of = {
            str(row.get("organisationId", "default")): Expectation(
                int(row["count"]),
                str(row["lastHash"]),
                None if row.get("signedHash") is None else str(row["signedHash"]),
                int(row.get("checkpoint", 0)),
            )
            for row in rows
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        message = f"--expect: `{text}` is no count, no hash and no file of `audit verify --format json`"
        raise CommandError(message, USAGE) from None
    if only not in (None, *noted_of) or not noted_of:
        raise CommandError(f"--expect: `{text}` notes nothing" + (f" of `{only}`" if only else ""), USAGE)
    return noted_of


def _key(arguments: argparse.Namespace) -> int:
    from api.audit.installation_key import ALGORITHM, installation_key, key_file

    settings = settings_of(arguments)
    if not key_file(settings).exists():
        raise CommandError(f"there is no key `{key_file(settings)}`; the first start makes it")
    key = installation_key(settings).public
    row = {"keyId": key.key_id, "algorithm": ALGORITHM, "publicKey": key.text}
    show([row], {"keyId": "KEY", "algorithm": "ALGORITHM", "publicKey": "PUBLIC KEY"}, arguments.format)
    return 0


def _rekey(arguments: argparse.Namespace) -> int:
    from api.audit import rekey
    from api.settings import SettingsError

    with opened(arguments) as store:
        try:
            old, new, kept = rekey.begin(store.settings, store.write, actor(), arguments.lost)
        except (rekey.NoHandover, SettingsError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"the new key cannot be written: {error.strerror}") from None
    print(f"the key is `{new}` now, before it was `{old}`")
    if kept is not None:
        print(f"the file of before is kept as `{kept}`")
    print("copy the new file to every node, start them again, and note the new `governance audit key`")
    return 0


NOT_REFUSED = (
    "a PostgreSQL database that is older than before is not refused, so there is nothing to accept; hold one "
    "that was restored against what was noted last: `governance audit verify --expect noted.json`"
)


def _give_up(store: LocalStore) -> bool:
    """The checkpoints that are missing, as after a failover; False: none are. Raises CommandError."""
    from api.audit import checkpoints
    from api.audit.installation_key import installation_key, key_file
    from api.store import accounts

    missing = store.read(checkpoints.gaps, store.database)
    if not missing:
        return False
    path = key_file(store.settings)
    key = installation_key(store.settings) if path.exists() else None
    if key is None or key.public != store.read(checkpoints.signer, store.database):
        raise CommandError(f"`{path}` is not the key that signs this record; run this where that key is")
    for each in store.read(accounts.list_organisations):
        details = {"checkpoints": missing}
        store.write(partial(_said, organisation_id=each["organisationId"], details=details))
    store.write(partial(checkpoints.give_up, missing=missing, key=key))
    for first, until in missing:
        which = f"checkpoint {first}" if first == until else f"checkpoints {first} to {until}"
        print(f"given up: {which}, and the records that only they signed")
    return True


def _said(transaction: Transaction, organisation_id: str, details: dict[str, Any]) -> None:
    transaction.audit(organisation_id, "audit.restored", actor=actor(), details=details)


def _accept(arguments: argparse.Namespace) -> int:
    from api.audit.mark import AuditMark
    from api.clock import iso, system_clock
    from api.store import accounts

    settings = settings_of(arguments)
    embedded = settings.database.startswith("sqlite:///")
    mark = AuditMark(settings)
    lacks = mark.lacks(as_copy=True) if embedded else []
    if not lacks:
        with opened(arguments) as store:  # or it is not there at all
            nothing = store.read(mark.missed, store.database) if embedded else NOT_REFUSED
            if not _give_up(store):
                print(nothing or "the database holds all that was signed; there is nothing to accept")
        return 0
    if mark.is_served:
        raise CommandError("a service runs on this database; stop it, and run this again")
    with opened(arguments, behind=True) as store:
        known = {each["organisationId"] for each in store.read(accounts.list_organisations)}
        for each in lacks:  # first: what fails behind them leaves the start refused
            if each.organisation_id in known:
                details = {"signed": each.signed, "found": each.found}
                store.write(partial(_said, organisation_id=each.organisation_id, details=details))
        try:
            store.read(mark.accept, store.database, iso(system_clock()))
        except OSError as error:
            raise CommandError(f"`{mark.path}` cannot be written: {error.strerror}; run this again") from None
        for each in lacks:
            print(f"given up: {each.text}")
        _give_up(store)
    print(
        "What was ended since the copy was made holds again: look at halts, API keys, grants, people and "
        "changes that wait before agents come in."
    )
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from api.audit import ocsf, records

    chosen = records.Filter(
        arguments.organisation, since=moment(arguments.since), until=moment(arguments.until)
    )
    if chosen.since and chosen.until and chosen.since >= chosen.until:
        raise CommandError("--since is not before --until, so nothing lies between them", USAGE)
    with opened(arguments, reads=True) as store, _output(arguments, store.settings) as output:
        store.need_organisation(arguments.organisation)
        chosen = store.read(records.up_to_now, chosen)
        after: records.Positions | None = None
        while True:
            try:
                lines, after = store.read(records.export_lines, chosen, AT_ONCE, after, True)
            except records.DroppedMeanwhile as error:
                raise CommandError(str(error)) from None
            output.write(ocsf.lines(lines) if arguments.format == "ocsf" else lines)
            if after is None:
                break
    return 0


@contextlib.contextmanager
def _output(arguments: argparse.Namespace, settings: Settings) -> Iterator[IO[bytes]]:
    if arguments.output is None or str(arguments.output) == "-":
        yield sys.stdout.buffer
        return
    with (
        output_file(arguments.output, settings, force=arguments.force) as path,
        path.open("wb") as file,
    ):
        yield file
