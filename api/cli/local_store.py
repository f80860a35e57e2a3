"""The store of this machine, for commands that work on it directly, also while the service runs.

Whoever can run these commands has the database file or address; they need no login, which is also the way
back in for an admin who lost theirs. Their changes are on record as `cli:<system user>`.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, add_format, filled

if TYPE_CHECKING:
    from pathlib import Path

    from api.database.connection import Database
    from api.settings import Settings

T = TypeVar("T")

NODES: Final = "0019_nodes"
"""The migration since which a service tells that it runs; nobody wrote the table of before, of that name."""

EMPTY: Final = (
    "the database `{path}` is empty; put it, or a backup of it, in its place, or say where it is with "
    "--data-dir; if there was none, start the service once with `governance serve`"
)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where the data is."""
    parser.add_argument("--data-dir", metavar="DIR", help="instead of GOVERNANCE_DATA_DIR")
    parser.add_argument("--database-url", metavar="URL", help="instead of GOVERNANCE_DATABASE_URL")


def add_organisation(parser: argparse.ArgumentParser, default: str | None = "default") -> None:
    """`default=None` for commands that must tell whether it was given; it means the same."""
    parser.add_argument(
        "--organisation",
        type=filled,
        metavar="ID",
        default=default,
        help="which organisation; default: default",
    )


def add_action(
    actions: Subparsers, name: str, help: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """One action of a group of commands on the local store, such as `governance keys list`."""
    made: argparse.ArgumentParser = actions.add_parser(name, help=help, description=help)
    add_place(made)
    add_format(made)
    made.set_defaults(run=run)
    return made


def settings_of(arguments: argparse.Namespace) -> Settings:
    from api.settings import load

    settings = load(data_dir=arguments.data_dir, database_url=arguments.database_url)
    if arguments.data_dir is not None and arguments.database_url is None:
        _refuse_other_database(settings)
    return settings


def _refuse_other_database(settings: Settings) -> None:
    """Who names a folder that has a database means that one, while a variable of this shell names another,
    of a server or of production. Raises CommandError."""
    from pathlib import Path

    from api.database.sqlite.copied import note_of

    own = Path(replace(settings, database_url="").database.removeprefix("sqlite:///"))
    named = Path(settings.database.removeprefix("sqlite:///"))
    if not own.is_file() or note_of(own).exists() or (named.is_file() and named.samefile(own)):
        return
    raise CommandError(
        f"`{own}` is there, but GOVERNANCE_DATABASE_URL names another database; say which one you mean with "
        f"--database-url, such as `--database-url sqlite:///{own}`, or unset GOVERNANCE_DATABASE_URL",
        USAGE,
    )


def actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


@dataclass(frozen=True, slots=True)
class LocalStore:
    """An open database. `write` runs one job in one transaction."""

    database: Any
    settings: Settings

    def write(self, job: Callable[[Any], T]) -> T:
        from api.clock import random_ids, system_clock
        from api.database.transaction import Transaction
        from api.store.accounts import AccountError

        with self.database.transaction():
            transaction = Transaction(self.database, system_clock(), random_ids, None)
            try:
                result = job(transaction)
            except AccountError as error:
                raise CommandError(str(error)) from None
            transaction.flush()
        transaction.committed()
        return result

    def read(self, function: Callable[..., T], *arguments: Any) -> T:
        result: T = self.database.read_here(function, *arguments)
        return result

    def open_vault(self) -> None:
        """Secrets in the database can be read and written from now on. Raises CommandError."""
        from api.auth.signing_secret import open_vault, signing_secret
        from api.settings import SettingsError

        try:
            secret = signing_secret(self.settings)
            self.write(lambda transaction: open_vault(transaction, self.settings, secret))
        except SettingsError as error:
            raise CommandError(str(error), USAGE) from None

    def need_organisation(self, organisation_id: str, code: int = FAILED) -> dict[str, Any]:
        from api.store import accounts

        found = self.read(accounts.organisation, organisation_id)
        if found is None:
            raise CommandError(
                f"there is no organisation `{organisation_id}`; see `governance organisations list`", code
            )
        return found


def _refuse_unmade(database: Database) -> None:
    """A mistyped name must make no tables where another database was meant. Raises CommandError."""
    from api.database.connection import COPY_PROGRESS
    from api.database.lacking import OWN, refuse_foreign, tables_of
    from api.database.postgres import Postgres

    if not isinstance(database.peewee, Postgres):
        return
    with database.guarded():
        refuse_foreign(database.peewee)
        is_made = not tables_of(database.peewee).isdisjoint({COPY_PROGRESS, *OWN})
    if not is_made:
        raise CommandError(
            "the PostgreSQL database has no tables of the service; start the service on it once with "
            "`governance serve`, or mend --database-url or GOVERNANCE_DATABASE_URL",
            USAGE,
        )


def _refuse_beside_older(database: Database) -> None:
    """A command of a newer version must not change the tables under a service of the older one that runs,
    which could not start on them again. Who runs is told by the clock of the database, where it has one: that
    of this machine may be ahead. Raises CommandError."""
    from api.clock import iso, system_clock
    from api.database.postgres import Postgres
    from api.health.clocks import ClockCheck
    from api.health.nodes import SILENT_SECONDS, pull_back
    from api.health.schema_steps import missing_step

    with database.guarded():
        step = missing_step(database)
        if step is None or step <= NODES:  # they are taken in their order
            return
        clocks = ClockCheck(database, system_clock)
        if isinstance(database.peewee, Postgres):
            clocks.look()
        now = system_clock() - clocks.ahead
        with database.transaction():
            pull_back(database, now)
        heard = iso(now - SILENT_SECONDS)
        running = database.rows("SELECT process_id, host FROM nodes WHERE seen_at >= ? LIMIT 1", (heard,))
    if running:
        process, host = running[0]
        raise CommandError(
            f"a service of an older version runs on this database (process {process} on `{host}`), and this"
            f" command would first change its tables (`{step}`), on which that one could not start"
            " again; use the command of its version, or stop it and take a backup first (one that was killed"
            f" is thought to run for {SILENT_SECONDS} seconds)",
            USAGE,
        )


def _is_older_copy(path: Path, url: str) -> bool:
    """Whether an older version has made it by `governance backup`, and it is the way back to that one."""
    from api.database.connection import Database
    from api.database.sqlite.header import is_without_log
    from api.health.schema_steps import missing_step

    if not is_without_log(path):
        return False
    with contextlib.closing(Database(url)) as database:
        database.refuse_foreign_file()
        with database.guarded():
            return missing_step(database) is not None


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[str]:
    """The address of a copy of a database that has no log, which lasts as long as this."""
    import shutil
    import tempfile
    from pathlib import Path

    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="governance-"))
            copy = Path(folder) / path.name
            copy.touch(mode=0o600)
            shutil.copyfile(path, copy)
        except OSError as error:
            raise CommandError(
                f"`{path}`, which an older version made, stays as it is, and a copy of it to look at cannot"
                f" be made: {error.strerror}; name a folder that has room in TMPDIR"
            ) from None
        yield f"sqlite:///{copy}"


@contextlib.contextmanager
def opened(
    arguments: argparse.Namespace, *, behind: bool = False, reads: bool = False
) -> Iterator[LocalStore]:
    """The store that the flags and settings name; it must exist, so that a mistyped folder makes none, and
    hold what was signed, unless it may be `behind`. Who only `reads` leaves the copy that an older version
    made to that version."""
    from api.audit.mark import AuditMark
    from api.database.connection import Database
    from api.database.sqlite.header import left_without_log

    settings = settings_of(arguments)
    url = settings.database
    with contextlib.ExitStack() as stack:
        if url.startswith("sqlite:///"):
            from pathlib import Path

            path = Path(url.removeprefix("sqlite:///"))
            if not path.is_file():
                raise CommandError(
                    f"there is no database `{path}`; start the service once with `governance serve`, "
                    "or say where it is with --data-dir",
                    USAGE,
                )
            if path.stat().st_size == 0:  # with tables in it a start would take it for a first one
                raise CommandError(EMPTY.format(path=path), USAGE)
            stack.enter_context(left_without_log(path))
            if reads and _is_older_copy(path, url):
                url = stack.enter_context(_copied(path))
        database = stack.enter_context(contextlib.closing(Database(url)))
        database.refuse_foreign_file()
        if not behind:
            AuditMark(settings).refuse()
        _refuse_unmade(database)
        if url == settings.database:
            _refuse_beside_older(database)
        database.migrate()
        yield LocalStore(database, settings)
